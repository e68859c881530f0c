"""One client's connection: frames in, answers out, in order, within bounds.

What it promises: requests are applied in the order of arrival and answered in that order; a
request that waits holds up its successors, except where its API overlaps (a produce that waits to
be committed); nothing is read from a peer that does not read its answers; a bad frame closes this
connection, says why in the log, and touches nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from tidelog.errors import ProtocolError, TidelogError
from tidelog.host.prompt import when_done
from tidelog.protocol.apis import SASL_KEYS
from tidelog.security.authorizer import ANONYMOUS
from tidelog.security.sasl import Login, SaslServer
from tidelog.server.audit_connections import record_login
from tidelog.server.dispatch import CloseConnection, Pending, Result
from tidelog.server.exchange import Exchange
from tidelog.server.outbox import Outbox
from tidelog.server.receive_buffer import INITIAL_BYTES, ReceiveBuffer
from tidelog.server.sockets import address_of, size_buffers
from tidelog.server.throttling import LoopUse

if TYPE_CHECKING:
    from tidelog.server.listener import Listener

_log = logging.getLogger(__name__)

# While it is not known who sends them, frames are as small as SASL's messages are.
_SASL_FRAME_BYTES_MAX = 64 * 1024


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of a client connection."""

    __slots__ = (
        "__weakref__", "_awaiting_memory", "_buffer", "_closing", "_draining", "_exchanges",
        "_frontend", "_is_halted", "_last_words", "_loop", "_muted", "_outbox", "_reading_paused",
        "_start_request", "_transport", "_unproven_since", "authenticated_at", "bytes_received",
        "frame_in_use", "host", "is_timed", "known", "last_active_at", "listener",
        "local_host", "local_port", "login", "loop_use", "peer", "principal", "sasl",
        "sasl_mechanism",
    )  # fmt: skip

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._frontend = listener.frontend
        self._loop = asyncio.get_running_loop()
        self._buffer = ReceiveBuffer(self._frontend.limits.frame_bytes_max)
        self._exchanges: deque[Exchange] = deque()
        self._reading_paused = False
        self._awaiting_memory = False
        self._closing = False
        self._draining = False
        # One of these, or muted: no request is taken up.
        self._is_halted = False
        self._last_words = "the broker is shutting down"
        # Who takes the next request: another while the connection authenticates.
        self._start_request = self._frontend.dispatcher.start
        # What shortcuts know of its requests, by the key of the API; see `dispatch.Shortcut`.
        self.known: dict[int, Any] = {}
        # True while the request that came last is still decoded or prepared from its frame.
        self.frame_in_use = False
        # How long its requests have kept the loop busy, and when it may go on after too much.
        self.loop_use = LoopUse()
        self.is_timed = self._frontend.throttling.times_requests
        self._muted: asyncio.TimerHandle | None = None
        self.principal = ANONYMOUS
        # How it has authenticated, and when.
        self.login: Login | None = None
        self.authenticated_at = 0.0
        # The exchange that is to prove who this is, while it is under way.
        self.sasl: SaslServer | None = None
        self.sasl_mechanism = ""
        # Since when it is awaited who this is; None where it is known, or nobody asks.
        self._unproven_since: float | None = None
        self.last_active_at = self._loop.time()
        # The client's address without the port, as access-control lists name hosts.
        self.peer = self.host = self.local_host = "?"
        self.local_port = 0
        self.bytes_received = 0

    # -- asyncio's calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        self.peer = address_of(peername)
        if isinstance(peername, tuple):
            self.host = peername[0]
        sockname = transport.get_extra_info("sockname")
        if isinstance(sockname, tuple):
            self.local_host, self.local_port = sockname[0], sockname[1]
        size_buffers(transport, self._frontend.limits)
        self._outbox = Outbox(
            self._transport, self._frontend.offload, self._frontend.scratch, self._process
        )
        try:
            self._identify(transport.get_extra_info("ssl_object"))
            is_wanted = self.listener.connected(self)
        except (TidelogError, ValueError) as error:
            self.listener.authentication_failed(self, str(error))
            is_wanted = False
        if not is_wanted:
            self._closing = self._is_halted = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = self._is_halted = True
        self._unmute()
        self._outbox.close()
        self._frontend.memory.forget(self)
        for exchange in self._exchanges:
            if exchange.future is not None and not exchange.future.done():
                exchange.future.cancel()
        self._exchanges.clear()
        # Something may still refer to the connection: the memory does not wait for that to end.
        self._buffer.drop()
        self.listener.forget(self)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, count: int) -> None:
        self.bytes_received += count
        self.last_active_at = self._loop.time()
        self._buffer.received(count)
        if self.is_timed:
            self._process_timed()
        else:
            self._process()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._outbox.transport_full()

    def resume_writing(self) -> None:
        self.last_active_at = self._loop.time()
        self._outbox.transport_ready()

    # -- who is at the other end ------------------------------------------------------------------

    def _identify(self, tls: ssl.SSLObject | None) -> None:
        security = self.listener.security
        self.principal = security.principal_of(tls)
        if security.is_sasl:
            self._await_proof()
        elif self.principal is not ANONYMOUS:
            record_login(self._frontend.dispatcher.audit, self)

    def _await_proof(self) -> None:
        """From here on nothing is taken but SASL's messages, until it is known who this is."""
        if self._unproven_since is None:
            self._unproven_since = self._loop.time()
        self._start_request = self._frontend.dispatcher.start_unauthenticated
        self._buffer.frame_bytes_max = _SASL_FRAME_BYTES_MAX

    def begin_authentication(
        self, sasl: SaslServer, mechanism: str, *, without_headers: bool = False
    ) -> None:
        """The exchange begins; `without_headers` its messages come as they are."""
        self._await_proof()
        self.sasl = sasl
        self.sasl_mechanism = mechanism
        if without_headers:
            self._start_request = self._frontend.dispatcher.start_token

    def authenticated(self, login: Login) -> None:
        self.sasl = None
        self._unproven_since = None
        self.login = login
        self.authenticated_at = self._loop.time()
        self.principal = login.principal
        self._start_request = self._frontend.dispatcher.start
        if login.lifetime_ms:
            self._start_request = self._start_in_session
        self._buffer.frame_bytes_max = self._frontend.limits.frame_bytes_max
        record_login(self._frontend.dispatcher.audit, self)

    @property
    def is_authenticated(self) -> bool:
        return self.login is not None

    def _start_in_session(self, frame: memoryview, connection: Connection) -> Result:
        """For a login that ends: after that it may be renewed, and nothing else is taken."""
        assert self.login is not None
        is_over = (self._loop.time() - self.authenticated_at) * 1000 > self.login.lifetime_ms
        if is_over and int.from_bytes(frame[:2], "big") not in SASL_KEYS:
            raise CloseConnection("its session has ended, and it has not authenticated again")
        return self._frontend.dispatcher.start(frame, connection)

    # -- what the listener and the housekeeping ask ---------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nothing asked, nothing owed."""
        return not self._exchanges and not self._outbox.is_busy

    def is_unproven_for(self, now: float) -> float:
        """For how many seconds it is awaited who this is."""
        return 0.0 if self._unproven_since is None else now - self._unproven_since

    @property
    def is_receiving_frame(self) -> bool:
        """True where part of a frame has come in and the rest is awaited."""
        return not self._exchanges and self._buffer.unread_bytes > 0

    @property
    def is_receiving(self) -> bool:
        """True where only the peer holds up the frame that is on its way."""
        is_read = not self._reading_paused and not self._is_blocked()
        return is_read and self._buffer.unread_bytes > 0

    @property
    def is_muted(self) -> bool:
        """True where it has used more than its quota, and is not read for a while."""
        return self._muted is not None

    def mute(self, seconds: float) -> None:
        """Read nothing for so long; what was asked before is answered all the same."""
        if self._closing:
            return
        until = self._loop.time() + seconds
        if self._muted is not None:
            until = max(until, self._muted.when())
            self._muted.cancel()
        self._muted = self._loop.call_at(until, self._go_on)
        self._is_halted = True
        self._pause_reading()

    def close_later(self, seconds: float, reason: str) -> None:
        """Read nothing, and close after so long."""
        self.mute(seconds)
        self._unmute()
        self._muted = self._loop.call_later(seconds, self.close, reason)

    def _unmute(self) -> None:
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None

    def _go_on(self) -> None:
        self._muted = None
        self._is_halted = self._closing or self._draining
        self.last_active_at = self._loop.time()
        self._process()

    @property
    def held_bytes(self) -> int:
        return self._buffer.capacity

    def return_unused_memory(self) -> None:
        """Others wait for memory: give back what no frame needs.

        A request that was applied does not need its bytes any more, though its answer may wait.
        """
        if not self._closing and not self._awaiting_memory:
            self._give_memory_back()

    def drop(self) -> None:
        """Others wait for the memory that our frame uses up, and it does not get on."""
        if not self._closing:
            self.listener.frame_dropped(self)
            self.close("its request takes too long for the memory that it holds")
            self._transport.abort()

    @property
    def bytes_taken(self) -> int | None:
        return self._outbox.bytes_taken

    def drop_unread(self) -> None:
        """Others wait for the memory that our answer uses up, and the peer does not read it."""
        if not self._closing:
            self.listener.answer_dropped(self)
            self.close("it does not read an answer whose memory others wait for")
            self._transport.abort()

    def memory_granted(self) -> None:
        self._awaiting_memory = False
        if self._closing:
            return
        self._grow()
        self._process()

    def shrink_if_idle(self) -> None:
        """Give back the memory of a buffer that grew and is not in use."""
        if self.is_idle and not self.is_receiving_frame:
            self._give_memory_back()

    def drain(self) -> None:
        """Answer what was asked, then close; new requests are not read."""
        self._draining = self._is_halted = True
        self._pause_reading()
        if self.is_idle:
            self.close(self._last_words)

    def finish(self, reason: str) -> None:
        """Close behind the answer that is being made."""
        self._last_words = reason
        self.drain()

    def close(self, reason: str, *, level: int = logging.DEBUG) -> None:
        if self._closing:
            return
        self._closing = self._is_halted = True
        _log.log(
            level, "closing connection peer=%s listener=%s reason=%s",
            self.peer, self.listener.name, reason,
        )  # fmt: skip
        if level >= logging.WARNING:
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Do not wait for the peer any more."""
        self._transport.abort()

    # -- requests -------------------------------------------------------------------------------

    def _process_timed(self) -> None:
        """As `_process`, where somebody has a quota for the time of requests."""
        self.loop_use.begin(self._loop.time())
        self._process()
        self.loop_use.end(self._loop.time())

    def _process(self) -> None:
        """Take up frames for as long as neither order nor back-pressure forbids it."""
        buffer = self._buffer
        try:
            while not self._is_blocked():
                frame = buffer.next_frame()
                if frame is None:
                    self._await_rest_of_frame()
                    return
                if buffer.unread_bytes:
                    # More was sent with it: let the small answers leave together.
                    self._outbox.hold()
                self._start(frame)
        except (ProtocolError, CloseConnection) as error:
            self._refuse(error)
            return
        except Exception:
            self._fail()
            return
        finally:
            self._outbox.let_go()
        if self._draining and self.is_idle:
            self.close(self._last_words)
        elif self._buffer.is_full:
            self._pause_reading()

    def _is_blocked(self) -> bool:
        if self._is_halted or self._outbox.is_busy:
            return True
        exchanges = self._exchanges
        if not exchanges:
            return False
        limit = self._frontend.limits.requests_in_flight_max
        return not exchanges[-1].overlaps or len(exchanges) >= limit

    def _start(self, frame: memoryview) -> None:
        result = self._start_request(frame, self)
        if not self._exchanges and not isinstance(result, Pending):
            # Answered on the spot with nothing before it, as most requests are.
            if result:
                self._outbox.send(result)
            return
        self._frontend.memory.excuse(self)
        exchange = Exchange()
        self._exchanges.append(exchange)
        self._take(exchange, result)

    def _take(self, exchange: Exchange, result: Result) -> None:
        """Deal with what a stage of the request came to: an answer, nothing, or a wait."""
        if isinstance(result, Pending):
            exchange.overlaps = result.overlaps
            exchange.future = result.future
            when_done(result.future, lambda _: self._resume(exchange, result))
            return
        exchange.future = None
        exchange.overlaps = True
        exchange.parts = result if result is not None else []
        self._send_in_order()

    def _resume(self, exchange: Exchange, pending: Pending) -> None:
        if self._closing:
            return
        is_followed = self._is_followed(exchange)
        if is_followed:
            # One commit has ended both waits: let the answers leave together.
            self._outbox.hold()
        if self.is_timed:
            self.loop_use.begin(self._loop.time())
        try:
            self._take(exchange, pending.resume())
        except (ProtocolError, CloseConnection) as error:
            self._refuse(error)
        except Exception:
            self._outbox.let_go()
            self._fail()
        else:
            if not is_followed:
                self._process()
            if self.is_timed:
                self.loop_use.end(self._loop.time())

    def _is_followed(self, exchange: Exchange) -> bool:
        """Whether the request behind this one has its result as well, and is resumed next."""
        exchanges = self._exchanges
        if len(exchanges) < 2 or exchanges[0] is not exchange:
            return False
        after = exchanges[1].future
        return after is not None and after.done()

    def _refuse(self, error: Exception) -> None:
        """Close for what the peer sent. It may do that for ever, so the log says so at a rate."""
        self._frontend.metrics.protocol_errors += 1
        self._outbox.let_go()
        count = self.listener.refusals.count(self.host)
        reason = str(error) if count <= 1 else f"{error} (one of {count} from {self.host})"
        self.close(reason, level=logging.WARNING if count else logging.DEBUG)
        self._transport.abort()

    def _fail(self) -> None:
        """A fault of ours: it costs this connection, and the trace is in the log."""
        _log.exception("request failed peer=%s", self.peer)
        self.close("a fault of the broker", level=logging.ERROR)

    def _send_in_order(self) -> None:
        exchanges = self._exchanges
        while exchanges and exchanges[0].parts is not None:
            parts = exchanges.popleft().parts
            if parts:
                self._outbox.send(parts)

    # -- room for the next frame ------------------------------------------------------------------

    def _await_rest_of_frame(self) -> None:
        if self._awaiting_memory:
            return
        memory = self._frontend.memory
        wanted = self._buffer.wanted_capacity()
        if wanted == 0:
            if memory.under_pressure:
                self._give_memory_back()
            if self._reading_paused:
                self._resume_reading()
            return
        if memory.reserve(self, wanted - self._buffer.capacity, self._buffer.frame_bytes):
            self._grow()
        else:
            self._awaiting_memory = True
            self._pause_reading()

    def _grow(self) -> None:
        self._buffer.resize(self._buffer.wanted_capacity() or self._buffer.capacity)
        self._resume_reading()

    def _give_memory_back(self) -> None:
        """Shrink to the first size, unless more than that has arrived of the next frame.

        A request that still reads its frame keeps the buffer through its view: the memory would
        be given back in the books alone.
        """
        if self.frame_in_use:
            return
        before = self._buffer.capacity
        if before > INITIAL_BYTES > self._buffer.unread_bytes:
            self._buffer.resize(INITIAL_BYTES)
            self._frontend.memory.release(self, before - INITIAL_BYTES)

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._frontend.memory.excuse(self)
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._draining or self._muted is not None or self._transport.is_closing():
            return
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
