"""The groups of one partition of `__consumer_offsets`: a pure state machine.

Handlers look at the state and return an `Outcome`: an answer and records. Whoever owns the shard
appends the records and gives them back to `replay`, which alone changes what is kept; the same
calls, fed from the log, load a shard. Beside it are the volatile parts of groups: who waits for a
rebalance, and the deadlines in `timers`. There is no clock here and nothing is awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from tidelog.coordinators.classic_group import ClassicGroup, GroupState
from tidelog.coordinators.classic_joins import Joins
from tidelog.coordinators.classic_members import Members
from tidelog.coordinators.group_offsets import Commit, Committer, Offsets
from tidelog.coordinators.group_records import (
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.rebalances import Rebalances
from tidelog.coordinators.settings import Caller, GroupSettings, Now
from tidelog.coordinators.timers import TimerQueue
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.random import Random
from tidelog.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.list_groups import ListedGroup
from tidelog.protocol.messages.sync_group import SyncGroupRequest

CLASSIC = "classic"


class GroupShard:
    """The coordinator of some groups."""

    def __init__(self, settings: GroupSettings, random: Random) -> None:
        self.timers: TimerQueue[Callable[[Now], Outcome]] = TimerQueue()
        self.groups: dict[str, ClassicGroup] = {}
        rebalances = Rebalances(settings, self.timers)
        self._joins = Joins(self.groups, settings, rebalances, random)
        self._members = Members(self.groups, rebalances)
        self.offsets = Offsets(self.groups, settings, rebalances)

    # Members

    def join(self, request: JoinGroupRequest, version: int, caller: Caller, now: Now) -> Outcome:
        return self._joins.join(request, version, caller, now)

    def sync(self, request: SyncGroupRequest, now: Now) -> Outcome:
        return self._members.sync(request, now)

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> Outcome:
        return Outcome(self._members.heartbeat(request, now))

    def leave(self, request: LeaveGroupRequest, version: int, now: Now) -> Outcome:
        return self._members.leave(request, version, now)

    # Offsets

    def commit(
        self, group_id: str, committer: Committer, commits: Sequence[Commit], now: Now,
        retention_ms: int = -1,
    ) -> Outcome:  # fmt: skip
        """The answer is a code for each commit."""
        self.offsets.check_committer(group_id, committer, now)
        records, codes = self.offsets.commit(group_id, commits, retention_ms, now)
        return Outcome(codes, records)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> Outcome:
        records, codes = self.offsets.delete(group_id, partitions)
        return Outcome(codes, records)

    def delete_group(self, group_id: str) -> Outcome:
        return Outcome(None, self.offsets.delete_group(group_id))

    def topic_deleted(self, topic: str, topic_id: UUID) -> Outcome:
        return Outcome(None, self.offsets.topic_deleted(topic, topic_id))

    def forget_missing_topics(self, topic_ids: Mapping[str, UUID]) -> Outcome:
        return Outcome(None, self.offsets.forget_missing_topics(topic_ids))

    def expire_offsets(self, now: Now) -> Outcome:
        return Outcome(None, self.offsets.expire(now))

    # Looking at groups

    def list_groups(self) -> Iterator[ListedGroup]:
        for group in self.groups.values():
            yield ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        # Between generations there is no protocol whose metadata and assignments could be shown.
        shown = group.state is GroupState.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if shown else "",
            members=[
                DescribedGroupMember(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host,
                    each.metadata_for(group.protocol) if shown else b"",
                    each.assignment if shown else b"",
                )
                for each in group.members.values()
            ],
        )

    # Time and replay

    def due(self, now: Now) -> Iterator[Outcome]:
        """What became due; each outcome must be dealt with before the next is asked for."""
        for _, action in self.timers.due(now.ms):
            yield action(now)

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of the log, in its order."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._members.replay(key, value)

    def loaded(self, now: Now) -> Outcome:
        """The whole log has been replayed."""
        return Outcome(None, self._members.loaded(now))

    def abandon(self, error: KafkaError) -> None:
        """Another broker has these groups now: tell everybody who waits to look for it."""
        for group in self.groups.values():
            for member in group.members.values():
                for reply in (member.join_reply, member.sync_reply):
                    if reply is not None:
                        reply.fail(error)
