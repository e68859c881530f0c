"""The groups of a shard, of both protocols. A group id names one group; the newer record counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.coordinators.groups.classic.group import ClassicGroup
from tidelog.coordinators.groups.consumer.group import ConsumerGroup


@dataclass(slots=True)
class GroupTable:
    """Groups by id."""

    classic: dict[str, ClassicGroup] = field(default_factory=dict)
    consumer: dict[str, ConsumerGroup] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.classic) + len(self.consumer)

    def __iter__(self) -> Iterator[ClassicGroup | ConsumerGroup]:
        yield from self.classic.values()
        yield from self.consumer.values()

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self.consumer.get(group_id) or self.classic.get(group_id)
