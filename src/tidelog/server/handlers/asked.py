"""What a request asks for, each thing once.

A request may name the same topic, partition, group or resource any number of times, and an answer
can be a thousand times as large as the name that it answers. So every handler goes through here and
answers each thing once, where Kafka keeps such names in a set or a map. Of two entries for the same
thing the last counts, as in Kafka's maps.

The functions are generators, as handlers of many things are: see `server/pieces.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

# What handlers ask for is named in their code: there are few.
_getter = cache(attrgetter)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def distinct(names: Iterable[K]) -> Generator[int, None, list[K]]:
    """The names, each once, in the order of the request."""
    found: dict[K, None] = {}
    for name in names:
        found[name] = None
        yield 1
    return list(found)


def distinct_by(
    entries: Iterable[T], *attributes: str
) -> Generator[int, None, tuple[list[T], set[Any]]]:
    """The entries, one for each value of `attributes`, and the values that came more than once."""
    key_of = _getter(*attributes)
    found: dict[Any, T] = {}
    repeated: set[Any] = set()
    for entry in entries:
        key = key_of(entry)
        if key in found:
            repeated.add(key)
        found[key] = entry
        yield 1
    return list(found.values()), repeated


def by_topic(
    topics: Iterable[T],
    names: tuple[str, ...],
    partition: str | None,
    repeated: set[tuple[Any, int]] | None = None,
) -> Generator[int, None, list[tuple[T, dict[int, Any]]]]:
    """The topics, each once, with their partitions by index.

    `names` are the attributes that name a topic, `partition` the one that holds the index of a
    partition, or None where the request lists bare indexes (then in `partition_indexes`).
    Partitions that came more than once are put into `repeated`, where that is given.
    """
    key_of = _getter(*names)
    index_of = None if partition is None else _getter(partition)
    parts_of = _getter("partition_indexes" if partition is None else "partitions")
    found: dict[Any, tuple[T, dict[int, Any]]] = {}
    for topic in topics:
        key = key_of(topic)
        partitions = found.setdefault(key, (topic, {}))[1]
        for part in parts_of(topic):
            index = part if index_of is None else index_of(part)
            if repeated is not None and index in partitions:
                repeated.add((key, index))
            partitions[index] = part
            yield 1
        yield 1
    return list(found.values())
