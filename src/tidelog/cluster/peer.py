"""A connection from one broker to another, for one purpose.

    peer = PeerConnection(host.network, endpoint)
    response = await peer.request("DescribeCluster", DescribeClusterRequest(), timeout_s=5)

Promises: it connects with the first request, and again with the first after a loss; it negotiates
versions and authenticates before anything else. Requests are answered in order, so each purpose has
a connection of its own: a fetch that waits holds up nothing else. Every request has a deadline,
connecting included; missing it costs the connection. A lost connection fails all requests under way
with `NetworkError`; with `ConnectError` nothing was sent. `cluster/backoff` says when to try
again.

With `reuses_memory` all answers share one buffer: their records are views that hold until the next
request or, where another request is under way already, until `resume`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from tidelog.client.channel import Channel
from tidelog.client.connection import Call, Connection, Framer, KeptFramer
from tidelog.client.faults import ConnectError, NetworkError, RequestTimeoutError
from tidelog.cluster.image import Endpoint
from tidelog.errors import ConfigError, KafkaError, TidelogError
from tidelog.host.network import Network
from tidelog.security.scram import ScramError

# An answer to which no broker of ours comes; a larger one is refused before there is memory for it.
_FRAME_BYTES_MAX: Final = 512 << 20
_NODE: Final = -1

Send = Callable[[str, object], Awaitable[Any]]


class PeerOptions(NamedTuple):
    """How a connection introduces itself, and what it does with memory."""

    client_id: str = "tidelog-broker"
    # Called on every new connection before any request; whatever it raises ends the connection.
    authenticate: Callable[[Send], Awaitable[None]] | None = None
    reuses_memory: bool = False
    # What a new connection to a listener of that name is secured with; None without TLS.
    tls: Callable[[str], ssl.SSLContext | None] = lambda listener: None
    # Whether the certificates of such a connection prove both sides; then nobody logs in.
    proves: Callable[[str, ssl.SSLObject | None], bool] = lambda listener, tls: False
    frame_bytes_max: int = _FRAME_BYTES_MAX


class PeerConnection:
    """See the module's docstring."""

    def __init__(
        self, network: Network, endpoint: Endpoint, options: PeerOptions | None = None
    ) -> None:
        self.endpoint = endpoint
        self.address = f"{endpoint.host}:{endpoint.port}"
        # How often it has connected; what a broker keeps for one connection ends with that one.
        self.lives = 0
        self._network = network
        self._options = options or PeerOptions()
        self._opening = asyncio.Lock()
        self._channel: Channel | None = None
        # The connection that is being made.
        self._attempt: asyncio.Task[Channel] | None = None
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._channel is not None

    async def connect(self, timeout_s: float) -> None:
        """Make sure that there is a connection; ConnectError where there is none to be had."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected()
        except TimeoutError:
            raise ConnectError(self.address, "timed out") from None

    async def request(self, api_name: str, message: object, timeout_s: float) -> Any:
        """The response to a request; NetworkError where it does not come."""
        channel = None
        try:
            async with asyncio.timeout(timeout_s):
                channel = await self._connected()
                channel.resume()
                outcome = await channel.send(Call(_NODE, api_name, message))
        except TimeoutError:
            if channel is None:
                raise ConnectError(self.address, "timed out") from None
            late = RequestTimeoutError(
                self.address, f"no answer to {api_name} within {timeout_s:g} s"
            )
            channel.lose(late)
            raise late from None
        except asyncio.CancelledError:
            if channel is not None and self._options.reuses_memory:
                # The answer would come into the memory of the next one.
                channel.lose(NetworkError(self.address, f"{api_name} was given up"))
            raise
        if isinstance(outcome, TidelogError):
            raise outcome
        return outcome

    def send(self, api_name: str, message: object) -> asyncio.Future[object]:
        """Send a request on the connection that there is; the future's result is the response, or
        the error that kept it away. The deadline is the caller's: `close` where it passes."""
        if self._channel is None:
            raise ConnectError(self.address, "not connected")
        return self._channel.send(Call(_NODE, api_name, message))

    def resume(self) -> None:
        """The answer that came last is dealt with: receive the next into the same memory."""
        if self._channel is not None:
            self._channel.resume()

    def close(self) -> None:
        """Connect no more; requests under way get a NetworkError."""
        self._is_closed = True
        if self._attempt is not None:
            # A machine without power lets it wait for minutes.
            self._attempt.cancel()
        if self._channel is not None:
            # Not a ConnectError: what is under way was sent, and may have been done.
            self._channel.lose(NetworkError(self.address, "the connection was closed here"))

    def _closed_error(self) -> NetworkError:
        return ConnectError(self.address, "the connection was closed on this side")

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed_error()

    async def _connected(self) -> Channel:
        if self._channel is not None:
            return self._channel
        async with self._opening:
            if self._channel is None:
                self._channel = await self._opened()
                self.lives += 1
            return self._channel

    async def _opened(self) -> Channel:
        """As `_open`, until this is closed."""
        self._attempt = asyncio.create_task(self._open())
        try:
            return await self._attempt
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise self._closed_error() from None
            raise
        finally:
            self._attempt = None

    async def _open(self) -> Channel:
        self._check_open()
        options = self._options
        framer = KeptFramer if options.reuses_memory else Framer
        connection = Connection(
            options.client_id,
            options.frame_bytes_max,
            self.address,
            framer(options.frame_bytes_max),
        )
        try:
            channel = await self._network.connect(
                lambda: Channel(connection, self._lost, one_at_a_time=options.reuses_memory),
                self.endpoint.host,
                self.endpoint.port,
                options.tls(self.endpoint.listener),
            )
        except (OSError, ConfigError) as error:
            reason = getattr(error, "verify_message", "") or getattr(error, "strerror", "")
            raise ConnectError(self.address, reason or str(error)) from error
        try:
            is_proven = options.proves(self.endpoint.listener, channel.tls)
            if options.authenticate is not None and not is_proven:
                await options.authenticate(_sender(channel))
            # It may have been closed meanwhile.
            self._check_open()
        except (KafkaError, ScramError) as error:
            refusal = ConnectError(self.address, f"authentication failed: {error}")
            channel.lose(refusal)
            raise refusal from error
        except BaseException:
            channel.lose(ConnectError(self.address, "the connection did not come about"))
            raise
        if connection.closed:
            raise ConnectError(self.address, "the connection was lost at once")
        return channel

    def _lost(self, channel: Channel) -> None:
        if self._channel is channel:
            self._channel = None


def _sender(channel: Channel) -> Send:
    async def send(api_name: str, message: object) -> Any:
        outcome = await channel.send(Call(_NODE, api_name, message))
        if isinstance(outcome, TidelogError):
            raise outcome
        return outcome

    return send
