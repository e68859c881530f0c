"""A session with a store that another process of this machine serves (`store/served.py`).

The session ends with the connection: nothing survives it, so `SUSPENDED` means that the server has
not answered for a third of the lease, and `LOST` that the connection is gone or the lease over.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from tidelog.store.port import (
    Cancel,
    ConnectionLoss,
    Operation,
    SessionCallback,
    SessionExpired,
    SessionState,
    Stored,
    StoreUnreachable,
    WatchCallback,
    WatchEvent,
    check_transaction,
)
from tidelog.store.watches import SessionWatches
from tidelog.store.wire import (
    Message,
    decode_error,
    decode_node,
    encode_operations,
    frame,
    take_frames,
)


async def connect_remote(path: str) -> RemoteStore:
    """A new session; StoreUnreachable where nobody serves the store."""
    loop = asyncio.get_running_loop()
    try:
        transport, store = await loop.create_unix_connection(RemoteStore, path)
    except OSError as error:
        raise StoreUnreachable(f"the metadata store at {path} is not served: {error}") from error
    try:
        await store.begun
    except BaseException:
        transport.abort()
        raise
    return store


class _Call(NamedTuple):
    """A question that waits for its answer."""

    answer: asyncio.Future[Any]
    operations: Sequence[Operation]
    asked_at: float


class RemoteStore(asyncio.Protocol):
    """The port over a connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = self._loop.create_future()
        self._buffer = bytearray()
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._watches: dict[int, WatchCallback] = {}
        self.session = 0
        self._lease_s = 0.0
        self.session_state = SessionState.CONNECTED
        self._session_watches = SessionWatches()
        self._timer: asyncio.TimerHandle | None = None
        # When the last question was asked that has been answered.
        self._heard_at = self._loop.time()
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of it.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        for message in take_frames(self._buffer):
            self._take(message)
        if self.session_state is SessionState.SUSPENDED and self.silent_s <= self._lease_s / 3:
            self._move_to(SessionState.CONNECTED)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.begun.done():
            self.begun.set_exception(StoreUnreachable("the metadata store closed the connection"))
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.answer.done():
                call.answer.set_exception(
                    ConnectionLoss("the metadata store closed the connection")
                )
        if self.session_state is not SessionState.LOST:
            self._move_to(SessionState.LOST)
        self._closed.set_result(None)

    def _take(self, message: Message) -> None:
        if "watch" in message:
            callback = self._watches.get(message["watch"])
            if callback is not None:
                callback(WatchEvent(message["path"], message["revision"]))
        elif "id" in message:
            call = self._calls.pop(message["id"])
            self._heard_at = max(self._heard_at, call.asked_at)
            if call.answer.done():
                return
            if "error" in message:
                call.answer.set_exception(decode_error(message["error"], call.operations))
            else:
                call.answer.set_result(message["result"])
        else:
            self.session, self._lease_s = message["session"], message["lease_s"]
            self._beat()
            self.begun.set_result(None)

    def _beat(self) -> None:
        """Keep the lease, and see whether the server still answers."""
        if self.silent_s > self._lease_s:
            self._transport.abort()
            return
        if self.silent_s > self._lease_s / 3 and self.session_state is SessionState.CONNECTED:
            self._move_to(SessionState.SUSPENDED)
        self._transport.write(frame({"id": self._expect(()), "call": "ping"}))
        self._timer = self._loop.call_later(self._lease_s / 6, self._beat)

    # -- the port ---------------------------------------------------------------------------------

    @property
    def silent_s(self) -> float:
        return self._loop.time() - self._heard_at

    async def sync(self) -> None:
        await self._call("sync")

    async def read(self, path: str) -> Stored | None:
        return decode_node(await self._call("read", path=path))

    async def children(self, path: str) -> list[str]:
        return list(await self._call("children", path=path))

    async def tree(self, path: str) -> Mapping[str, Stored]:
        nodes = await self._call("tree", path=path)
        decoded = ((each, decode_node(node)) for each, node in nodes.items())
        return {each: node for each, node in decoded if node is not None}

    async def multi(self, operations: Sequence[Operation]) -> int:
        operations = tuple(operations)
        check_transaction(operations)
        encoded = encode_operations(operations)
        return int(await self._call("multi", operations, operations=encoded))

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        number = next(self._numbers)
        self._watches[number] = callback
        self._tell("watch", watch=number, path=path)

        def cancel() -> None:
            if self._watches.pop(number, None) is not None:
                self._tell("unwatch", watch=number)

        return cancel

    def watch_session(self, callback: SessionCallback) -> Cancel:
        return self._session_watches.add(callback)

    async def close(self) -> None:
        self._transport.close()
        await self._closed

    def _expect(self, operations: Sequence[Operation]) -> int:
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._loop.create_future()
        # Nobody may be waiting for it: a ping's answer only has to come.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._calls[number] = _Call(future, operations, self._loop.time())
        return number

    def _tell(self, call: str, **fields: object) -> None:
        """Ask for something whose answer nobody awaits."""
        if self.session_state is not SessionState.LOST:
            self._transport.write(frame({"id": self._expect(()), "call": call, **fields}))

    async def _call(self, call: str, sent: Sequence[Operation] = (), **fields: object) -> Any:
        if self.session_state is SessionState.LOST:
            raise SessionExpired("the session with the metadata store has ended")
        number = self._expect(sent)
        answer = self._calls[number].answer
        self._transport.write(frame({"id": number, "call": call, **fields}))
        return await answer

    def _move_to(self, state: SessionState) -> None:
        self.session_state = state
        self._session_watches.tell(state)
