"""What a reader of committed records is given, asked for by hand: Fetch 11 with its list of aborts.

Like `Wire` it shares no code with the broker under test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.compat.wire import (
    SETTLE_TIMEOUT_S,
    Fetched,
    Record,
    StoredBatch,
    Wire,
    decode_records,
    read_headers,
)

_TRANSACTIONAL, _CONTROL = 16, 32
# The key of a marker: version 0, then its kind.
_COMMITS = b"\0\0\0\1"


@dataclass(frozen=True)
class CommittedView:
    """A partition up to its last stable offset."""

    stable_offset: int
    high_watermark: int
    values: tuple[bytes | None, ...]
    # Of the markers, in order: True for a commit.
    markers: tuple[bool, ...]


def _batches(fetched: Fetched) -> Iterator[tuple[StoredBatch, list[Record]]]:
    records = iter(decode_records(fetched.data))
    for batch in read_headers(fetched.data):
        yield batch, [next(records) for _ in range(batch.record_count)]


def committed_records(fetched: Fetched) -> tuple[int, list[bytes | None]]:
    """Where to read on, and the values up to there that were not aborted."""
    aborts = sorted(fetched.aborted, key=lambda abort: abort[1])
    dropped: set[int] = set()
    values: list[bytes | None] = []
    end = 0
    for batch, content in _batches(fetched):
        end = batch.last_offset + 1
        while aborts and aborts[0][1] <= batch.last_offset:
            dropped.add(aborts.pop(0)[0])
        if batch.attributes & _CONTROL:
            dropped.discard(batch.producer_id)
        elif not (batch.attributes & _TRANSACTIONAL and batch.producer_id in dropped):
            values += [record.value for record in content]
    return end, values


class TransactionWire:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def view(self, topic: str, partition: int = 0) -> CommittedView:
        """The records that are committed: neither aborted nor in an open transaction."""
        fetched = self._wire.fetch_committed(topic, partition)
        markers = tuple(
            content[0].key == _COMMITS
            for batch, content in _batches(fetched)
            if batch.attributes & _CONTROL
        )
        _, values = committed_records(fetched)
        return CommittedView(fetched.stable_offset, fetched.high_watermark, tuple(values), markers)

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return list(self.view(topic, partition).values)

    def until(
        self, topic: str, holds: Callable[[CommittedView], bool], partition: int = 0
    ) -> CommittedView:
        """The first view that `holds`: markers are written after the answer to the end."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while not holds(found := self.view(topic, partition)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not so after {SETTLE_TIMEOUT_S:.0f} s: {found}")
            time.sleep(0.02)
        return found

    def until_stable(self, topic: str, partition: int = 0) -> CommittedView:
        """Once no transaction is open in it."""
        return self.until(topic, lambda view: view.stable_offset == view.high_watermark, partition)
