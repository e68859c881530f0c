"""The broker's log on stderr: one record, one line, whatever clients put into their names.

Client ids, group ids and topic names come from outside. A newline in one would forge a line, an
escape code would act on the terminal, a mark that turns the direction of text would hide some. So
everything that is not printable is written as an escape, here and nowhere else, and a line has a
largest length. A traceback keeps its lines, each indented, so that none can pass for a record.
"""

from __future__ import annotations

import logging
import sys

LINE_CHARACTERS_MAX = 2000
_TRACE_CHARACTERS_MAX = 20_000
_FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
_INDENT = "    "


class SafeFormatter(logging.Formatter):
    """Escapes and bounds what a record says."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(bounded(super().formatMessage(record), LINE_CHARACTERS_MAX))

    def formatException(self, ei: object) -> str:
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def printable(text: str) -> str:
    """The text with every character escaped that is not printable."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def bounded(text: str, characters_max: int) -> str:
    """The text, cut where it is too long, with a note of how long it was."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}... (cut, {len(text)} characters)"


def set_up_logging(level: str) -> None:
    """Log to stderr from here on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _indented(text: str) -> str:
    lines = bounded(text, _TRACE_CHARACTERS_MAX).split("\n")
    return "\n".join(_INDENT + printable(line) for line in lines)
