"""JoinGroup: who may become or stay a member, under which id, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.coordinators.groups.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
    Member,
)
from tidelog.coordinators.groups.classic.rebalances import Rebalances
from tidelog.coordinators.groups.records import CoordinatorRecord, GroupMetadataKey
from tidelog.coordinators.groups.settings import (
    LABEL_BYTES_MAX,
    NAME_BYTES_MAX,
    REBALANCE_TIMEOUT_MIN_MS,
    Caller,
    GroupSettings,
    check_length,
)
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.tombstones import group_end
from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.host.random import Random
from tidelog.protocol.consumer_protocol import decode_subscription
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSION_WITH_PROMISED_IDS: Final = 4
_VERSION_WITH_SKIPPED_ASSIGNMENT: Final = 9
# A client offers two or three. Each is kept for as long as the member is there.
_PROTOCOLS_MAX: Final = 1_000
# What one member may say that it owns. All claims of a group are weighed at a stretch when it goes
# over to the newer protocol.
CLAIMS_MAX: Final = 25_000
_ID_SUFFIX_BYTES: Final = len("-00000000-0000-0000-0000-000000000000")


@dataclass(slots=True)
class Join:
    """One JoinGroup request in work."""

    request: JoinGroupRequest
    version: int
    caller: Caller
    now: Now
    protocols: list[tuple[str, bytes]] = field(init=False)
    reply: Reply[JoinGroupResponse] = field(default_factory=Reply)

    def __post_init__(self) -> None:
        self.protocols = [(each.name, each.metadata) for each in self.request.protocols]

    @property
    def rebalance_timeout_ms(self) -> int:
        timeout = self.request.rebalance_timeout_ms
        if timeout < 0:
            return self.request.session_timeout_ms
        return max(timeout, REBALANCE_TIMEOUT_MIN_MS)

    def member(self, member_id: str) -> Member:
        request = self.request
        return Member(
            member_id,
            request.group_instance_id,
            self.caller.client_id,
            self.caller.client_host,
            self.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            self.protocols,
        )


@dataclass(slots=True, eq=False)
class Joins:
    """The joins of one shard's groups."""

    _groups: GroupTable
    _settings: GroupSettings
    _rebalances: Rebalances
    _random: Random

    def join(self, join: Join) -> Outcome:
        """A checked request to join a classic group; its first member makes a new one."""
        request = join.request
        group = self._groups.classic(request.group_id)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id)
        self._check_room(group, request.member_id)
        if not group.accepts(request.protocol_type, join.protocols):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                "the group's members and the one that joins have no protocol in common",
            )
        before = self._groups.find(request.group_id)
        if before is None or before is group:
            return self._enter(group, join)

        def vacated() -> None:
            outcome = self._enter(group, join)
            assert not outcome.records, "the first member of a group waits for others"
            if outcome.answer is not join.reply:
                join.reply.resolve(outcome.answer)

        # An empty consumer group has the id until its end is written; its offsets stay.
        return Outcome(join.reply, group_end(before), vacated)

    def _enter(self, group: ClassicGroup, join: Join) -> Outcome:
        self._groups.put(group)
        if not join.request.member_id:
            return self._join_as_new(group, join)
        return self._join_as_known(group, join)

    def check_request(self, join: Join) -> None:
        """KafkaError for a request that makes no sense, whatever the group."""
        request, settings = join.request, self._settings
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        _check_lengths(join)
        shortest, longest = settings.session_timeout_min_ms, settings.session_timeout_max_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session time-out {request.session_timeout_ms} ms is outside"
                f" {shortest}..{longest}",
            )
        if len(join.protocols) > _PROTOCOLS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the member offers {len(join.protocols)} protocols; at most {_PROTOCOLS_MAX} are"
                " taken",
            )
        size = sum(len(name) + len(metadata) for name, metadata in join.protocols)
        if size > settings.member_metadata_bytes_max:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the member's metadata has {size} bytes; at most"
                f" {settings.member_metadata_bytes_max} are taken",
            )
        if request.protocol_type == CONSUMER_PROTOCOL_TYPE:
            claimed = max((_claimed(metadata) for _, metadata in join.protocols), default=0)
            if claimed > CLAIMS_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"the member claims {claimed} partitions; at most {CLAIMS_MAX} are taken",
                )

    def _check_room(self, group: ClassicGroup, member_id: str) -> None:
        limit = self._settings.group_size_max
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            has_room = group.joining_count < limit
            if member is not None and member.join_reply is not None:
                has_room = True
        elif group.state is GroupState.EMPTY:
            has_room = True
        else:
            has_room = member is not None or len(group.members) < limit
        if not has_room:
            self._rebalances.drop(group, member_id)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    # Without an id

    def _join_as_new(self, group: ClassicGroup, join: Join) -> Outcome:
        request = join.request
        instance_id = request.group_instance_id
        stem = join.caller.client_id if instance_id is None else instance_id
        member_id = f"{stem}-{self._random.uuid()}"
        if instance_id is not None:
            replaced = group.instances.get(instance_id)
            if replaced is not None:
                return self._replace_static(group, group.members[replaced], member_id, join)
        elif join.version >= VERSION_WITH_PROMISED_IDS:
            # A client that never hears of its id would otherwise leave a member behind at every
            # try (KIP-394).
            self._rebalances.promise_id(group, member_id, request.session_timeout_ms, join.now)
            return Outcome(
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            )
        return self._add(group, join.member(member_id), join)

    def _add(self, group: ClassicGroup, member: Member, join: Join) -> Outcome:
        member.is_new = True
        group.add(member)
        group.await_join(member, join.reply)
        if group.state is GroupState.PREPARING_REBALANCE:
            group.joined_in_delay = True
        self._rebalances.watch_new_member(group, member, join.now)
        reason = f"member {member.member_id} joins"
        records = self._rebalances.prepare_or_complete(group, reason, join.now)
        return Outcome(join.reply, records)

    # With an id

    def _join_as_known(self, group: ClassicGroup, join: Join) -> Outcome:
        request = join.request
        if request.member_id in group.promised_ids and request.group_instance_id is None:
            return self._add(group, join.member(request.member_id), join)
        member = group.require(request.member_id, request.group_instance_id)
        unchanged = member.protocols == join.protocols
        leads = member.member_id == group.leader_id
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # It did not get our answer: the generation stands.
            return self._current_generation(group, member, join)
        if group.state is GroupState.STABLE and unchanged and not leads:
            return self._current_generation(group, member, join)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        group.change_protocols(member, join.protocols)
        group.await_join(member, join.reply)
        reason = f"member {member.member_id} joins again"
        records = self._rebalances.prepare_or_complete(group, reason, join.now)
        return Outcome(join.reply, records)

    def _current_generation(self, group: ClassicGroup, member: Member, join: Join) -> Outcome:
        self._rebalances.renew_session(group, member, join.now)
        return Outcome(group.join_response(member))

    # Static members

    def _replace_static(
        self, group: ClassicGroup, old: Member, member_id: str, join: Join
    ) -> Outcome:
        """An instance came back under a new id: it takes over what it was, and fences it."""
        new = join.member(member_id)
        new.assignment = old.assignment
        if group.state is GroupState.STABLE and self._keeps_protocol(group, old, new):
            return self._take_over_quietly(group, old, new, join)
        self._put_in_place(group, old, new)
        group.await_join(new, join.reply)
        self._rebalances.renew_session(group, new, join.now)
        reason = f"static member {new.instance_id} joins again"
        records = self._rebalances.prepare_or_complete(group, reason, join.now)
        return Outcome(join.reply, records)

    def _keeps_protocol(self, group: ClassicGroup, old: Member, new: Member) -> bool:
        before = old.protocols
        group.change_protocols(old, new.protocols)
        same = group.select_protocol() == group.protocol
        group.change_protocols(old, before)
        return same

    def _put_in_place(self, group: ClassicGroup, old: Member, new: Member) -> None:
        led = group.leader_id == old.member_id
        fenced = KafkaError(
            ErrorCode.FENCED_INSTANCE_ID, f"instance {old.instance_id} is member {new.member_id}"
        )
        for reply in (group.end_join(old), old.sync_reply):
            if reply is not None:
                reply.fail(fenced)
        old.sync_reply = None
        self._rebalances.drop(group, old.member_id)
        group.add(new)
        if led:
            group.leader_id = new.member_id

    def _take_over_quietly(
        self, group: ClassicGroup, old: Member, new: Member, join: Join
    ) -> Outcome:
        """Nothing changes but the member's id: it is written down, nobody rebalances (KIP-345)."""
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        value = group.record_value(join.now.wall_ms, assignments)
        led = group.leader_id == old.member_id
        value.leader = new.member_id if led else group.leader_id
        value.members = [
            new.recorded(group.protocol, new.assignment)
            if each.member_id == old.member_id
            else each
            for each in value.members
        ]

        def appended() -> None:
            current = group.members[new.member_id]
            group.change_protocols(current, new.protocols)
            self._rebalances.renew_session(group, current, join.now)
            response = group.join_response(current)
            if join.version >= _VERSION_WITH_SKIPPED_ASSIGNMENT:
                response.skip_assignment = led
            else:
                # An older leader would assign anew if it were told that it leads.
                response.members = []
                response.leader = old.member_id if led else response.leader
            join.reply.resolve(response)

        return Outcome(
            join.reply, [CoordinatorRecord(GroupMetadataKey(group.group_id), value)], appended
        )


def _claimed(metadata: bytes) -> int:
    """How many partitions a consumer says that it owns; none where it cannot be read."""
    try:
        return sum(map(len, decode_subscription(metadata).owned.values()))
    except ProtocolError:
        return 0


def _check_lengths(join: Join) -> None:
    request = join.request
    check_length("GroupId", request.group_id)
    check_length("MemberId", request.member_id)
    check_length("GroupInstanceId", request.group_instance_id, LABEL_BYTES_MAX)
    # A member's id may begin with it.
    check_length("ClientId", join.caller.client_id, NAME_BYTES_MAX - _ID_SUFFIX_BYTES)
    check_length("ProtocolType", request.protocol_type)
    for name, _ in join.protocols:
        check_length("the name of a protocol", name)
