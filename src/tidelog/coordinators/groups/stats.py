"""What the coordinator of groups has done, counted; and what it holds, added up when asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.coordinators.groups.shard import GroupShard

# As the groups name themselves.
_KINDS = ("classic", "consumer")


@dataclass(slots=True)
class GroupStats:
    """Counters since the start."""

    rebalances: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_KINDS, 0))
    commits: int = 0
    expired_offsets: int = 0


@dataclass(slots=True)
class GroupCensus:
    """What some shards hold now."""

    groups: Counter[tuple[str, str]] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)
    offsets: int = 0

    @classmethod
    def of(cls, shards: Iterable[GroupShard]) -> GroupCensus:
        census = cls()
        for shard in shards:
            census.offsets += len(shard.offsets)
            for group in shard.table:
                census.groups[group.kind, str(group.state)] += 1
                census.members[group.kind] += len(group.members)
        return census
