"""Writes docs/spark-options.md from the tables of options.

python -m tidelog.spark.options_page --write docs/spark-options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tidelog.config.document import main
from tidelog.spark.option_row import OptionRow
from tidelog.spark.sink.write_options import WRITE_OPTIONS
from tidelog.spark.source.read_option_table import READ_OPTIONS

_HEAD = """# Options of the data source

The options of `format("tidelog")`, compared with Spark's own Kafka connector (4.2). *Same*: it has
the same meaning there. *Differs*: the text says how. *Refused*: an error that names the option;
options that are not listed are refused too. *Ours*: the connector has no such option. Names are not
case-sensitive.

<!-- made by `python -m tidelog.spark.options_page --write docs/spark-options.md` -->
"""


def page() -> str:
    """The whole page."""
    reading = ("## Reading\n", *_table(READ_OPTIONS), "")
    return "\n".join([_HEAD, *reading, "## Writing\n", *_table(WRITE_OPTIONS), ""])


def _table(rows: Iterable[OptionRow]) -> list[str]:
    return [
        "| option | | |",
        "|---|---|---|",
        *(f"| `{row.name}` | {row.status} | {row.help} |" for row in rows),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], page, "tidelog.spark.options_page"))
