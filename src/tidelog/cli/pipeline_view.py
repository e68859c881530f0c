"""A running pipeline on the terminal: a table that is painted over, or a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from tidelog.cli.faults import paint

if TYPE_CHECKING:
    from tidelog.pipelines.run.reports import QueryReport

_REPAINT_S: Final = 0.5
_LINE_S: Final = 10.0
_COLOURS: Final = {"running": "32", "done": "32", "failed": "31", "waiting": "33"}
_HEADINGS: Final = (
    "TARGET", "STATE", "ROWS", "WRITTEN", "ROWS/S", "LAG", "LAG-S", "BATCH-MS", "BAD", "LATE",
)  # fmt: skip


class View:
    """Shows reports on stderr, where words go; `quiet` shows nothing but notes."""

    def __init__(self, pipeline: str, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._pipeline = pipeline
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._painted = 0
        self._next = 0.0

    def show(self, reports: Sequence[QueryReport]) -> None:
        """Show how the queries are doing, where it is time to."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + (_REPAINT_S if self._terminal else _LINE_S)
        self._draw(reports)

    def note(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def finish(self, reports: Sequence[QueryReport]) -> None:
        """The last state of all queries."""
        if not self._quiet:
            self._draw(reports)

    def _draw(self, reports: Sequence[QueryReport]) -> None:
        if self._terminal:
            self._repaint(reports)
        else:
            self._write_lines(reports)

    def _clear(self) -> None:
        if self._painted:
            self._stream.write(f"\x1b[{self._painted}A\x1b[J")
            self._painted = 0

    def _repaint(self, reports: Sequence[QueryReport]) -> None:
        rows = [list(_HEADINGS), *(_cells(report) for report in reports)]
        widths = [max(len(row[index]) for row in rows) for index in range(len(_HEADINGS))]
        self._clear()
        for number, row in enumerate(rows):
            cells = [
                cell.ljust(width) if index < 2 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            if number:
                cells[1] = paint(cells[1], _COLOURS.get(row[1], "0"), self._stream)
            self._stream.write("  ".join(cells) + "\n")
        self._stream.flush()
        self._painted = len(rows)

    def _write_lines(self, reports: Sequence[QueryReport]) -> None:
        for report in reports:
            cells = zip(_HEADINGS[1:], _cells(report)[1:], strict=True)
            words = " ".join(f"{name.lower()}={cell}" for name, cell in cells)
            self._stream.write(f"{self._pipeline}.{report.name} {words}\n")
        self._stream.flush()


def _cells(report: QueryReport) -> list[str]:
    lag = report.lag
    age = "-" if lag is None or lag.seconds is None else f"{lag.seconds:.1f}"
    return [
        report.name,
        str(report.state),
        f"{report.rows}",
        "-" if report.written is None else f"{report.written}",
        f"{report.rows_per_second:.0f}",
        "-" if lag is None else f"{lag.records}",
        age,
        f"{report.batch_ms}",
        f"{report.bad}",
        f"{report.late}",
    ]
