"""How `tidelog produce` goes on with an input that it did not send to its end.

A batch is remembered by its first line until it is delivered. So whatever became of the others,
every line before the first of those that remain is delivered.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys

from tidelog.client.batching import Batch, Delivery
from tidelog.model import TopicPartition


class SentLines:
    """Up to which line the input is delivered."""

    def __init__(self, skipped: int) -> None:
        self._last = skipped
        # The first line of each batch that is not delivered, or only in part.
        self._first_lines: dict[tuple[TopicPartition, int], int] = {}

    def sent(self, line: int, delivery: Delivery) -> None:
        self._last = line
        batch = delivery.batch
        # A slow send may see its own batch through before it returns.
        if not batch.done or batch.error is not None:
            self._first_lines.setdefault((batch.partition, batch.order[0]), line)

    def delivered(self, batch: Batch) -> None:
        if len(batch.order) == 1:
            self._first_lines.pop((batch.partition, batch.order[0]), None)

    @property
    def delivered_lines(self) -> int:
        """How many lines from the start of the input need not be sent again."""
        return min(self._first_lines.values(), default=self._last + 1) - 1


def how_to_go_on(lines: int) -> str:
    """What to type to send the lines behind these."""
    source = _input_file()
    if source is None:
        return f"to go on: send the same input again with --skip-lines {lines}"
    arguments = [*_without_skip(sys.argv[1:]), "--skip-lines", str(lines)]
    return f"to go on: tidelog {shlex.join(arguments)} < {shlex.quote(source)}"


def _input_file() -> str | None:
    """The file that stdin is read from; None where it is not one that can be read again."""
    try:
        if not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            return None
        path = os.readlink(f"/proc/self/fd/{sys.stdin.fileno()}")
    except (OSError, ValueError):
        return None
    return path if os.path.exists(path) else None


def _without_skip(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    follows = False
    for each in arguments:
        if follows:
            follows = False
        elif each == "--skip-lines":
            follows = True
        elif not each.startswith("--skip-lines="):
            kept.append(each)
    return kept
