"""From a frame to a handler and back to parts.

A request has three stages. `prepare` decodes and does whatever may be slow; it is pure and may run
on a thread. `apply` is synchronous and happens in arrival order. `answer` may wait, without keeping
the frame alive. A stage gives a `Result`: the parts of an answer, None where nothing is answered
(acks=0), or a `Pending` that names the wait and how to go on. A request or answer with thousands of
elements is decoded, handled and encoded in pieces, in a task of its own.

Unknown APIs and unsupported versions close the connection, as in Kafka; ApiVersions alone answers
an unknown version, in its version 0 with error 35, so that a newer client can step down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tidelog.errors import PartitionBrokenError, ProtocolError, TidelogError
from tidelog.protocol.apis import (
    API_BY_KEY,
    API_VERSIONS_KEY,
    METADATA_KEY,
    SASL_AUTHENTICATE_KEY,
    SASL_KEYS,
    Api,
)
from tidelog.protocol.framing import (
    RequestHeader,
    decode_request_header,
    encode_response,
    frame_response,
)
from tidelog.protocol.primitives import Part, part_size
from tidelog.protocol.schema import decode, decode_in_pieces, encode_in_pieces, encode_sized
from tidelog.server.answer_cache import EncodedAnswer
from tidelog.server.answer_memory import (
    ANSWER_BYTES_MAX,
    LARGE_ANSWER_BYTES,
    WAITING_BYTES_MAX,
    held_bytes,
)
from tidelog.server.audit_log import ADMIN, NOT_ADMIN
from tidelog.server.context import RequestContext, ServedApi
from tidelog.server.pieces import Work, first_piece
from tidelog.server.routes import EARLY, TOOLS, Answer, Route, SplitAndJoin, route
from tidelog.server.throttling import timed

if TYPE_CHECKING:
    from tidelog.server.audit_log import AuditLog
    from tidelog.server.connection import Connection
    from tidelog.server.tools import RequestTools

_log = logging.getLogger(__name__)

T = TypeVar("T")

# A frame of this size holds some thousand elements at most and is decoded at a stretch.
_BRIEF_FRAME_BYTES = 16 * 1024
# The second byte of a frame, in which the keys of APIs differ.
_KEY_AT: Final = 1
# From this version on its answer begins with the throttle time.
_METADATA_WITH_THROTTLE = 3


class CloseConnection(TidelogError):
    """The only right answer is to close the connection; the message says why."""


@dataclass(slots=True)
class Pending:
    """A stage that waits: for what, how to go on, and whether the next request may start."""

    future: asyncio.Future[Any]
    resume: Callable[[], Result]
    overlaps: bool = False


Context = RequestContext[Any]
Parts = list[Part] | None
Result = Parts | Pending
Encoded = Parts | Coroutine[Any, Any, Parts]
# What a shortcut says of a request that has to go the long way; nothing has been done for it.
DECLINED: Final[Result] = []


class Shortcut(Protocol):
    """Serves requests of one API that are like others before them (see `produce_again`).

    What it knows of a connection's requests is in `Connection.known`. It is only offered frames
    whose API key ends in the same byte as its own.
    """

    def learn(
        self, frame: memoryview, version: int, request: Any, connection: Connection
    ) -> None: ...

    def serve(self, frame: memoryview, connection: Connection) -> Result: ...


class Dispatcher:
    """Starts requests; one per broker."""

    def __init__(self, shared: RequestTools, families: Iterable[object]) -> None:
        """`families` are the tools of each family of handlers (see `server/tools`)."""
        self._shared = shared
        self._throttling = shared.throttling
        self._families = {type(tools): tools for tools in families}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._served: dict[int, ServedApi[Any]] = {}
        # By the key of an API, once a request of it was decoded.
        self._shortcuts: dict[int, Shortcut] = {}
        # Until the broker is ready, only what brokers need of each other is served.
        self.is_open = True

    @property
    def audit(self) -> AuditLog:
        return self._shared.audit

    @property
    def running_tasks(self) -> tuple[asyncio.Task[Any], ...]:
        """Handlers that are coroutines and have not answered yet."""
        return tuple(self._tasks)

    def start(self, frame: memoryview, connection: Connection) -> Result:
        """Decode a frame and take the request as far as it goes without waiting."""
        if connection.known and len(frame) > _KEY_AT:
            shortcut = self._shortcuts.get(frame[_KEY_AT])
            if shortcut is not None:
                result = shortcut.serve(frame, connection)
                if result is not DECLINED:
                    return result
        header, position = decode_request_header(frame)
        served = self._served.get(header.api_key) or self._serve(header.api_key)
        api, route_, metrics = served.api, served.route, served.metrics
        version = header.api_version
        if not api.served[0] <= version <= api.served[1]:
            if api.key == API_VERSIONS_KEY:
                return self._step_down(api, header.correlation_id)
            raise CloseConnection(
                f"{api.name} version {version} is not served"
                f" (served: {api.served[0]} to {api.served[1]})"
            )
        context = RequestContext(self._shared, served, connection, header)
        context.in_pieces = not route_.is_brief
        metrics.requests += 1
        context.request_bytes = len(frame) + 4
        metrics.request_bytes += context.request_bytes
        if len(frame) <= _BRIEF_FRAME_BYTES:
            request, _ = decode(api.request, version, frame, position)
            return self._begin(route_, request, context, frame)
        decoding = Work(decode_in_pieces(api.request, version, frame, position))
        if decoding.run_piece():
            return self._begin(route_, decoding.result[0], context, frame)
        context.in_pieces = True
        connection.frame_in_use = True
        return self._pending(self._serve_large(route_, decoding, context), context)

    def start_unauthenticated(self, frame: memoryview, connection: Connection) -> Result:
        """As `start`, for a connection of which it is not known yet who it is."""
        header, _ = decode_request_header(frame)
        is_first = connection.sasl is None and header.api_key == API_VERSIONS_KEY
        if header.api_key not in SASL_KEYS and not is_first:
            raise CloseConnection(f"a request of API {header.api_key} before authentication")
        return self.start(frame, connection)

    def start_token(self, frame: memoryview, connection: Connection) -> Result:
        """A message of SASL as it is, after a handshake of version 0; so is the answer."""
        key = SASL_AUTHENTICATE_KEY
        served = self._served.get(key) or self._serve(key)
        context = RequestContext(self._shared, served, connection, RequestHeader(key, 0, 0, None))
        answer: Any = served.route.handler(served.api.request(bytes(frame)), context)
        if type(answer) is CoroutineType:
            return self._pending(_without_header(answer), context)
        return [_sized(answer.auth_bytes)]

    def _begin(self, route_: Route, request: object, context: Context, frame: memoryview) -> Result:
        if route_.shortcut is not None:
            shortcut = self._shortcuts[context.api.key]
            shortcut.learn(frame, context.version, request, context.connection)
        if route_.prepare is None:
            return self._apply(route_, request, context)
        prepared = route_.prepare(request, context)
        if not isinstance(prepared, asyncio.Future):
            context.prepared = prepared
            return self._apply(route_, request, context)

        def apply_prepared() -> Result:
            context.prepared = prepared.result()
            result = self._apply(route_, request, context)
            context.connection.frame_in_use = False
            return result

        context.connection.frame_in_use = True
        return Pending(prepared, apply_prepared)

    def _serve(self, api_key: int) -> ServedApi[Any]:
        """All that is needed for the requests of an API, found when it is first asked for."""
        api = API_BY_KEY.get(api_key)
        if api is None:
            raise CloseConnection(f"unknown api key {api_key}")
        if not self.is_open and api.name not in EARLY:
            raise CloseConnection(f"{api.name} is not served yet: the broker starts")
        metrics = self._shared.metrics.api(api_key, api.name)
        tools = self._families[TOOLS[api.name]]
        route_ = self._audited(route(api.name), api.name)
        served = self._served[api_key] = ServedApi(api, route_, metrics, tools)
        if served.route.shortcut is not None:
            self._shortcuts[api_key] = served.route.shortcut(self._shared, served)
        return served

    def _audited(self, route_: Route, api_name: str) -> Route:
        """The route as it is, unless the audit log names requests of this API."""
        audit = self._shared.audit
        if api_name in NOT_ADMIN or not audit.takes(ADMIN):
            return route_
        from tidelog.server.audited import audited_route

        return audited_route(route_, api_name, audit)

    def _apply(self, route_: Route, request: object, context: Context) -> Result:
        try:
            answer = route_.handler(request, context)
            if type(answer) is GeneratorType:
                is_done, answer = first_piece(answer)
                if not is_done:
                    return self._pending(self._answer(route_, answer, context), context)
        except (ProtocolError, CloseConnection):
            raise
        except Exception as error:
            raise self._fault(context, error) from error
        if type(answer) is CoroutineType:
            return self._pending(self._answer(route_, answer, context), context)
        if not isinstance(answer, asyncio.Future):
            encoded = self._encode(context, answer)
            return encoded if type(encoded) is list else self._parts(encoded, context)
        waited = answer

        def encode_answer() -> Result:
            answered = self._outcome(waited, context)
            return self._parts(self._encode(context, answered), context)

        return Pending(waited, encode_answer, context.overlaps)

    def _parts(self, encoded: Encoded, context: Context) -> Result:
        if encoded is None or isinstance(encoded, list):
            return encoded
        return self._pending(encoded, context)

    def _pending(self, work: Coroutine[Any, Any, Parts], context: Context) -> Pending:
        """A request that goes on in a task of its own, up to the parts of its answer."""
        if self._throttling.times_requests:
            work = timed(work, context.connection.loop_use, self._shared.clock)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return Pending(task, lambda: self._outcome(task, context))

    def _outcome(self, waited: asyncio.Future[T], context: Context) -> T:
        """What a wait came to; every error as one that closes the connection."""
        try:
            return waited.result()
        except (ProtocolError, CloseConnection):
            raise
        except asyncio.CancelledError:
            raise CloseConnection("the request was cancelled") from None
        except Exception as error:
            raise self._fault(context, error) from error

    # -- large requests and answers ---------------------------------------------------------------

    async def _serve_large(
        self, route_: Route, decoding: Work[tuple[Any, int]], context: Context
    ) -> Parts:
        """All stages of a request that is too large to be decoded at a stretch."""
        turns = self._shared.turns
        request, _ = await turns.finish(decoding)
        if route_.parts is None:
            answer = await self._prepared(route_, request, context)
        else:
            answer = await self._served_in_parts(route_.parts, route_, request, context)
        # A wait may be long: it must not keep what was decoded, nor the frame.
        del request, decoding
        context.connection.frame_in_use = False
        return await self._answer(route_, answer, context)

    async def _served_in_parts(
        self, parts: SplitAndJoin, route_: Route, request: object, context: Context
    ) -> Answer:
        """The first two stages of every part of a request; what joins the answers is left to do."""
        split, join = parts
        answers = []
        for part in split(request):
            answers.append(await self._prepared(route_, part, context))
            await self._shared.turns.pause()
        return self._joined(answers, join)

    async def _prepared(self, route_: Route, request: object, context: Context) -> Answer:
        """The first two stages of a request, in a task."""
        if route_.prepare is not None:
            prepared = route_.prepare(request, context)
            if isinstance(prepared, asyncio.Future):
                prepared = await prepared
            context.prepared = prepared
        return route_.handler(request, context)

    async def _joined(self, answers: list[Answer], join: Callable[[Sequence[Any]], Any]) -> Answer:
        """One answer of several; each may still be awaited, or there may be none."""
        settled = [
            await answer if isinstance(answer, asyncio.Future) else answer for answer in answers
        ]
        answered = [answer for answer in settled if answer is not None]
        return join(answered) if answered else None

    async def _answer(self, route_: Route, answer: Answer, context: Context) -> Parts:
        """Bring a handler's answer to its end, whatever it is, and encode it."""
        turns = self._shared.turns
        if type(answer) is GeneratorType:
            answer = await turns.finish(Work(answer))
        if isinstance(answer, (asyncio.Future, CoroutineType)):
            if route_.waits:
                turns.leave()
            answer = await answer
        encoded = self._encode(context, answer)
        return encoded if encoded is None or isinstance(encoded, list) else await encoded

    def _encode(self, context: Context, message: object) -> Encoded:
        """The parts of an answer, or a coroutine that comes to them where it is large."""
        metrics = context.metrics
        metrics.latency.observe(self._shared.clock.monotonic() - context.started_at)
        if self._throttling.is_on:
            message = self._throttled(context, message)
        if message is None:
            return None
        version = context.header.api_version
        if isinstance(message, EncodedAnswer):
            _check_size(len(message.body), context)
            body, size = message.parts(), len(message.body)
            return self._frame(context, body, size, is_shared=message.is_kept)
        if not context.in_pieces:
            body, size = encode_sized(message, version)
            if size <= LARGE_ANSWER_BYTES:
                correlation_id = context.header.correlation_id
                parts = frame_response(context.api, version, correlation_id, body, size)
                for part in parts:
                    metrics.response_bytes += part_size(part)
                return parts
            return self._frame(context, body, size)
        encoding = Work(encode_in_pieces(message, version))
        if encoding.run_piece():
            return self._frame(context, *encoding.result)
        return self._encode_rest(encoding, context)

    def _throttled(self, context: Context, message: Any) -> object:
        """Count the request against the quotas of its client; its answer, which says how long to
        wait."""
        wait_ms = self._throttling.answered(context, is_silent=message is None)
        if not wait_ms or message is None:
            return message
        if isinstance(message, EncodedAnswer):
            body = message.body
            if context.api.key == METADATA_KEY and context.version >= _METADATA_WITH_THROTTLE:
                return EncodedAnswer(wait_ms.to_bytes(4, "big") + body[4:])
            message, _ = decode(context.api.response, context.version, memoryview(body), 0)
        if hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = wait_ms
        return message

    async def _encode_rest(self, encoding: Work[tuple[list[Part], int]], context: Context) -> Parts:
        """Encode a large answer piece by piece, unless it gets too large."""
        turns = self._shared.turns
        try:
            await turns.take()
            while not encoding.run_piece():
                _check_size(encoding.progress, context)
                await turns.pause()
        finally:
            # Given up, it lets go of what it encodes here, not when the error is collected.
            encoding.close()
        framed = self._frame(context, *encoding.result)
        return framed if framed is None or isinstance(framed, list) else await framed

    def _frame(
        self, context: Context, body: list[Part], size: int, *, is_shared: bool = False
    ) -> Encoded:
        """Put the header in front; have the answer charged first where it holds much memory.

        A body that is shared lies in the cache, where its memory has a bound of its own.
        """
        header = context.header
        parts = frame_response(context.api, header.api_version, header.correlation_id, body, size)
        context.metrics.response_bytes += sum(map(part_size, parts))
        if size <= LARGE_ANSWER_BYTES or is_shared:
            return parts
        held = held_bytes(parts)
        if held <= LARGE_ANSWER_BYTES:
            return parts
        _check_size(held, context)
        if self._shared.answer_memory.charge(parts, context.connection):
            return parts
        return self._await_memory(parts, context)

    async def _await_memory(self, parts: list[Part], context: Context) -> Parts:
        memory, turns = self._shared.answer_memory, self._shared.turns
        if memory.waiting_bytes < WAITING_BYTES_MAX:
            turns.leave()
        else:
            await turns.take()
        await memory.wait_and_charge(parts, context.connection)
        return parts

    def _step_down(self, api: Api, correlation_id: int) -> Result:
        from tidelog.server.handlers.api_versions import unsupported_version

        return encode_response(api, 0, correlation_id, unsupported_version())

    def _fault(self, context: Context, error: Exception) -> CloseConnection:
        """An error nobody expected: logged with its trace, and the connection is closed.

        Closing is safer than UNKNOWN_SERVER_ERROR, on which Java's producer duplicates records.
        """
        header = context.header
        _log.error(
            "request failed api=%s version=%s client_id=%r peer=%s error=%s",
            context.api.name, header.api_version, header.client_id, context.connection.peer, error,
            # The partition has logged its own.
            exc_info=None if isinstance(error, PartitionBrokenError) else error,
        )  # fmt: skip
        return CloseConnection(f"{context.api.name} failed: {error!r}")


async def _without_header(answer: Coroutine[Any, Any, Any]) -> Parts:
    """A refusal cannot be said in such an answer: the connection is closed."""
    answered = await answer
    return None if answered.error_code else [_sized(answered.auth_bytes)]


def _sized(token: bytes) -> bytes:
    return len(token).to_bytes(4, "big") + token


def _check_size(size: int, context: Context) -> None:
    """Give up an answer that is too large: its protocol has no place for such an error."""
    if size > ANSWER_BYTES_MAX:
        raise CloseConnection(
            f"the answer to {context.api.name} is larger than {ANSWER_BYTES_MAX} bytes;"
            " ask for fewer things at a time"
        )
