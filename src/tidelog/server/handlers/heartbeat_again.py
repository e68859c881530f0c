"""A heartbeat that repeats the one before it on its connection: from the frame to the group.

The heartbeats of a member differ in their correlation id alone until something happens to its
group, and so do their answers. One that is byte for byte the same is not decoded again, and is
answered with the same bytes, where the member's group says that the answer is still the same.

Whether the client may, and whether it is a member, is looked up again each time. Nothing is refused
here: where anything has changed the request is declined, and goes the long way (`groups`,
`consumer_groups`). So does everything while some client has a quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinators.groups.beats import Beat, ConsumerBeat
from tidelog.protocol.framing import decode_request_header, encode_response
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.context import ServedApi
from tidelog.server.dispatch import DECLINED, Result
from tidelog.server.handlers.repeated_frame import CORRELATION_ID, RepeatedFrame
from tidelog.server.tools import GroupTools, RequestTools

if TYPE_CHECKING:
    from tidelog.server.connection import Connection

_FRAME_BYTES_MAX: Final = 1_000
# An answer before its correlation id: how long it is.
_SIZE_BYTES: Final = 4


class Known(RepeatedFrame):
    """A heartbeat, and its answer while nothing changes; both without their correlation ids."""

    __slots__ = ("_after", "_before", "beat", "group")

    def __init__(self, frame: memoryview, beat: Beat | ConsumerBeat, answer: bytes) -> None:
        super().__init__(frame)
        self._before = answer[:_SIZE_BYTES]
        self._after = answer[_SIZE_BYTES + 4 :]
        self.beat = beat
        self.group = Resource(ResourceType.GROUP, beat.group_id)

    def answer_to(self, frame: memoryview) -> bytes:
        return b"".join((self._before, frame[CORRELATION_ID], self._after))


class HeartbeatShortcut:
    """Serves heartbeats of classic groups; see the module. One per broker."""

    def __init__(self, shared: RequestTools, served: ServedApi[GroupTools]) -> None:
        self._shared = shared
        self._served = served
        self._key = served.api.key
        self._throttling = shared.throttling
        self._coordinator = served.tools.coordinator

    def learn(self, frame: memoryview, version: int, request: Any, connection: Connection) -> None:
        """Remember a heartbeat that was decoded, unless it has more to say than such."""
        known: Known | None = connection.known.get(self._key)
        if len(frame) > _FRAME_BYTES_MAX or (known is not None and known.is_repeated_by(frame)):
            return
        meant = self._meaning(frame, request, connection)
        if meant is not None:
            (answer,) = encode_response(self._served.api, version, 0, meant[1])
            assert isinstance(answer, bytes), "such an answer is one part"
            connection.known[self._key] = Known(frame, meant[0], answer)

    def _meaning(
        self, frame: memoryview, request: Any, connection: Connection
    ) -> tuple[Beat | ConsumerBeat, object] | None:
        """What a heartbeat says, and the answer while nothing changes."""
        who = request.group_id, request.member_id, request.group_instance_id
        return Beat(*who, request.generation_id), HeartbeatResponse()

    def serve(self, frame: memoryview, connection: Connection) -> Result:
        """Answer a heartbeat that repeats the one before; else `DECLINED`."""
        known: Known | None = connection.known.get(self._key)
        if known is None or not known.is_repeated_by(frame) or self._throttling.is_on:
            return DECLINED
        shared, metrics = self._shared, self._served.metrics
        started_at = shared.clock.monotonic()
        may_read = shared.authorizer.authorize(
            connection.principal, connection.host, Operation.READ, known.group
        )
        if not may_read or not self._coordinator.hear(known.beat):
            return DECLINED
        answer = known.answer_to(frame)
        metrics.requests += 1
        metrics.request_bytes += len(frame) + 4
        metrics.response_bytes += len(answer)
        metrics.latency.observe(shared.clock.monotonic() - started_at)
        return [answer]


class ConsumerHeartbeatShortcut(HeartbeatShortcut):
    """Serves heartbeats of consumer groups that tell nothing of their members."""

    def _meaning(
        self, frame: memoryview, request: Any, connection: Connection
    ) -> tuple[Beat | ConsumerBeat, object] | None:
        told = (
            request.subscribed_topic_names, request.subscribed_topic_regex, request.rack_id,
            request.server_assignor, request.topic_partitions,
        )  # fmt: skip
        if (
            request.member_epoch <= 0
            or not request.member_id
            or request.instance_id == ""
            or request.rebalance_timeout_ms != -1
            or any(each is not None for each in told)
        ):
            return None
        header, _ = decode_request_header(frame)
        interval_ms = self._coordinator.heartbeat_interval_ms(request.group_id)
        if interval_ms is None:
            return None
        beat = ConsumerBeat(
            request.group_id, request.member_id, request.instance_id, request.member_epoch,
            header.client_id or "", f"/{connection.host}", interval_ms,
        )  # fmt: skip
        return beat, ConsumerGroupHeartbeatResponse(
            member_id=beat.member_id,
            member_epoch=beat.generation,
            heartbeat_interval_ms=interval_ms,
        )
