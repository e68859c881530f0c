"""One transport under a connection's state, and the future of each call made on it.

Promises: a call's future gets the outcome as its result, an error too, and exactly once; where the
connection is lost every call that is outstanding gets that error. Bytes of a large answer are
received straight into the memory that the connection has for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tidelog.client.connection import Call, Connection
from tidelog.client.faults import NetworkError
from tidelog.errors import ProtocolError, TidelogError

if TYPE_CHECKING:
    import ssl

# Small answers, and the beginnings of large ones, come through here.
_SCRATCH_BYTES = 64 << 10


class Channel(asyncio.BufferedProtocol):
    """The asyncio protocol of a connection to a broker; see the module's docstring."""

    def __init__(
        self,
        connection: Connection,
        on_lost: Callable[[Channel], None],
        *,
        one_at_a_time: bool = False,
    ) -> None:
        self.connection = connection
        self._on_lost = on_lost
        # Read no further after an answer until `resume`: its memory is used again.
        self._one_at_a_time = one_at_a_time
        self._is_paused = False
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._is_in_scratch = False

    # -- asyncio's calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # So that we are told when all is written.
        self._transport.set_write_buffer_limits(high=0)
        self._push()

    def resume_writing(self) -> None:
        self.connection.sent()
        self._deliver()

    def get_buffer(self, size_hint: int) -> memoryview:
        room = self.connection.room
        self._is_in_scratch = room is None
        return self._scratch if room is None else room

    def buffer_updated(self, count: int) -> None:
        if self.connection.closed:
            return
        try:
            if self._is_in_scratch:
                self.connection.receive(bytes(self._scratch[:count]))
            else:
                self.connection.received(count)
        except ProtocolError as error:
            self._deliver()
            self.lose(NetworkError(self.connection.address, str(error)))
            return
        except TidelogError as error:
            # The log-in was refused.
            self._deliver()
            self.lose(error)
            return
        self._push()
        if self._deliver() and self._one_at_a_time and self.connection.outstanding:
            assert self._transport is not None
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        address = self.connection.address
        if self._is_tls() and not self.connection.closed and not self.connection.versions:
            from tidelog.client.tls import explain

            self.lose(explain(error, address, address.rpartition(":")[0]))
            return
        reason = str(error) if error else "the broker closed the connection"
        self.lose(NetworkError(address, reason))

    # -- what its owner calls ----------------------------------------------------------------

    def send(self, call: Call) -> asyncio.Future[object]:
        """Send a call; the future gets its outcome, an error too, as a result."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[self.connection.send(call)] = future
        self._push()
        self._deliver()
        return future

    def resume(self) -> None:
        """The answer that came last is dealt with: read on."""
        if self._is_paused:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def lose(self, error: TidelogError) -> None:
        """Close, and answer what is outstanding with `error`; once is enough."""
        if not self.connection.closed:
            self.connection.fail(error)
            self._on_lost(self)
            if self._transport is not None:
                self._transport.abort()
        self._deliver()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """TLS, once it is connected; it has the broker's certificate."""
        transport = self._transport
        return None if transport is None else transport.get_extra_info("ssl_object")

    def _is_tls(self) -> bool:
        transport = self._transport
        return transport is not None and transport.get_extra_info("sslcontext") is not None

    def _push(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            parts = self.connection.take_output()
            if parts:
                self._transport.writelines(cast("list[bytes]", parts))
            if not self._transport.get_write_buffer_size():
                self.connection.sent()

    def _deliver(self) -> int:
        """Hand out the answers; how many there were."""
        answers = self.connection.take_answers()
        for answer in answers:
            future = self._waiting.pop(answer.ticket)
            if not future.done():
                future.set_result(answer.outcome)
        return len(answers)
