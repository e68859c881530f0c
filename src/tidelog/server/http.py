"""A tiny GET-only responder for /metrics, /healthz and /readyz. One request per connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

_REQUEST_BYTES_MAX = 8 * 1024
_DEADLINE_SECONDS = 5.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

Page = Callable[[], tuple[int, str]]


class HttpResponder(asyncio.Protocol):
    """Collects the head of one request, answers it, closes."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(_DEADLINE_SECONDS, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            self._answer(*self._respond())
        elif len(self._received) > _REQUEST_BYTES_MAX:
            self._answer(400, "the request is too large\n")

    def _respond(self) -> tuple[int, str]:
        words = bytes(self._received).split(b"\r\n", 1)[0].split()
        if len(words) < 2:
            return 400, "not an HTTP request\n"
        if words[0] not in (b"GET", b"HEAD"):
            return 405, "only GET is served here\n"
        path = words[1].split(b"?", 1)[0].decode("latin-1")
        page = self._pages.get(path)
        if page is None:
            return 404, f"served here: {' '.join(sorted(self._pages))}\n"
        return page()

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
            "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        is_head = self._received.startswith(b"HEAD")
        self._transport.write(head.encode() + (b"" if is_head else body))
        self._transport.close()
