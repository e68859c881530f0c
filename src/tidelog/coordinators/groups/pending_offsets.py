"""Offsets that were committed in transactions which are still open.

They are kept by producer. When its transaction is committed they count as if they had been
committed where they stand in the log: what was committed outside after them, stays. When it is
aborted they never were.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue

_Key = tuple[str, str, int]


class PendingOffsets:
    """The offsets of one shard's groups in open transactions."""

    def __init__(self) -> None:
        # None where the key was written, or deleted, outside the transaction since then.
        self._by_producer: dict[int, dict[_Key, OffsetCommitValue | None]] = {}
        # Who has something pending for it, by group.
        self._by_group: dict[str, dict[_Key, set[int]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """An offset in a producer's transaction; the last one of a partition counts."""
        name = (key.group, key.topic, key.partition)
        self._by_producer.setdefault(producer_id, {})[name] = value
        self._by_group.setdefault(key.group, {}).setdefault(name, set()).add(producer_id)

    def overtake(self, key: OffsetCommitKey) -> None:
        """The offset was committed or deleted outside: that is newer than what is pending."""
        name = (key.group, key.topic, key.partition)
        for producer_id in self._by_group.get(key.group, {}).get(name, ()):
            self._by_producer[producer_id][name] = None

    def forget(self, key: OffsetCommitKey) -> None:
        """The offset was deleted, and what is pending with it."""
        name = (key.group, key.topic, key.partition)
        for producer_id in self._by_group.get(key.group, {}).pop(name, ()):
            held = self._by_producer[producer_id]
            del held[name]
            if not held:
                del self._by_producer[producer_id]
        if not self._by_group.get(key.group, True):
            del self._by_group[key.group]

    def end(self, producer_id: int) -> Iterator[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """Forget a producer's transaction: what it would commit."""
        ended = self._by_producer.pop(producer_id, {})
        for name in ended:
            group = self._by_group[name[0]]
            group[name].discard(producer_id)
            if not group[name]:
                del group[name]
            if not group:
                del self._by_group[name[0]]
        for name, value in ended.items():
            if value is not None:
                yield OffsetCommitKey(*name), value

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return (group_id, topic, partition) in self._by_group.get(group_id, ())

    def of_topic(self, topic: str) -> list[_Key]:
        """What is pending for partitions of a topic."""
        return [each for group in self._by_group.values() for each in group if each[1] == topic]

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """The partitions of which something is pending, with their topics."""
        return [(topic, partition) for _, topic, partition in self._by_group.get(group_id, ())]
