"""Writes the reference of all settings from the table: `python -m tidelog.config.document`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tidelog.config.broker_settings import BROKER_SECTIONS
from tidelog.config.group_settings import SETTINGS_OF_A_GROUP
from tidelog.config.loader import environment_name
from tidelog.config.setting import INT_MAX, LONG_MAX, Kind, Setting, Update, format_value
from tidelog.config.topic_settings import TOPIC_SECTIONS

_INTRODUCTION: Final = """\
# Settings

This page is generated from the table of settings (`python -m tidelog.config.document --write
docs/configuration.md`); a test fails when it differs.

Names and defaults are those of Apache Kafka wherever Kafka has the setting; the others are marked
*ours*. A default that differs from Kafka's is shown with Kafka's.

## Where settings come from

A broker reads these sources; each overrides the ones before it:

1. files, in the order they are given: Java properties files, or YAML
   (`.yaml`, `.yml`) with names written flat (`log.segment.bytes: 1048576`) or nested
   (`log: {segment.bytes: 1048576}`);
2. environment variables: `TIDELOG_` and the name in capitals with `_` for `.`, for example
   `%(environment)s`;
3. flags: `--set NAME=VALUE`.

You can start a broker with Kafka's own `server.properties`. The broker warns once about each name
that Kafka knows and Tidelog does not use. Any other unknown name and every value out of range is an
error that names the file, the line and the nearest valid name. If a setting has several forms
(`log.retention.ms`, `.minutes`, `.hours`), a form in a later source replaces all forms in earlier
ones. In YAML a value is the text as written: `no` does not become `false`.

While brokers run, alter settings with Kafka's admin calls (IncrementalAlterConfigs). The first of
these determines a topic's value: the topic's own settings, those altered for the broker, those
altered for all brokers, those that the broker was started with, the default. The column *change*
says what you can alter without a restart: *cluster* for one broker or all, *broker* for one broker,
*restart* for nothing.
Settings that Kafka accepts while it runs and Tidelog does not use (`num.io.threads`,
`log.cleaner.threads` and others) are accepted, stored and shown, and the broker's log says so. Like
Kafka, the broker also accepts names that it does not know, for plugins, with the same line in its
log; it never shows their values.

A topic, a group, a broker and the default of all brokers may each have up to 1,000 settings, with
names of 1 to 255 characters and values of up to 32,767 (Kafka's limit), and up to 256 KiB together.
More are refused with INVALID_CONFIG.
"""

_CHANGE: Final = {
    Update.READ_ONLY: "restart",
    Update.PER_BROKER: "broker",
    Update.CLUSTER_WIDE: "cluster",
}
_BYTE_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIME_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def document() -> str:
    """The whole page, in Markdown."""
    example = environment_name("log.segment.bytes") + "=1048576"
    parts = [_INTRODUCTION % {"environment": example}, "## Settings of a broker\n"]
    for heading, settings in BROKER_SECTIONS:
        parts.append(f"### {heading}\n")
        rows = [(*_cells(setting), _CHANGE[setting.update]) for setting in _shown(settings)]
        parts.append(_table("change", rows))
    parts.append("## Settings of a topic\n")
    parts.append(
        "Set these when you create or alter a topic, with `--set NAME=VALUE` on the command line. "
        "The last\ncolumn names the broker's setting that applies to a topic without its own "
        "value.\n"
    )
    for heading, settings in TOPIC_SECTIONS:
        parts.append(f"### {heading}\n")
        rows = [(*_cells(setting), _code(setting.broker_name)) for setting in _shown(settings)]
        parts.append(_table("broker's default", rows))
    parts.append("## Settings of a group\n")
    parts.append(
        "Groups with the new consumer protocol (`group.protocol=consumer`) may have their own, "
        "within the limits\nthat the broker sets (`group.consumer.min.*`, "
        "`group.consumer.max.*`). The group need not exist yet.\n"
        "Kafka's settings of share and streams groups are accepted and shown, but have no effect.\n"
    )
    rows = [(*_cells(setting), _code(setting.broker_name)) for setting in SETTINGS_OF_A_GROUP]
    parts.append(_table("broker's default", rows))
    return "\n".join(parts)


def _shown(settings: Iterable[Setting]) -> list[Setting]:
    return [setting for setting in settings if not setting.internal]


def _cells(setting: Setting) -> tuple[str, ...]:
    meaning = setting.help
    if setting.unused:
        meaning += " *No effect.*"
    name = _code(setting.name) + ("" if setting.kafka else " *ours*")
    return name, meaning, setting.kind.name.lower(), _default(setting), setting.valid_values()


def _default(setting: Setting) -> str:
    text = _quoted(format_value(setting.default)) + _in_units(setting)
    if setting.kafka_default is not None:
        text += f" (Kafka: {_quoted(setting.kafka_default or None)})"
    return text


def _quoted(text: str | None) -> str:
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


def _code(name: str | None) -> str:
    return f"`{name}`" if name else ""


def _in_units(setting: Setting) -> str:
    """The default in a unit that people read, where there is one."""
    value = setting.default
    if setting.kind not in (Kind.INT, Kind.LONG) or not isinstance(value, int):
        return ""
    if value in (INT_MAX, LONG_MAX):
        return " (no limit)"
    units: tuple[tuple[int, str], ...] = ()
    if setting.name.endswith("bytes"):
        units = _BYTE_UNITS
    elif setting.name.endswith(".ms"):
        units = _TIME_UNITS
    for size, unit in units:
        if value >= size and value % size == 0:
            return f" ({value // size} {unit})"
    return ""


def _table(last: str, rows: Sequence[Sequence[str]]) -> str:
    lines = [
        f"| name | meaning | type | default | valid | {last} |",
        "|---|---|---|---|---|---|",
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str], page: Callable[[], str], module: str) -> int:
    """Print a generated page, or write it to the file after `--write`."""
    if not arguments:
        sys.stdout.write(page())
        return 0
    if len(arguments) == 2 and arguments[0] == "--write":
        with open(arguments[1], "w", encoding="utf-8") as file:
            file.write(page())
        return 0
    sys.stderr.write(f"usage: python -m {module} [--write PATH]\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], document, "tidelog.config.document"))
