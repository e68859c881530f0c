"""Which partition a record goes to, exactly as Java's default partitioner decides.

A record with a key (an empty one too) goes to `toPositive(murmur2(key)) % partitions`, so that
producers in every language agree. A record without a key sticks to one partition until a batch's
worth of bytes has gone there and then moves to another at random, which fills batches instead of
sprinkling records (KIP-794, without its weighing by queue length).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog._kernels.records import murmur2
from tidelog.host.random import Random


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a keyed record among `partition_count`, whether or not it has a leader."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """The partition of records without a key, for one topic."""

    __slots__ = ("_bytes", "_partition", "_random", "_switch_bytes")

    def __init__(self, random: Random, switch_bytes: int) -> None:
        self._random = random
        self._switch_bytes = switch_bytes
        self._partition = -1
        self._bytes = 0

    def choose(self, available: Sequence[int], size_bytes: int) -> int:
        """The partition for a record of `size_bytes`, among those that have a leader."""
        if self._bytes >= self._switch_bytes or self._partition not in available:
            self._move(available)
        self._bytes += size_bytes
        return self._partition

    def _move(self, available: Sequence[int]) -> None:
        others = [partition for partition in available if partition != self._partition]
        if others:
            self._partition = others[self._random.below(len(others))]
        self._bytes = 0
