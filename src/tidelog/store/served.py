"""The embedded store, served by the process that owns it to others of the same user.

`StoreServer` listens on a Unix socket in a directory that only its user may enter, and asks the
kernel who has connected. A connection is a session: it ends with the connection, and when nothing
was heard from its client for the time of a lease, for a stopped process keeps its socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from tidelog.errors import TidelogError
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import Cancel, StoreError
from tidelog.store.wire import (
    Message,
    decode_operations,
    encode_error,
    encode_node,
    frame,
    take_frames,
)

logger = logging.getLogger(__name__)

_CREDENTIALS: Final = struct.Struct("3i")
# How often the socket is looked after.
_LOOK_S = 2.0
Handler = Callable[[EmbeddedStore, Message], Awaitable[Any]]


class StoreServer:
    """Serves one store from `start` to `close`.

    server = StoreServer(store, "data/store.sock", lease_s=9.0)
    await server.start()
    """

    def __init__(self, store: EmbeddedStore, path: str, lease_s: float) -> None:
        self.store = store
        self.lease_s = lease_s
        self._path = path
        self._server: asyncio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.connections: set[_Connection] = set()

    async def start(self) -> None:
        await self._listen()
        self._keeper = asyncio.create_task(self._keep_socket(), name="store-socket")

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), self._path)
        os.chmod(self._path, 0o600)

    async def _keep_socket(self) -> None:
        """Make the socket again where somebody has removed it: brokers that come back need it."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._is_there():
                continue
            if self._server is not None:
                self._server.close()
            try:
                await self._listen()
            except OSError as error:
                logger.error("the socket of the metadata store is gone: %s", error)
            else:
                logger.warning("the socket of the metadata store was removed: made again")

    def _is_there(self) -> bool:
        return os.path.exists(self._path)

    async def close(self) -> None:
        """End every session; the store itself stays open."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._server is not None:
            self._server.close()
        ended = [connection.end("the store is closing") for connection in tuple(self.connections)]
        await asyncio.gather(*ended)
        if self._server is not None:
            await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One client: its session, and what it asked for, answered in order."""

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._calls: asyncio.Queue[Message] = asyncio.Queue()
        self._watches: dict[int, Cancel] = {}
        self._task: asyncio.Task[None] | None = None
        self._lease: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of it.
        self._transport = cast(asyncio.Transport, transport)
        if _user_of(self._transport) not in (None, os.getuid()):
            logger.warning("another user's process asked for the metadata store and was refused")
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._task = self._loop.create_task(self._serve())
        self._heard()

    def data_received(self, data: bytes) -> None:
        self._heard()
        self._buffer += data
        try:
            for message in take_frames(self._buffer):
                self._calls.put_nowait(message)
        except (StoreError, ValueError) as error:
            logger.warning("a client of the metadata store sent nonsense error=%s", error)
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._lease is not None:
            self._lease.cancel()

    def end(self, reason: str) -> asyncio.Future[Any]:
        """Hang up; done once the session has ended."""
        logger.info("a session of the metadata store ends reason=%s", reason)
        self._transport.abort()
        return asyncio.gather(*([self._task] if self._task else []), return_exceptions=True)

    def _heard(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
        self._lease = self._loop.call_later(self._server.lease_s, self.end, "its client is silent")

    async def _serve(self) -> None:
        session: EmbeddedStore | None = None
        try:
            session = await self._server.store.new_session()
            self._send({"session": session.session, "lease_s": self._server.lease_s})
            while True:
                message = await self._calls.get()
                self._send(await self._answer(session, message))
        except (TidelogError, LookupError, TypeError, ValueError) as error:
            logger.error("a session of the metadata store fails error=%r", error)
        finally:
            for cancel in self._watches.values():
                cancel()
            self._server.connections.discard(self)
            # Nobody answers here any more, so the client must not wait for it.
            self._transport.abort()
            if session is not None:
                # Shielded: the ephemeral nodes must go whatever ends this task.
                await asyncio.shield(self._loop.create_task(session.close()))

    async def _answer(self, session: EmbeddedStore, message: Message) -> Message:
        try:
            result = await self._do(session, message)
        except StoreError as error:
            return {"id": message["id"], "error": encode_error(error)}
        return {"id": message["id"], "result": result}

    async def _do(self, session: EmbeddedStore, message: Message) -> Any:
        call, path = message["call"], message.get("path", "")
        if call == "read":
            return encode_node(await session.read(path))
        if call == "children":
            return await session.children(path)
        if call == "tree":
            tree = await session.tree(path)
            return {path: encode_node(node) for path, node in tree.items()}
        if call == "multi":
            return await session.multi(decode_operations(message["operations"]))
        if call == "watch":
            self._watch(session, message["watch"], path)
        elif call == "unwatch":
            cancel = self._watches.pop(message["watch"], None)
            if cancel is not None:
                cancel()
        # "ping" and "sync" want an answer and nothing else.
        return None

    def _watch(self, session: EmbeddedStore, number: int, path: str) -> None:
        def tell(event: Any) -> None:
            self._send({"watch": number, "path": event.path, "revision": event.revision})

        self._watches[number] = session.watch(path, tell)

    def _send(self, message: Message) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame(message))


def _user_of(transport: asyncio.Transport) -> int | None:
    """The user id of the process at the other end; None where the system does not tell."""
    peer = transport.get_extra_info("socket")
    option = getattr(socket, "SO_PEERCRED", None)
    if peer is None or option is None:
        return None
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(user)
