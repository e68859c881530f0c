"""What `tidelog produce` says of its records: while it runs, at its end, and when it is stopped.

A record is delivered once the broker has acknowledged it. One that was sent and never answered may
or may not be stored; it is counted apart, because to send it again may store it twice.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from tidelog.cli.common import say
from tidelog.cli.faults import CliError, explain, show
from tidelog.cli.produce_resume import SentLines, how_to_go_on
from tidelog.client.batching import Batch, Delivery
from tidelog.client.blocking_producer import Producer

_PROGRESS_SECONDS = 0.2
_NOTICE = b"\ninterrupted: waiting for the broker's answers; press Ctrl-C again to stop at once\n"


class Report:
    """Counts what became of records, and says so: a moving line on a terminal, then a summary."""

    def __init__(self, topic: str, options: dict[str, Any]) -> None:
        self._topic = topic
        self._json_lines = options["output"] == "json"
        self._quiet = options["quiet"]
        self._acknowledged = options["acks"] != "0"
        self._live = sys.stderr.isatty() and not sys.stdin.isatty() and not self._quiet
        self._taken = 0
        self._delivered = 0
        self._bytes = 0
        self._failed = 0
        self._unsure = 0
        self._error: Batch | None = None
        # None where the input is one record, and so nothing is left to go on with.
        is_whole = options["value"] is not None or options["source"] == "raw"
        self._lines = None if is_whole else SentLines(options["skip_lines"])
        self._began = -1.0
        self._shown = 0.0

    def taken(self, producer: Producer, line: int, delivery: Delivery) -> None:
        """Count a record that the producer has taken."""
        self._taken += 1
        if self._lines is not None:
            self._lines.sent(line, delivery)
        if self._live:
            now = producer.cluster.clock.monotonic()
            if self._began < 0:
                self._began = now
            if now - self._shown >= _PROGRESS_SECONDS:
                self._shown = now
                rate = self._delivered / max(now - self._began, 0.001)
                text = f"{self._delivered:,} records, {self._bytes / 1e6:,.1f} MB, {rate:,.0f}/s"
                sys.stderr.write(f"\r\x1b[K{text}")
                sys.stderr.flush()

    def completed(self, batches: list[Batch]) -> None:
        """Count batches that were delivered or given up."""
        for batch in batches:
            if batch.error is not None:
                self._failed += len(batch.records)
                self._unsure += len(batch.records) if batch.maybe_stored else 0
                self._error = self._error or batch
                continue
            self._delivered += len(batch.records)
            if self._lines is not None:
                self._lines.delivered(batch)
            self._bytes += batch.size_bytes
            if self._json_lines:
                self._print(batch)

    def abandoned(self, producer: Producer) -> None:
        """Count what the producer still holds as failed, because nobody waits for it any more."""
        self.completed(producer.core.take_completed())
        left = self._taken - self._delivered - self._failed
        self._failed += left
        self._unsure += max(left - producer.core.unsent_records, 0)

    def finish(self, fault: CliError | None = None) -> None:
        """Say the summary; CliError where records were not delivered or `fault` is given."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
        fault = fault or self._failure()
        if fault is not None or self._failed:
            say(self._counts())
        elif not self._quiet:
            say(f"{_records(self._delivered)} sent to {self._topic}")
        if fault is not None:
            hints = [each for each in (fault.hint, *self._how_to_go_on()) if each]
            raise CliError(fault.format_message(), "\n".join(hints), fault.status)

    def interrupted(self, fault: CliError | None = None) -> None:
        """Say the summary of a run that was stopped before its input ended."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
        for words in (f"interrupted: {self._counts()}", *self._how_to_go_on()):
            say(words)
        cause = fault or self._failure()
        if cause is not None:
            show(cause)

    def _how_to_go_on(self) -> list[str]:
        lines = 0 if self._lines is None else self._lines.delivered_lines
        return [how_to_go_on(lines)] if lines else []

    def _counts(self) -> str:
        verb = "delivered" if self._acknowledged else "sent without acknowledgement"
        parts = [f"{_records(self._delivered)} {verb} to {self._topic}"]
        if self._unsure:
            parts.append(f"{self._unsure:,} sent but not acknowledged (they may be stored)")
        if self._failed > self._unsure:
            parts.append(f"{self._failed - self._unsure:,} not delivered")
        return ", ".join(parts)

    def _failure(self) -> CliError | None:
        if self._error is None or self._error.error is None:
            return None
        cause = explain(self._error.error)
        outcome = "not acknowledged" if self._unsure else "not delivered"
        message = f"{self._failed:,} {outcome}: {cause.format_message()}"
        return CliError(message, cause.hint, cause.status)

    def _print(self, batch: Batch) -> None:
        import json

        try:
            for index, record in enumerate(batch.records):
                entry = {
                    "topic": batch.partition.topic,
                    "partition": batch.partition.partition,
                    "offset": batch.base_offset + index if batch.base_offset >= 0 else None,
                    "timestamp": record.timestamp
                    if batch.append_time_ms < 0
                    else batch.append_time_ms,
                }
                sys.stdout.write(json.dumps(entry, separators=(",", ":")) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # Nobody reads the offsets any more; the records are delivered all the same.
            self._json_lines = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _records(count: int) -> str:
    return f"{count:,} {'record' if count == 1 else 'records'}"


class Interrupt:
    """Ctrl-C in two steps: the first ends the reading, the second the wait for answers.

    The first one raises KeyboardInterrupt only where input is waited for (`while_waiting`), so that
    it never breaks into the producer, whose counts would then be wrong.
    """

    def __init__(self) -> None:
        self.requested = False
        self.repeated = False
        self._waiting = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def while_waiting(self) -> Iterator[None]:
        """Around a wait for input, which the first Ctrl-C ends."""
        self._waiting = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.repeated, self.requested = self.requested, True
        if self.repeated or self._waiting:
            raise KeyboardInterrupt
        # A handler may run amid a write to `sys.stderr`, which must not be entered twice.
        os.write(2, _NOTICE)
