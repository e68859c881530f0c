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

What `format("tidelog")` takes, option by option, beside Spark's own Kafka connector (4.2). *Same*:
it means what it means there. *Differs*: the help says in what. *Refused*: an error that names it;
so is every option that is not listed. *Ours*: the connector has none like it. Names are taken in
any case.

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
