"""Which brokers hold which replicas: Kafka's round robin.

The first replicas go round the brokers from a random one, so that leaders are spread evenly; the
others follow at a shift that changes whenever the round is complete, so that the partitions of one
broker have their followers on all others. Where brokers stand in several racks, neighbours in the
round are from different racks, and no rack has two replicas before every rack has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

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
    racks: Mapping[int, str] | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first.

    `brokers` is sorted and has at least `replication_factor` members; `racks` has all of them.
    """
    if racks is not None and len({racks[each] for each in brokers}) > 1:
        return _place_in_racks(brokers, partitions, replication_factor, start, racks)
    count = len(brokers)
    assert 0 < replication_factor <= count
    placed = []
    for first, shift in _turns(partitions, count, start):
        followers = (
            brokers[(first + 1 + (shift + nth) % (count - 1)) % count]
            for nth in range(replication_factor - 1)
        )
        placed.append((brokers[first], *followers))
    return placed


def lengthen(
    placed: Sequence[tuple[int, ...]],
    others: Sequence[int],
    replication_factor: int,
    racks: Mapping[int, str],
) -> list[tuple[int, ...]]:
    """The same with further replicas on other brokers, in racks that have none where there are any.

    `others` is sorted, and enough for what is missing.
    """
    longer = []
    for nth, replicas in enumerate(placed):
        chosen = list(replicas)
        turn = [others[(nth + place) % len(others)] for place in range(len(others))]
        while len(chosen) < replication_factor:
            used = {racks[each] for each in chosen}
            left = [each for each in turn if each not in chosen]
            chosen.append(min(left, key=lambda each: racks[each] in used))
        longer.append(tuple(chosen))
    return longer


def _turns(partitions: range, count: int, start: Start) -> Iterator[tuple[int, int]]:
    """For each partition the place of its first broker, and how far from it the others begin."""
    shift = start.shift
    for partition in partitions:
        if partition > 0 and partition % count == 0:
            shift += 1
        yield (partition + start.first) % count, shift


def _place_in_racks(
    brokers: Sequence[int],
    partitions: range,
    replication_factor: int,
    start: Start,
    racks: Mapping[int, str],
) -> list[tuple[int, ...]]:
    round_ = alternated(brokers, racks)
    count, rack_count = len(round_), len({racks[each] for each in round_})
    assert 0 < replication_factor <= count
    placed = []
    for first, shift in _turns(partitions, count, start):
        chosen = [round_[first]]
        nth = 0
        while len(chosen) < replication_factor:
            broker = round_[(first + 1 + (shift * rack_count + nth) % (count - 1)) % count]
            used = {racks[each] for each in chosen}
            if broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
                chosen.append(broker)
            nth += 1
        placed.append(tuple(chosen))
    return placed


def alternated(brokers: Iterable[int], racks: Mapping[int, str]) -> list[int]:
    """The brokers, one of each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks[broker], []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


class Loads:
    """How many replicas each broker has, for choosing where one more goes."""

    def __init__(self, racks: Mapping[int, str]) -> None:
        self._racks = racks
        self._counts: Counter[int] = Counter(dict.fromkeys(racks, 0))

    def add(self, broker: int) -> None:
        self._counts[broker] += 1

    def choose(self, taken: Sequence[int], racks_of_all: Mapping[int, str]) -> int | None:
        """The broker for a further replica: in a rack that has fewest of them, and with the fewest
        replicas itself; None where every broker has one."""
        used = Counter(racks_of_all.get(each, "") for each in taken)
        free = [each for each in self._racks if each not in taken]
        if not free:
            return None
        chosen = min(free, key=lambda each: (used[self._racks[each]], self._counts[each], each))
        self.add(chosen)
        return chosen
