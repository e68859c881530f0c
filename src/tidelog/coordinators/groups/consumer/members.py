"""The members of consumer groups: their sessions, how they leave and are fenced.

A member that is silent for `group.consumer.session.timeout.ms` is fenced, as is one that does not
give partitions back within its own rebalance time-out. What it owned is then free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.classic.members import leave_each
from tidelog.coordinators.groups.consumer.changes import (
    Records,
    current_record,
    group_record,
    member_tombstones,
    pattern_tombstone,
    target_epoch_record,
)
from tidelog.coordinators.groups.consumer.group import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    hash_topics,
)
from tidelog.coordinators.groups.settings import GroupSettings, own_setting_ms
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.timers import RETRY_MS, Timer, TimerKind, Timers
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

_log = logging.getLogger(__name__)

_REASONS = {
    TimerKind.CONSUMER_SESSION: "its session is over",
    TimerKind.CONSUMER_REVOCATION: "it kept its partitions",
    TimerKind.CONSUMER_REJOIN: "it did not join again",
    TimerKind.CONSUMER_SYNC: "it did not fetch its assignment",
}


@dataclass(slots=True)
class Departure:
    """Members of a group are no more."""

    group: ConsumerGroup
    leaving: Collection[ConsumerMember]
    now: Now
    response: object = None


@dataclass(slots=True, eq=False)
class ConsumerMembers:
    """Sessions and departures of one shard's groups."""

    _groups: GroupTable
    _settings: GroupSettings
    _timers: Timers
    _image: Callable[[], MetadataImage]
    _downgrade: Callable[[Departure], Outcome | None]

    # Deadlines

    def renew_session(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        timer = Timer(TimerKind.CONSUMER_SESSION, group_id, member.member_id)
        self._timers.schedule(timer, now.ms + self._session_timeout_ms(group_id, member))

    def _session_timeout_ms(self, group_id: str, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        default_ms = self._settings.consumer_session_timeout_ms
        return own_setting_ms(self._image(), group_id, "consumer.session.timeout.ms", default_ms)

    def await_rejoin(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """A member of the classic protocol was told to join again, the first time at least."""
        timer = Timer(TimerKind.CONSUMER_REJOIN, group_id, member.member_id)
        if timer not in self._timers:
            self._timers.schedule(timer, now.ms + member.rebalance_timeout_ms)

    def await_sync(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """It has joined, and is to fetch its assignment."""
        self._timers.cancel(Timer(TimerKind.CONSUMER_REJOIN, group_id, member.member_id))
        timer = Timer(TimerKind.CONSUMER_SYNC, group_id, member.member_id)
        self._timers.schedule(timer, now.ms + member.rebalance_timeout_ms)

    def synced(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(Timer(TimerKind.CONSUMER_SYNC, group_id, member_id))

    def left_classic(self, group_id: str, member_id: str) -> None:
        """The member uses the newer protocol now."""
        self._timers.cancel(Timer(TimerKind.CONSUMER_REJOIN, group_id, member_id))
        self._timers.cancel(Timer(TimerKind.CONSUMER_SYNC, group_id, member_id))

    def watch_revocation(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """A member that moved on is watched no more; one that has to give back must hurry."""
        timer = Timer(TimerKind.CONSUMER_REVOCATION, group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._timers.schedule(timer, now.ms + member.rebalance_timeout_ms)
        else:
            self._timers.cancel(timer)

    def fence_late(self, timer: Timer, now: Now) -> Outcome:
        """A member was silent for too long, or did not give back what it lost."""
        group = self._groups.consumer(timer.group_id)
        assert group is not None, "a group that goes takes its timers with it"
        member = group.members[timer.member_id]
        if timer.kind is TimerKind.CONSUMER_REVOCATION and not member.revoking:
            # A static member that went has nothing to give back.
            return Outcome()
        _log.info(
            "member fenced group=%s member=%s reason=%s",
            timer.group_id, timer.member_id, _REASONS[timer.kind],
        )  # fmt: skip
        # Replaying the records cancels this; without that the append was refused.
        self._timers.schedule(timer, now.ms + RETRY_MS)
        return self.fence(group, [member], now)

    def loaded(self, now: Now) -> None:
        """The shard is whole: from here on members must show that they live."""
        for group in self._groups.consumer_groups():
            for member in group.members.values():
                self.renew_session(group.group_id, member, now)
                self.watch_revocation(group.group_id, member, now)

    def upgraded(
        self, group: ConsumerGroup, then: Callable[[], None] | None, now: Now
    ) -> Callable[[], None]:
        """What is to happen once a classic group is a consumer group: the members' clocks run."""

        def appended() -> None:
            if then is not None:
                then()
            current = self._groups.consumer(group.group_id)
            assert current is not None, "its records were replayed"
            for member in current.members.values():
                if member.classic is not None:
                    self.renew_session(group.group_id, member, now)

        return appended

    # Departures

    def fence(
        self,
        group: ConsumerGroup,
        leaving: Collection[ConsumerMember],
        now: Now,
        response: object = None,
    ) -> Outcome:
        """Members are no more: what they owned is free, and the others share anew.

        Where the others use the classic protocol, they go on as a classic group.
        """
        downgraded = self._downgrade(Departure(group, leaving, now, response))
        return downgraded or Outcome(response, self._departed(group, leaving, now))

    def _departed(
        self, group: ConsumerGroup, leaving: Collection[ConsumerMember], now: Now
    ) -> Records:
        records: Records = []
        topics = group.subscribers.copy()
        patterns = group.pattern_subscribers.copy()
        for member in leaving:
            records += member_tombstones(group.group_id, member.member_id)
            topics.subtract(member.topics)
            if member.pattern:
                patterns[member.pattern] -= 1
        for pattern, resolved in group.resolved.items():
            if not patterns[pattern]:
                records.append(pattern_tombstone(group.group_id, pattern))
                topics.subtract(resolved.topics)
        left = (name for name, count in topics.items() if count > 0)
        epoch = group.epoch + 1
        records.append(group_record(group.group_id, epoch, hash_topics(left, self._image())))
        if len(leaving) == len(group.members):
            # The old target, dated anew: no other record could tell since when nobody is there.
            records.append(target_epoch_record(group.group_id, group.target_epoch, now.wall_ms))
        return records

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now: Now
    ) -> Outcome:
        """A heartbeat that says goodbye; with the epoch of a static leave, until later."""
        instance_id, member_id = request.instance_id, request.member_id
        epoch = request.member_epoch
        response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
        if instance_id is None:
            return self.fence(group, [group.require(member_id)], now, response)
        member = group.require_static(instance_id, member_id)
        if epoch != STATIC_LEAVE_EPOCH:
            return self.fence(group, [member], now, response)
        away = replace(
            member,
            epoch=STATIC_LEAVE_EPOCH,
            # What it committed before counts as older than whatever its successor commits.
            assigned={
                topic_id: dict.fromkeys(partitions, 0)
                for topic_id, partitions in member.assigned.items()
            },
            revoking={},
        )
        return Outcome(response, [current_record(group.group_id, away)])

    def remove(
        self, group: ConsumerGroup, request: LeaveGroupRequest, version: int, now: Now
    ) -> Outcome:
        """LeaveGroup: members of the classic protocol, or whom an administrator removes."""
        leaving: dict[str, ConsumerMember] = {}

        def leave(identity: MemberIdentity) -> None:
            member = self._leaver(group, identity)
            leaving[member.member_id] = member

        response = leave_each(request, version, leave)
        if not leaving:
            return Outcome(response)
        return self.fence(group, leaving.values(), now, response)

    def _leaver(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        if identity.group_instance_id is None:
            return group.require(identity.member_id)
        if identity.member_id:
            return group.require_static(identity.group_instance_id, identity.member_id)
        member = group.static_member(identity.group_instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member
