"""SyncGroup, Heartbeat and LeaveGroup, and the replay of a classic group's records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.coordinators.groups.beats import Beat
from tidelog.coordinators.groups.classic.group import ClassicGroup, GroupState, Member
from tidelog.coordinators.groups.classic.rebalances import Rebalances
from tidelog.coordinators.groups.records import (
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_log = logging.getLogger(__name__)

_VERSION_WITH_MEMBERS: Final = 3


class Members:
    """What members of one shard's groups ask once they have joined."""

    def __init__(self, groups: GroupTable, settings: GroupSettings, rebalances: Rebalances) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalances = rebalances

    def _require_group(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.classic(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # SyncGroup

    def sync(self, request: SyncGroupRequest, now: Now) -> Outcome:
        group = self._require_group(request.group_id)
        member = group.require(request.member_id, request.group_instance_id)
        group.require_generation(request.generation_id)
        for given, known in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol),
        ):
            if given is not None and given != known:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"the group uses {known}, not {given}",
                )
        if group.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is GroupState.STABLE:
            self._rebalances.synced(group, member.member_id)
            self._rebalances.renew_session(group, member, now)
            return Outcome(group.sync_response(member))
        return self._await_assignment(group, member, request, now)

    def _await_assignment(
        self, group: ClassicGroup, member: Member, request: SyncGroupRequest, now: Now
    ) -> Outcome:
        assert group.state is GroupState.COMPLETING_REBALANCE, group.state
        reply: Reply[SyncGroupResponse] = Reply()
        if member.member_id != group.leader_id:
            if member.sync_reply is not None:
                member.sync_reply.fail(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "synced again"))
            member.sync_reply = reply
            self._rebalances.synced(group, member.member_id)
            return Outcome(reply)
        # Members that the leader left out own nothing; what it assigned to others is not kept.
        given = {each.member_id: each.assignment for each in request.assignments}
        value = group.record_value(now.wall_ms, given)
        record = CoordinatorRecord(GroupMetadataKey(group.group_id), value)

        def appended() -> None:
            # Only now has the leader synced: where the append is refused it must come again.
            self._rebalances.synced(group, member.member_id)
            member.sync_reply = reply
            for each in group.members.values():
                waiting, each.sync_reply = each.sync_reply, None
                if waiting is not None:
                    self._rebalances.renew_session(group, each, now)
                    waiting.resolve(group.sync_response(each))

        return Outcome(reply, [record], appended)

    # Heartbeat

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        group = self._require_group(request.group_id)
        member = group.require(request.member_id, request.group_instance_id)
        group.require_generation(request.generation_id)
        self._rebalances.renew_session(group, member, now)
        if group.state is GroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def hear(self, group: ClassicGroup, beat: Beat, now: Now) -> bool:
        """As `heartbeat` for a member of a stable group; False where that says anything else."""
        member = group.members.get(beat.member_id)
        if (
            member is None
            or group.state is not GroupState.STABLE
            or group.generation != beat.generation
            or (
                beat.instance_id is not None
                and group.instances.get(beat.instance_id) != beat.member_id
            )
        ):
            return False
        self._rebalances.renew_session(group, member, now)
        return True

    # LeaveGroup

    def leave(self, request: LeaveGroupRequest, version: int, now: Now) -> Outcome:
        group = self._require_group(request.group_id)
        gone = set()

        def leave(identity: MemberIdentity) -> None:
            member_id = self._leaver(group, identity)
            self._rebalances.drop(group, member_id)
            gone.add(member_id)

        response = leave_each(request, version, leave)
        if not gone:
            return Outcome(response)
        return Outcome(response, self._rebalances.after_departure(group, "members leave", now))

    def _leaver(self, group: ClassicGroup, identity: MemberIdentity) -> str:
        """The id of who leaves; an administrator names static members by instance alone."""
        if identity.group_instance_id is not None and not identity.member_id:
            member_id = group.instances.get(identity.group_instance_id)
            if member_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            return member_id
        if identity.group_instance_id is None and identity.member_id in group.promised_ids:
            return identity.member_id
        return group.require(identity.member_id, identity.group_instance_id).member_id

    # Replay

    def replay(
        self, key: GroupMetadataKey, value: GroupMetadataValue | None, *, is_loading: bool
    ) -> None:
        """Make the group what the record says: one generation, its members and assignments."""
        group = self._groups.classic(key.group)
        if value is None:
            if group is not None:
                self._groups.remove(key.group)
            return
        if group is None:
            group = self._groups.put(ClassicGroup(key.group))
        is_live = group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
        assert not is_live or value.generation in (group.generation, group.next_generation)
        self._rebalances.end_joins(group)
        staying = {each.member_id for each in value.members}
        for gone in [each for each in group.members if each not in staying]:
            self._rebalances.drop(group, gone)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.state_timestamp_ms = value.current_state_timestamp
        for recorded in value.members:
            member = group.members.get(recorded.member_id)
            if member is None:
                member = _restored(recorded, value)
                group.add(member)
            member.assignment = recorded.assignment
        group.leader_id = value.leader
        group.note_subscriptions()
        state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.enter(state, f"generation {value.generation} in the log", is_loading=is_loading)

    def loaded(self, now: Now) -> list[CoordinatorRecord]:
        """The shard is whole: from here on members must show that they live."""
        records: list[CoordinatorRecord] = []
        limit = self._settings.group_size_max
        for group in self._groups.classic_groups():
            for member in group.members.values():
                self._rebalances.renew_session(group, member, now)
            if len(group.members) > limit:
                records += self._rebalances.prepare(group, "over the size limit", now)
            elif group.members and group.leader_id is None:
                # A consumer group that had just become this one.
                records += self._rebalances.prepare(group, "it has no leader", now)
        return records


def leave_each(
    request: LeaveGroupRequest, version: int, leave: Callable[[MemberIdentity], None]
) -> LeaveGroupResponse:
    """Have everybody leave whom the request names, and answer for each by itself."""
    names_several = version >= _VERSION_WITH_MEMBERS
    response = LeaveGroupResponse()
    for identity in request.members if names_several else [MemberIdentity(request.member_id)]:
        answer = MemberResponse(identity.member_id, identity.group_instance_id)
        response.members.append(answer)
        try:
            leave(identity)
        except KafkaError as error:
            answer.error_code = error.code
    if not names_several:
        response.error_code = response.members[0].error_code
        response.members = []
    return response


def _restored(recorded: MemberMetadata, value: GroupMetadataValue) -> Member:
    rebalance_timeout = recorded.rebalance_timeout
    return Member(
        recorded.member_id,
        recorded.group_instance_id,
        recorded.client_id,
        recorded.client_host,
        recorded.session_timeout if rebalance_timeout < 0 else rebalance_timeout,
        recorded.session_timeout,
        value.protocol_type,
        [(value.protocol or "", recorded.subscription)],
    )
