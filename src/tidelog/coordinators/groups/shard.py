"""The groups of one partition of `__consumer_offsets`: a pure state machine.

Handlers look at the state and return an `Outcome`: an answer and records. Whoever owns the shard
appends the records and gives them back to `replay`, which alone changes what is kept; the same
calls, fed from the log, load a shard. Beside it are the volatile parts of groups: who waits for a
rebalance, and the deadlines in `timers`. There is no clock here and nothing is awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tidelog.cluster.changes import Change, TopicDeleted
from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.beats import Beat, ConsumerBeat
from tidelog.coordinators.groups.classic.group import ClassicGroup, GroupState
from tidelog.coordinators.groups.classic.joins import Join, Joins
from tidelog.coordinators.groups.classic.members import Members
from tidelog.coordinators.groups.classic.rebalances import Rebalances
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.consumer.changes import ConsumerReplay
from tidelog.coordinators.groups.consumer.classic_members import ClassicMembers
from tidelog.coordinators.groups.consumer.describe import describe
from tidelog.coordinators.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
)
from tidelog.coordinators.groups.consumer.heartbeats import ConsumerHeartbeats
from tidelog.coordinators.groups.consumer.members import ConsumerMembers
from tidelog.coordinators.groups.consumer.patterns import Patterns
from tidelog.coordinators.groups.consumer.rebalancing import Rebalancing
from tidelog.coordinators.groups.consumer.records import ConsumerGroupMetadataValue
from tidelog.coordinators.groups.migration import Migration
from tidelog.coordinators.groups.offsets import Offsets
from tidelog.coordinators.groups.records import (
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.coordinators.groups.settings import AgeOf, Caller, GroupSettings
from tidelog.coordinators.groups.stats import GroupStats
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.timers import Timer, TimerKind, Timers
from tidelog.coordinators.groups.tombstones import group_end
from tidelog.coordinators.outcome import InTransaction, Outcome
from tidelog.coordinators.shares import Shares
from tidelog.coordinators.timers import Now, TimerQueue
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.random import Random
from tidelog.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.list_groups import ListedGroup
from tidelog.protocol.messages.sync_group import SyncGroupRequest


class GroupShard:
    """The coordinator of some groups."""

    def __init__(
        self,
        settings: GroupSettings,
        random: Random,
        image: Callable[[], MetadataImage] = MetadataImage,
        stats: GroupStats | None = None,
        age_of: Callable[[], AgeOf] = lambda: lambda _: 0,
    ) -> None:
        self._settings = settings
        self._image = image
        self._stats = stats or GroupStats()
        self._age_of = age_of
        self._is_loaded = False
        self.timers: Timers = TimerQueue()
        self.table = GroupTable(self.timers)
        self._shares = Shares(lambda group_id: self.table.find(group_id) is not None)
        rebalances = Rebalances(self.table, settings, self.timers, self._stats)
        self._joins = Joins(self.table, settings, rebalances, random)
        self._members = Members(self.table, settings, rebalances)
        self.offsets = Offsets(self.table, settings, rebalances)
        self._migration = migration = Migration(self.table, settings, rebalances, image)
        self._consumer_members = ConsumerMembers(
            self.table, settings, self.timers, image, migration.downgrade
        )
        patterns = Patterns(self.table, self.timers, image)
        rebalancing = Rebalancing(self.table, settings, self._consumer_members, patterns)
        self._heartbeats = ConsumerHeartbeats(settings, rebalancing, random)
        self._classic_members = ClassicMembers(rebalancing, random, image, migration)
        self._consumer_replay = ConsumerReplay(self.table, self.timers)
        self._on_timer: dict[TimerKind, Callable[[Timer, Now], Outcome]] = {
            TimerKind.CLASSIC_JOIN: rebalances.joins_due,
            TimerKind.CLASSIC_SYNC: rebalances.syncs_due,
            TimerKind.CLASSIC_SESSION: rebalances.session_due,
            TimerKind.CONSUMER_SESSION: self._consumer_members.fence_late,
            TimerKind.CONSUMER_REVOCATION: self._consumer_members.fence_late,
            TimerKind.CONSUMER_REJOIN: self._consumer_members.fence_late,
            TimerKind.CONSUMER_SYNC: self._consumer_members.fence_late,
            TimerKind.CONSUMER_PATTERNS: patterns.due,
            TimerKind.OFFSETS_EXPIRY: self._expiry_due,
        }

    # Members

    def join(self, request: JoinGroupRequest, version: int, caller: Caller, now: Now) -> Outcome:
        join = Join(request, version, caller, now)
        self._joins.check_request(join)
        self._check_room(request.group_id, caller.user)
        group = self.table.consumer(request.group_id)
        if group is not None and group.members:
            return self._classic_members.join(group, join)
        return self._joins.join(join)

    def sync(self, request: SyncGroupRequest, now: Now) -> Outcome:
        group = self.table.consumer(request.group_id)
        if group is not None:
            return self._classic_members.sync(group, request, now)
        return self._members.sync(request, now)

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> Outcome:
        group = self.table.consumer(request.group_id)
        if group is not None:
            return Outcome(self._classic_members.heartbeat(group, request, now))
        return Outcome(self._members.heartbeat(request, now))

    def hear(self, beat: Beat | ConsumerBeat, now: Now) -> bool:
        """A heartbeat like the one before: the session goes on, where the answer is the same.

        False where it may not be: then nothing has changed, and the request is to be handled.
        """
        if isinstance(beat, Beat):
            group = self.table.classic(beat.group_id)
            return group is not None and self._members.hear(group, beat, now)
        consumer_group = self.table.consumer(beat.group_id)
        return consumer_group is not None and self._heartbeats.hear(consumer_group, beat, now)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often the members of a consumer group are to beat."""
        return self._heartbeats.interval_ms(self._image(), group_id)

    def leave(self, request: LeaveGroupRequest, version: int, now: Now) -> Outcome:
        group = self.table.consumer(request.group_id)
        if group is not None:
            return self._consumer_members.remove(group, request, version, now)
        return self._members.leave(request, version, now)

    # Members of consumer groups

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int, caller: Caller, now: Now
    ) -> Outcome:
        self._heartbeats.check(request, version)
        group = self.table.consumer(request.group_id)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._consumer_members.leave(
                self._require_consumer(group, request.group_id), request, now
            )
        if group is None and request.member_epoch == JOIN_EPOCH:
            self._check_room(request.group_id, caller.user)
            return self._join_anew(request, caller, now)
        if group is None and self.table.find(request.group_id) is None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found."
            )
        group = self._require_consumer(group, request.group_id)
        return self._heartbeats.heartbeat(request, group, caller, now)

    def _join_anew(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Now
    ) -> Outcome:
        """The first member of a group, or the first of a classic one that uses this protocol."""
        group_id = request.group_id
        before = self.table.classic(group_id)
        group, records = ConsumerGroup(group_id), []
        if before is not None:
            records = group_end(before)
            if before.state is not GroupState.EMPTY:
                group, records = self._migration.upgrade(before)
        outcome = self._heartbeats.heartbeat(request, group, caller, now)
        outcome.records[:0] = records
        if before is not None and before.state is not GroupState.EMPTY:
            before.dismiss(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
            outcome.then = self._consumer_members.upgraded(group, outcome.then, now)
        return outcome

    def _require_consumer(self, group: ConsumerGroup | None, group_id: str) -> ConsumerGroup:
        if group is None:
            kind = "not found" if self.table.find(group_id) is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")
        return group

    def _check_room(self, group_id: str, user: str) -> None:
        """KafkaError for a group that would be one too many."""
        if self.table.find(group_id) is not None:
            return
        own = self._settings.groups_of_user_max
        if user and not self._shares.take(user, group_id, own):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"{user} has {own} groups here already (groups.max.per.user);"
                " delete some, or wait until their offsets expire",
            )
        most = self._settings.groups_max
        if len(self.table) >= most:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"there are {most} groups here already (groups.max.per.partition);"
                " delete some, or wait until their offsets expire",
            )

    # Offsets

    def commit(
        self, group_id: str, committer: Committer, commits: Sequence[Commit], now: Now,
        retention_ms: int = -1,
    ) -> Outcome:  # fmt: skip
        """The answer is a code for each commit."""
        self.offsets.check(group_id, committer, commits, now)
        self._check_room(group_id, committer.user)
        records, codes = self.offsets.commit(group_id, commits, retention_ms, now)
        return Outcome(codes, records)

    def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        commits: Sequence[Commit],
        transaction: InTransaction,
        now: Now,
    ) -> Outcome:
        """As `commit`, for offsets that count once the transaction is committed."""
        self.offsets.check(group_id, committer, commits, now)
        self._check_room(group_id, committer.user)
        records, codes = self.offsets.commit(group_id, commits, -1, now)
        return Outcome(codes, records, transaction=transaction)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> Outcome:
        records, codes = self.offsets.delete(group_id, partitions)
        return Outcome(codes, records)

    def delete_group(self, group_id: str) -> Outcome:
        return Outcome(None, self.offsets.delete_group(group_id))

    def changed(self, changes: Iterable[Change]) -> Iterator[Outcome]:
        """Topics are gone, and what was committed for them."""
        for change in changes:
            assert isinstance(change, TopicDeleted)
            yield Outcome(None, self.offsets.topic_deleted(change.topic, change.topic_id))

    def expire_offsets(self, age_ms: AgeOf) -> Outcome:
        before = len(self.offsets)

        def appended() -> None:
            self._stats.expired_offsets += before - len(self.offsets)

        return Outcome(None, self.offsets.expire(age_ms), appended)

    def _expiry_due(self, timer: Timer, now: Now) -> Outcome:
        self.timers.schedule(timer, now.ms + self._settings.offsets_expiry_interval_ms)
        return self.expire_offsets(self._age_of())

    # Looking at groups

    def list_groups(self) -> Iterator[ListedGroup]:
        for group in self.table:
            yield ListedGroup(group.group_id, group.protocol_type or "", group.state, group.kind)

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.table.classic(group_id)
        if group is None:
            kind = "not found" if self.table.find(group_id) is None else "is not a classic group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")
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
                    each.assignment,
                )
                for each in group.members.values()
            ],
        )

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        group = self._require_consumer(self.table.consumer(group_id), group_id)
        return describe(group, self._image(), self._settings.consumer_assignors[0])

    # Time and replay

    def due(self, now: Now) -> Iterator[Outcome]:
        """What became due; each outcome must be dealt with before the next is asked for."""
        for timer in self.timers.due(now.ms):
            yield self._on_timer[timer.kind](timer, now)

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of the log, in its order."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value)
            self._stats.commits += self._is_loaded and value is not None
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._members.replay(key, value, is_loading=not self._is_loaded)
        else:
            self._consumer_replay.replay(key, value)
            is_epoch = self._is_loaded and isinstance(value, ConsumerGroupMetadataValue)
            self._stats.rebalances[ConsumerGroup.kind] += is_epoch
        if (
            value is None
            and self.table.find(key.group) is None
            and self.offsets.of_group(key.group)
        ):
            # An empty group changed its protocol: its offsets need one that can expire.
            self.table.put(ClassicGroup(key.group))

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:
        """Apply one record of a producer's transaction: an offset, to no effect as yet."""
        key, value = record.key, record.value
        assert isinstance(key, OffsetCommitKey), f"{key} in a transaction"
        assert value is None or isinstance(value, OffsetCommitValue)
        self.offsets.replay_pending(producer_id, key, value)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def loaded(self, now: Now) -> Iterator[Outcome]:
        """The whole log has been replayed: members must show that they live from now on."""
        self._is_loaded = True
        self._consumer_members.loaded(now)
        expiry_ms = now.ms + self._settings.offsets_expiry_interval_ms
        self.timers.schedule(Timer(TimerKind.OFFSETS_EXPIRY), expiry_ms)
        yield Outcome(None, self._members.loaded(now))
        # Topics may have gone while nobody could hear of it.
        ids = {name: topic.topic_id for name, topic in self._image().topics.items()}
        yield Outcome(None, self.offsets.forget_missing_topics(ids))

    def abandon(self, error: KafkaError) -> None:
        """Another broker has these groups now: tell everybody who waits to look for it."""
        for group in self.table:
            group.end(error)
