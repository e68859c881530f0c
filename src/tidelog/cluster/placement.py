"""Which brokers hold which replicas: Kafka's round robin without racks.

The first replicas go round the brokers from a random one, so that leaders are spread evenly; the
others follow at a shift that changes whenever the round is complete, so that the partitions of one
broker have their followers on all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.host.random import Random


@dataclass(slots=True)
class Start:
    """Where the round begins: an index into the brokers, and the shift of the second replicas."""

    first: int
    shift: int


def random_start(brokers: Sequence[int], random: Random) -> Start:
    """The start for a new topic."""
    return Start(random.below(len(brokers)), random.below(len(brokers)))


def start_after(brokers: Sequence[int], preferred_leader: int) -> Start:
    """The start for further partitions of a topic whose partition 0 prefers this leader."""
    first = next((i for i, broker in enumerate(brokers) if broker >= preferred_leader), 0)
    return Start(first, first)


def place(
    brokers: Sequence[int],
    partitions: range,
    replication_factor: int,
    start: Start,
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first.

    `brokers` is sorted and has at least `replication_factor` members.
    """
    count = len(brokers)
    assert 0 < replication_factor <= count
    shift = start.shift
    placed = []
    for partition in partitions:
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start.first) % count
        followers = (
            brokers[(first + 1 + (shift + nth) % (count - 1)) % count]
            for nth in range(replication_factor - 1)
        )
        placed.append((brokers[first], *followers))
    return placed
