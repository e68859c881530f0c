"""Committed offsets: who may commit, what is remembered, and when it is forgotten.

A commit names the generation that it belongs to; one of an older generation, of an unknown or a
replaced member is refused, so a member that slept through a rebalance cannot move what others own
now (for consumer groups see `consumer/commits`). A consumer that assigns partitions to itself
commits with generation -1, which a group with members refuses.

Offsets are kept while their group lives. They go when the group has been empty for
`offsets.retention.minutes`; those of a group that never had members, or of a topic that the members
do not consume, that long after their commit. Only time in which the broker ran counts, whatever the
wall clock shows. An offset of a topic that was deleted, or created anew under its name, is gone:
the topic's id is kept with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from tidelog.coordinators.groups.classic.group import ClassicGroup, GroupState
from tidelog.coordinators.groups.classic.rebalances import Rebalances
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.consumer.commits import (
    check_commit,
    check_commit_in_transaction,
    check_fetch,
)
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.pending_offsets import PendingOffsets
from tidelog.coordinators.groups.records import (
    CoordinatorRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.coordinators.groups.settings import AgeOf, GroupSettings
from tidelog.coordinators.groups.table import Group, GroupTable
from tidelog.coordinators.groups.tombstones import group_end, offset_end
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_TOPIC_ID

Records = list[CoordinatorRecord]
GroupOffsets = dict[str, dict[int, OffsetCommitValue]]
_NO_OFFSETS: Final[GroupOffsets] = {}
_VERSION_WITH_EPOCHS: Final = 9


class Offsets:
    """The committed offsets of one shard's groups."""

    def __init__(self, groups: GroupTable, settings: GroupSettings, rebalances: Rebalances) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalances = rebalances
        self._offsets: dict[str, GroupOffsets] = {}
        self.pending = PendingOffsets()

    def __len__(self) -> int:
        return sum(
            len(partitions) for topics in self._offsets.values() for partitions in topics.values()
        )

    # Committing

    def check(
        self, group_id: str, committer: Committer, commits: Sequence[Commit], now: Now
    ) -> None:
        """KafkaError where the committer is not, or no longer, who may commit this."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.find(group_id)
        if committer.in_transaction:
            self._check_in_transaction(group, committer, commits, now)
        elif isinstance(group, ConsumerGroup):
            check_commit(group, committer, commits)
        elif group is not None:
            self._check_member(group, committer, now)
        elif committer.generation >= 0:
            if committer.version >= _VERSION_WITH_EPOCHS:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "the group has no members")

    def _check_in_transaction(
        self, group: Group | None, committer: Committer, commits: Sequence[Commit], now: Now
    ) -> None:
        """As for any commit, but one that does not say who it is from is taken (KIP-447)."""
        if group is None:
            if committer.generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "the group does not exist")
        elif isinstance(group, ConsumerGroup):
            if committer.is_member:
                check_commit_in_transaction(group, committer, commits)
        elif committer.is_member and (
            committer.generation >= 0 or group.state is not GroupState.EMPTY
        ):
            member = group.require(committer.member_id, committer.instance_id)
            group.require_generation(committer.generation)
            self._rebalances.renew_session(group, member, now)

    def _check_member(self, group: ClassicGroup, committer: Committer, now: Now) -> None:
        if committer.generation < 0 and group.state is GroupState.EMPTY:
            return
        if not committer.is_member:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; be one of them")
        member = group.require(committer.member_id, committer.instance_id)
        group.require_generation(committer.generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalances.renew_session(group, member, now)

    def commit(
        self, group_id: str, commits: Iterable[Commit], retention_ms: int, now: Now
    ) -> tuple[Records, list[ErrorCode]]:
        """The records of what is taken, and for each commit what its client is told."""
        records: Records = []
        codes: list[ErrorCode] = []
        expires = -1 if retention_ms < 0 else now.wall_ms + retention_ms
        for commit in commits:
            if len(commit.metadata) > self._settings.offset_metadata_bytes_max:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(ErrorCode.NONE)
            value = OffsetCommitValue(
                commit.offset,
                commit.leader_epoch,
                commit.metadata,
                now.wall_ms,
                expires,
                # The version that tells a time of expiry has no room for the id.
                commit.topic_id if expires < 0 else NO_TOPIC_ID,
            )
            key = OffsetCommitKey(group_id, commit.topic, commit.partition)
            records.append(CoordinatorRecord(key, value))
        return records, codes

    # Reading

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """KafkaError where a member of a consumer group asks in the name of another epoch."""
        group = self._groups.consumer(group_id)
        if group is not None:
            check_fetch(group, member_id, epoch)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """All that a group has committed, by topic and partition."""
        return self._offsets.get(group_id, _NO_OFFSETS)

    def find(
        self, group_id: str, topic: str, topic_id: UUID, partition: int
    ) -> OffsetCommitValue | None:
        """The committed offset of a partition of the topic that has this id now."""
        found = self._offsets.get(group_id, _NO_OFFSETS).get(topic, {}).get(partition)
        if found is None or is_of_another_topic(found, topic_id):
            return None
        return found

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change the offset of a partition."""
        return self.pending.is_pending(group_id, topic, partition)

    # Forgetting

    def delete_group(self, group_id: str) -> Records:
        """Tombstones of all that a group without members has left."""
        group = self._groups.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state != GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        known = [
            (topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]
        # What a transaction has pending would bring the group back.
        known += [each for each in self.pending.of_group(group_id) if each not in set(known)]
        return [offset_end(group_id, *each) for each in known] + group_end(group)

    def delete(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> tuple[Records, list[ErrorCode]]:
        """Forget single offsets, except of topics that the members consume."""
        group = self._groups.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state != GroupState.EMPTY and not group.knows_subscriptions:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        records: Records = []
        codes: list[ErrorCode] = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            is_known = partition in self.of_group(group_id).get(topic, {})
            if is_known or self.is_unstable(group_id, topic, partition):
                records.append(offset_end(group_id, topic, partition))
        return records, codes

    def topic_deleted(self, topic: str, topic_id: UUID) -> Records:
        """Tombstones of what was committed for a topic that is gone."""
        records = []
        for group_id, topics in self._offsets.items():
            for partition, value in topics.get(topic, {}).items():
                if value.topic_id in (NO_TOPIC_ID, topic_id):
                    records.append(offset_end(group_id, topic, partition))
        return records + [offset_end(*each) for each in self.pending.of_topic(topic)]

    def forget_missing_topics(self, topic_ids: Mapping[str, UUID]) -> Records:
        """The same for all topics that went while nobody could hear of it."""
        return [
            offset_end(group_id, topic, partition)
            for group_id, topics in self._offsets.items()
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
            if topic not in topic_ids or is_of_another_topic(value, topic_ids[topic])
        ]

    def expire(self, age_ms: AgeOf) -> Records:
        """Tombstones of offsets that are due, and of groups that have neither members nor any."""
        records: Records = []
        for group in self._groups:
            kept = len(self.pending.of_group(group.group_id))
            for topic, partitions in self.of_group(group.group_id).items():
                for partition, value in partitions.items():
                    if self.is_unstable(group.group_id, topic, partition):
                        continue
                    if self._is_expired(group, topic, value, age_ms):
                        records.append(offset_end(group.group_id, topic, partition))
                    else:
                        kept += 1
            if not kept and group.is_idle:
                records += group_end(group)
        return records

    def _is_expired(
        self,
        group: Group,
        topic: str,
        value: OffsetCommitValue,
        age_ms: AgeOf,
    ) -> bool:
        since = group.offsets_unused_since_ms(topic)
        if since is None:
            return False
        committed = value.commit_timestamp
        if value.expire_timestamp >= 0:
            return age_ms(committed) >= value.expire_timestamp - committed
        # A commit counts as a sign of life too: into an empty group, a reset say.
        age = age_ms(committed) if since < 0 else min(age_ms(since), age_ms(committed))
        return age >= self._settings.offsets_retention_ms

    # Replay

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is None:
            self.pending.forget(key)
        else:
            self.pending.overtake(key)
        self._put(key, value)

    def replay_pending(
        self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None
    ) -> None:
        if self._groups.find(key.group) is None:
            self._groups.put(ClassicGroup(key.group))
        self.pending.add(producer_id, key, value)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A producer's transaction ended: what it had pending counts now, or never did."""
        ended = list(self.pending.end(producer_id))
        if committed:
            for key, value in ended:
                self._put(key, value)

    def _put(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            if self._groups.find(key.group) is None:
                self._groups.put(ClassicGroup(key.group))
            topics = self._offsets.setdefault(key.group, {})
            topics.setdefault(key.topic, {})[key.partition] = value
            return
        topics = self._offsets.get(key.group, _NO_OFFSETS)
        partitions = topics.get(key.topic)
        if partitions is None:
            return
        partitions.pop(key.partition, None)
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._offsets[key.group]


def is_of_another_topic(value: OffsetCommitValue, topic_id: UUID) -> bool:
    """True where the offset was committed for a topic of the same name that is no more."""
    if NO_TOPIC_ID in (value.topic_id, topic_id):
        return False
    return value.topic_id != topic_id
