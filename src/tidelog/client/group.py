"""A member of a classic group with plain sockets: joins, shares partitions by `range`, commits.

Minimal on purpose, for the command line and for pipelines: one thread, eager rebalances, heartbeats
while it is polled. What was handed out is committed with `commit`, before a rebalance and at the
end, so at most what came after the last commit is seen again after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidelog.client.blocking_consumer import Consumer
from tidelog.client.connection import Call
from tidelog.client.faults import NetworkError, raise_for
from tidelog.client.group_admin import (
    CommittingMember,
    commit_offsets,
    committed_offsets,
    find_coordinator,
)
from tidelog.client.offsets import Start
from tidelog.client.operation import Operation, ask, retrying, topic_metadata
from tidelog.client.settings import ConsumerSettings
from tidelog.client.transactions import GroupMetadata
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record
from tidelog.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
    read_topics,
)

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
_HEARTBEAT_SECONDS = 3.0
_JOIN_VERSION = 5
_LEAVE_ONE_VERSION = 2
# The member's place in the group is lost or about to change: join again.
_REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


def range_assignment(
    subscriptions: dict[str, list[str]], partitions: dict[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Partitions by member and topic: of each topic a run of neighbours for each subscriber.

    `subscriptions` are topics by member, `partitions` how many each topic has.
    """
    assigned: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    for topic, count in sorted(partitions.items()):
        members = sorted(each for each, topics in subscriptions.items() if topic in topics)
        first = 0
        for index, member in enumerate(members):
            share = count // len(members) + (1 if index < count % len(members) else 0)
            if share:
                assigned[member][topic] = list(range(first, first + share))
            first += share
    return assigned


class GroupConsumer(Consumer):
    """Reads what a group gives it.

    >>> with GroupConsumer("127.0.0.1:9092", "billing", ["orders"]) as member:    # doctest: +SKIP
    ...     for partition, records in member.poll(1.0): ...
    ...     member.commit()
    """

    def __init__(
        self,
        servers: str | Iterable[str],
        group: str,
        topics: Sequence[str],
        settings: ConsumerSettings | None = None,
        start: Start | None = None,
    ) -> None:
        super().__init__(servers, settings)
        self.group = group
        self.topics = list(topics)
        # Where to begin in a partition of which the group has no offset.
        self.start = start or Start("start")
        self._member_id = ""
        self._generation = -1
        self._next_heartbeat = 0.0
        self._is_member = False

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self.core.positions)

    @property
    def metadata(self) -> GroupMetadata:
        """As whom offsets are sent to a transaction; anew for each, since it changes."""
        return GroupMetadata(self.group, self._member_id, self._generation)

    def poll(self, timeout_s: float) -> Iterator[tuple[TopicPartition, list[Record]]]:
        """As a consumer's, after whatever the group asks for."""
        self.keep_up()
        yield from super().poll(timeout_s)

    def keep_up(self) -> None:
        """Heartbeat where it is due; join where that is needed."""
        if self._is_member and self.cluster.clock.monotonic() >= self._next_heartbeat:
            self._heartbeat()
        if not self._is_member:
            self._join()

    def commit(self) -> None:
        """Remember what was handed out as consumed; a place that was lost is not an error."""
        offsets = {tp: state.position for tp, state in self.core.positions.items()}
        if not offsets or not self._is_member:
            return
        member = CommittingMember(self._member_id, self._generation)
        try:
            self.run(commit_offsets(self.cluster, self.group, offsets, member))
        except KafkaError as error:
            self._lost(error)

    def close(self) -> None:
        """Commit, leave, and close every connection."""
        try:
            if self._is_member:
                self.commit()
            if self._member_id:
                self.run(self._leave())
        except (NetworkError, KafkaError):
            # The session's end does what leaving would have done.
            pass
        finally:
            super().close()

    def _lost(self, error: KafkaError) -> None:
        """Note that the group moved on; any other error is raised."""
        if error.code not in _REJOIN:
            raise error
        self._is_member = False
        if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._member_id, self._generation = "", -1

    # Requests

    def _heartbeat(self) -> None:
        from tidelog.protocol.messages.heartbeat import HeartbeatRequest

        request = HeartbeatRequest(self.group, self._generation, self._member_id)
        try:
            response = self.run(self._ask_coordinator("Heartbeat", request))
            raise_for(response.error_code)
        except KafkaError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.commit()
            self._lost(error)
        self._next_heartbeat = self.cluster.clock.monotonic() + _HEARTBEAT_SECONDS

    def _ask_coordinator(
        self, api: str, request: object, version: int = _JOIN_VERSION, timeout_ms: int = 0
    ) -> Operation[Any]:
        def attempt() -> Operation[Any]:
            node = yield from find_coordinator(self.cluster, self.group)
            call = Call(node, api, request, version, timeout_ms=timeout_ms)
            response = yield from ask(call)
            code = response.error_code
            if code in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            ):
                raise_for(code)
            return response

        return (yield from retrying(self.cluster, attempt))

    def _join(self) -> None:
        self.core.assign({})
        while not self._is_member:
            try:
                assignment = self._join_once()
            except KafkaError as error:
                self._lost(error)
                continue
            self._is_member = True
            self._next_heartbeat = self.cluster.clock.monotonic() + _HEARTBEAT_SECONDS
            self._take(assignment)

    def _join_once(self) -> dict[str, list[int]]:
        from tidelog.protocol.messages.join_group import (
            JoinGroupRequest,
            JoinGroupRequestProtocol,
        )

        request = JoinGroupRequest(
            self.group,
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", encode_subscription(self.topics))],
        )
        timeout_ms = REBALANCE_TIMEOUT_MS + SESSION_TIMEOUT_MS
        joined = self.run(self._ask_coordinator("JoinGroup", request, timeout_ms=timeout_ms))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return self._join_once()
        raise_for(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        return self._sync(joined)

    def _sync(self, joined: Any) -> dict[str, list[int]]:
        from tidelog.protocol.messages.sync_group import (
            SyncGroupRequest,
            SyncGroupRequestAssignment,
        )

        assignments = []
        if joined.leader == joined.member_id:
            subscriptions = {
                each.member_id: read_topics(each.metadata) or [] for each in joined.members
            }
            wanted = sorted({topic for topics in subscriptions.values() for topic in topics})
            self.cluster.forget(wanted)
            known = self.run(topic_metadata(self.cluster, wanted))
            counts = {topic: len(known[topic].partitions) for topic in wanted}
            assignments = [
                SyncGroupRequestAssignment(member, encode_assignment(topics))
                for member, topics in range_assignment(subscriptions, counts).items()
            ]
        request = SyncGroupRequest(
            self.group, joined.generation_id, joined.member_id, assignments=assignments
        )
        timeout_ms = REBALANCE_TIMEOUT_MS + SESSION_TIMEOUT_MS
        synced = self.run(self._ask_coordinator("SyncGroup", request, 3, timeout_ms))
        raise_for(synced.error_code)
        return decode_assignment(synced.assignment)

    def _take(self, assignment: dict[str, list[int]]) -> None:
        owned = [
            TopicPartition(topic, each) for topic, list_ in assignment.items() for each in list_
        ]
        if not owned:
            return
        committed = self.run(committed_offsets(self.cluster, self.group, owned))
        starts = {
            tp: Start("offset", committed[tp]) if tp in committed else self.start for tp in owned
        }
        self.assign(starts)

    def _leave(self) -> Operation[None]:
        from tidelog.protocol.messages.leave_group import LeaveGroupRequest

        request = LeaveGroupRequest(self.group, self._member_id)
        yield from self._ask_coordinator("LeaveGroup", request, _LEAVE_ONE_VERSION)
        self._member_id, self._is_member = "", False
