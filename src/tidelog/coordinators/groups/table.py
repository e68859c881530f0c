"""The groups of a shard. A group id names one group, classic or consumer; the newer record counts.

The table alone creates, replaces and removes groups. A group that goes takes its timers with it,
and whoever waits for it is told that it is not a member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from tidelog.coordinators.groups.classic.group import ClassicGroup
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.timers import Timers
from tidelog.errors import ErrorCode, KafkaError

Group = ClassicGroup | ConsumerGroup
G = TypeVar("G", ClassicGroup, ConsumerGroup)


class GroupTable:
    """Groups by id."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def find(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if type(group) is ClassicGroup else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if type(group) is ConsumerGroup else None

    def classic_groups(self) -> list[ClassicGroup]:
        return [each for each in self if isinstance(each, ClassicGroup)]

    def consumer_groups(self) -> list[ConsumerGroup]:
        return [each for each in self if isinstance(each, ConsumerGroup)]

    def put(self, group: G) -> G:
        """The group has its id from now on; another one that had it is gone."""
        if self._groups.get(group.group_id) is not group:
            self.remove(group.group_id)
            self._groups[group.group_id] = group
        return group

    def remove(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        for timer in group.timers():
            self._timers.cancel(timer)
        group.end(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
