"""A tiny GET-only server for /metrics, /healthz and /readyz. One request per connection.

It needs no trust in those who ask: connections are bounded in number, in all and per address, the
oldest making room for the newest, so that some who send nothing cannot keep out those who do; a
request has five seconds and 8 KiB. A page in a browser must not be able to read what is served
here under a name of its own (DNS rebinding), so a request must name this server by an address, by
`localhost`, or by a name that was configured. `/healthz`, which says nothing, answers everybody.
TLS, and names with passwords, are in `http_security`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from ipaddress import ip_address
from typing import cast

from tidelog.host.host import Host
from tidelog.server.connection_counts import ConnectionCounts
from tidelog.server.http_security import PageSecurity

_REQUEST_BYTES_MAX = 8 * 1024
_DEADLINE_SECONDS = 5.0
_BACKLOG = 64
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_ANY_NAME = "*"

Page = Callable[[], tuple[int, str]]


class HttpServer:
    """The pages on one address."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        names: Collection[str],
        connections_max: int,
        host: Host,
        security: PageSecurity,
    ) -> None:
        self.pages = pages
        self.security = security
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._connections_max = connections_max
        self._counts = ConnectionCounts()
        self._acceptor = host.network.acceptor("metrics", self, host.clock, security.tls)

    async def start(self, host: str, port: int) -> None:
        await self._acceptor.bind(host, port)
        self._acceptor.serve(_BACKLOG)

    @property
    def port(self) -> int:
        return self._acceptor.port

    @property
    def connections(self) -> int:
        return self._counts.total

    async def close(self) -> None:
        """Accept no more, and end what is open."""
        self._acceptor.close()
        await self._acceptor.wait_closed()
        while self._counts.total:
            self._drop(self._counts.oldest())

    def refusal(self, host: str) -> str | None:
        """None: there is always room, if need be in the place of the oldest."""
        counts = self._counts
        if counts.per_address[host] >= max(1, self._connections_max // 2):
            self._drop(counts.oldest(host))
        elif counts.total >= self._connections_max:
            self._drop(counts.oldest())
        return None

    def opened(self, host: str) -> HttpResponder:
        responder = HttpResponder(self, host)
        self._counts.add(responder, host)
        return responder

    def forget(self, connection: asyncio.BaseProtocol) -> None:
        self._counts.remove(connection)

    def answers_to(self, host: bytes) -> bool:
        """True where a Host header names this server, and not somebody's page."""
        name = host.decode("latin-1").strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") <= 1:
            name = name.partition(":")[0]
        name = name.rstrip(".")
        if name in self._names or _ANY_NAME in self._names or name == "localhost":
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def _drop(self, connection: object) -> None:
        responder = cast(HttpResponder, connection)
        self._counts.remove(responder)
        responder.abort()


class HttpResponder(asyncio.Protocol):
    """Collects the head of one request, answers it, closes."""

    def __init__(self, server: HttpServer, host: str) -> None:
        self._server = server
        self._host = host
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._aborted = False
        # Its answer is on its way: nothing else is read.
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(_DEADLINE_SECONDS, self._transport.abort)
        if self._aborted:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._server.forget(self)

    def abort(self) -> None:
        """Close at once, though it may not be open yet."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            answer = self._respond()
            if answer is not None:
                self._answer(*answer)
        elif len(self._received) > _REQUEST_BYTES_MAX:
            self._answer(400, "the request is too large\n")

    def _respond(self) -> tuple[int, str] | None:
        """The answer to what was asked; None where it comes later."""
        first, *headers = bytes(self._received).replace(b"\r\n", b"\n").split(b"\n")
        words = first.split()
        if len(words) < 2:
            return 400, "not an HTTP request\n"
        if words[0] not in (b"GET", b"HEAD"):
            return 405, "only GET is served here\n"
        path = words[1].split(b"?", 1)[0].decode("latin-1")
        named = [
            (name.strip().lower(), value.strip())
            for name, _, value in (header.partition(b":") for header in headers)
        ]
        security = self._server.security
        hosts = (value for name, value in named if name == b"host")
        if path != "/healthz" and not all(map(self._server.answers_to, hosts)):
            return 403, (
                "this server was not asked for by an address, by localhost or by a name"
                " in its setting metrics.hosts\n"
            )
        if not security.is_open(path):
            authorization = dict(named).get(b"authorization", b"")
            if not security.admits(authorization, self._host):
                self._refuse(is_guess=bool(authorization))
                return None
        page = self._server.pages.get(path)
        if page is None:
            return 404, f"served here: {' '.join(sorted(self._server.pages))}\n"
        return page()

    def _refuse(self, *, is_guess: bool) -> None:
        """Ask for a password; one that was wrong is answered late."""
        answer = partial(self._answer, 401, "a name and a password are needed\n")
        if not is_guess:
            answer()
            return
        delay = self._server.security.delay_of_refusal(self._host)
        self._is_refused = True
        asyncio.get_running_loop().call_later(min(delay, _DEADLINE_SECONDS / 2), answer)

    def _answer(self, status: int, text: str) -> None:
        assert self._transport is not None
        body = text.encode()
        challenge = 'WWW-Authenticate: Basic realm="tidelog"\r\n' if status == 401 else ""
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
            "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"{challenge}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        is_head = self._received.startswith(b"HEAD")
        self._transport.write(head.encode() + (b"" if is_head else body))
        self._transport.close()
