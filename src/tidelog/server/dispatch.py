"""From a frame to a handler and back to parts.

A request has three stages. `prepare` decodes and does whatever may be slow; it is pure and may run
on a thread. `apply` is synchronous and happens in arrival order. `answer` may be a wait, which does
not keep the frame alive. A stage comes to a `Result`: the parts of an answer, None where nothing is
answered (acks=0), or a `Pending` that names the wait and how to go on after it.

Unknown APIs and unsupported versions close the connection, as in Kafka; ApiVersions alone answers
an unknown version, in its version 0 with error 35, so that a newer client can step down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from tidelog.errors import ProtocolError, TidelogError
from tidelog.protocol.apis import API_BY_KEY, Api
from tidelog.protocol.framing import decode_request_header, encode_response, frame_response
from tidelog.protocol.primitives import Part, part_size
from tidelog.protocol.schema import decode
from tidelog.server.answer_cache import EncodedAnswer
from tidelog.server.context import RequestContext

if TYPE_CHECKING:
    from tidelog.server.connection import Connection
    from tidelog.server.context import Services
    from tidelog.server.metrics import ApiMetrics

_log = logging.getLogger(__name__)

API_VERSIONS_KEY = 18

# Which module serves which API; imported when first asked for.
_HANDLER_MODULES = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offsets",
    9: "offsets",
    10: "find_coordinator",
    11: "groups",
    12: "groups",
    13: "groups",
    14: "groups",
    15: "group_admin",
    16: "group_admin",
    18: "api_versions",
    19: "topics",
    20: "topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    32: "configs",
    33: "configs",
    37: "topics",
    42: "group_admin",
    44: "configs",
    47: "offsets",
    60: "describe_cluster",
    68: "consumer_groups",
    69: "consumer_groups",
    20000: "offsets_within_bytes",
}


class CloseConnection(TidelogError):
    """The only right answer is to close the connection; the message says why."""


@dataclass(slots=True)
class Pending:
    """A stage that waits: for what, how to go on, and whether the next request may start."""

    future: asyncio.Future[Any]
    resume: Callable[[], Result]
    overlaps: bool = False


Result = list[Part] | None | Pending
Answer = Any
Handler = Callable[[Any, RequestContext], Answer | Awaitable[Answer]]
Prepare = Callable[[Any, RequestContext], object | asyncio.Future[object]]


@dataclass(slots=True)
class Route:
    """How one API is served."""

    handler: Handler
    prepare: Prepare | None = None
    overlaps: bool = False


_ROUTES: dict[int, Route] = {}


def handles(
    api_key: int, *, prepare: Prepare | None = None, overlaps: bool = False
) -> Callable[[Handler], Handler]:
    """Register a handler: `handler(request, context)` returns an answer or a wait for one.

    With `prepare`, its result (or the result of the future it returns) is in `context.prepared`
    when the handler runs. `overlaps` lets the next request start while this one's answer waits.
    """

    def register(handler: Handler) -> Handler:
        _ROUTES[api_key] = Route(handler, prepare, overlaps)
        return handler

    return register


def served_keys() -> list[int]:
    """The keys of all served APIs, in order."""
    return sorted(_HANDLER_MODULES)


def route(api_key: int) -> Route:
    """The route of a served API, importing its module at the first call."""
    found = _ROUTES.get(api_key)
    if found is None:
        import_module(f"tidelog.server.handlers.{_HANDLER_MODULES[api_key]}")
        found = _ROUTES[api_key]
    return found


class Dispatcher:
    """Starts requests; one per broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: set[asyncio.Task[Any]] = set()
        self._served: dict[int, tuple[Api, Route, ApiMetrics]] = {}

    @property
    def running_tasks(self) -> frozenset[asyncio.Task[Any]]:
        """Handlers that are coroutines and have not answered yet."""
        return frozenset(self._tasks)

    def start(self, frame: memoryview, connection: Connection) -> Result:
        """Decode a frame and take the request as far as it goes without waiting."""
        header, position = decode_request_header(frame)
        served = self._served.get(header.api_key) or self._serve(header.api_key)
        api, route_, metrics = served
        version = header.api_version
        if not api.served[0] <= version <= api.served[1]:
            if api.key == API_VERSIONS_KEY:
                return self._step_down(api, header.correlation_id)
            raise CloseConnection(
                f"{api.name} version {version} is not served"
                f" (served: {api.served[0]} to {api.served[1]})"
            )
        request, _ = decode(api.request, version, frame, position)
        metrics.requests += 1
        metrics.request_bytes += len(frame) + 4
        context = RequestContext(self._services, connection, header, api, metrics)
        if route_.prepare is None:
            return self._apply(route_, request, context)
        prepared = route_.prepare(request, context)
        if not isinstance(prepared, asyncio.Future):
            context.prepared = prepared
            return self._apply(route_, request, context)

        def apply_prepared() -> Result:
            context.prepared = prepared.result()
            return self._apply(route_, request, context)

        return Pending(prepared, apply_prepared)

    def _serve(self, api_key: int) -> tuple[Api, Route, ApiMetrics]:
        """All that is needed for the requests of an API, found when it is first asked for."""
        api = API_BY_KEY.get(api_key)
        if api is None or api_key not in _HANDLER_MODULES:
            raise CloseConnection(f"unknown api key {api_key}")
        served = api, route(api_key), self._services.metrics.api(api_key, api.name)
        self._served[api_key] = served
        return served

    def _apply(self, route_: Route, request: object, context: RequestContext) -> Result:
        try:
            answer = route_.handler(request, context)
        except (ProtocolError, CloseConnection):
            raise
        except Exception as error:
            raise self._fault(context, error) from error
        if type(answer) is CoroutineType:
            task = asyncio.get_running_loop().create_task(answer)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            answer = task
        if not isinstance(answer, asyncio.Future):
            return self._encode(context, answer)
        waited = answer

        def encode_answer() -> Result:
            try:
                message = waited.result()
            except (ProtocolError, CloseConnection):
                raise
            except asyncio.CancelledError:
                raise CloseConnection("the request was cancelled") from None
            except Exception as error:
                raise self._fault(context, error) from error
            return self._encode(context, message)

        return Pending(waited, encode_answer, route_.overlaps)

    def _encode(self, context: RequestContext, message: object) -> Result:
        metrics = context.metrics
        metrics.latency.observe(self._services.clock.monotonic() - context.started_at)
        if message is None:
            return None
        header = context.header
        version, correlation_id = header.api_version, header.correlation_id
        if isinstance(message, EncodedAnswer):
            body = message.body
            parts = frame_response(context.api, version, correlation_id, [body], len(body))
        else:
            parts = encode_response(context.api, version, correlation_id, message)
        for part in parts:
            metrics.response_bytes += part_size(part)
        return parts

    def _step_down(self, api: Api, correlation_id: int) -> Result:
        from tidelog.server.handlers.api_versions import unsupported_version

        return encode_response(api, 0, correlation_id, unsupported_version(self._services))

    def _fault(self, context: RequestContext, error: Exception) -> CloseConnection:
        """An error nobody expected: logged with its trace, and the connection is closed.

        Closing is safer than UNKNOWN_SERVER_ERROR, on which Java's producer duplicates records.
        """
        header = context.header
        _log.exception(
            "request failed api=%s version=%s client_id=%r peer=%s",
            context.api.name, header.api_version, header.client_id, context.connection.peer,
        )  # fmt: skip
        return CloseConnection(f"{context.api.name} failed: {error!r}")
