"""A Metadata request that repeats the one before it on its connection: from the frame to the cache.

Clients ask for the same topics again and again, and such requests differ in their correlation id
alone. One that is byte for byte the same is not decoded again: its answer lies in the cache of
answers, which is emptied whenever anything has changed that they tell. What is not found there goes
the long way (`metadata`). So does everything while some client has a quota.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol.framing import frame_response
from tidelog.protocol.primitives import part_size
from tidelog.server.context import ServedApi
from tidelog.server.dispatch import DECLINED, Result
from tidelog.server.handlers.repeated_frame import CORRELATION_ID, RepeatedFrame
from tidelog.server.tools import ClusterTools, RequestTools

if TYPE_CHECKING:
    from tidelog.server.connection import Connection

_FRAME_BYTES_MAX: Final = 1_000
# What is larger leaves in several parts.
_ANSWER_BYTES_MAX: Final = 16 * 1024


def cache_key(request: Any, version: int, connection: Connection) -> Hashable:
    """Whatever the answer depends on beside the image."""
    names = None
    if request.topics is not None:
        names = tuple((topic.name, topic.topic_id) for topic in request.topics)
    return (
        version,
        connection.principal,
        connection.host,
        connection.listener.name,
        connection.local_host,
        connection.local_port,
        names,
        request.allow_auto_topic_creation,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
    )


class Known(RepeatedFrame):
    """A request without its correlation id, for whom it was, and where its answer is kept."""

    __slots__ = ("_principal", "key", "version")

    def __init__(self, frame: memoryview, version: int, request: Any, connection: Connection):
        super().__init__(frame)
        self._principal = connection.principal
        self.version = version
        self.key = cache_key(request, version, connection)

    def is_for(self, frame: memoryview, connection: Connection) -> bool:
        """Whether the same client asks the same."""
        return self.is_repeated_by(frame) and connection.principal is self._principal


class MetadataShortcut:
    """See the module. One per broker."""

    def __init__(self, shared: RequestTools, served: ServedApi[ClusterTools]) -> None:
        self._shared = shared
        self._throttling = shared.throttling
        self._api = served.api
        self._metrics = served.metrics
        self._answers = served.tools.answers

    def learn(self, frame: memoryview, version: int, request: Any, connection: Connection) -> None:
        """Remember a request that was decoded."""
        known: Known | None = connection.known.get(self._api.key)
        if len(frame) > _FRAME_BYTES_MAX:
            return
        if known is None or not known.is_for(frame, connection):
            connection.known[self._api.key] = Known(frame, version, request, connection)

    def serve(self, frame: memoryview, connection: Connection) -> Result:
        """Answer a request that repeats the one before; else `DECLINED`."""
        known: Known | None = connection.known.get(self._api.key)
        if known is None or self._throttling.is_on or not known.is_for(frame, connection):
            return DECLINED
        shared, metrics = self._shared, self._metrics
        started_at = shared.clock.monotonic()
        kept = self._answers.find(shared.metadata.image, known.key)
        if kept is None or len(kept.body) > _ANSWER_BYTES_MAX:
            return DECLINED
        correlation_id = int.from_bytes(frame[CORRELATION_ID], "big", signed=True)
        body = kept.body
        answer = frame_response(self._api, known.version, correlation_id, [body], len(body))
        metrics.requests += 1
        metrics.request_bytes += len(frame) + 4
        metrics.response_bytes += part_size(answer[0])
        metrics.latency.observe(shared.clock.monotonic() - started_at)
        return answer
