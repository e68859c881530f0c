"""The store of a single machine: the port on an SQLite file, on one thread of its own.

Promises: those of the port; the event loop never waits for the disk. Several sessions may share
one file inside a process (`new_session`), each with its own ephemeral nodes. When the disk fails in
the middle of a commit the outcome is unknown and nothing more is committed: every session is lost,
and what is on the disk counts at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.host.disk import Disk
from tidelog.host.offload import Offload
from tidelog.store.database import Database
from tidelog.store.port import (
    Cancel,
    ConnectionLoss,
    Delete,
    Operation,
    SessionCallback,
    SessionExpired,
    SessionState,
    Stored,
    StoreError,
    WatchCallback,
    check_transaction,
)
from tidelog.store.watches import SessionWatches, Watches

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class _Shared:
    """What the sessions of one file have in common."""

    database: Database
    offload: Offload
    sessions: list[EmbeddedStore] = field(default_factory=list)
    watches: Watches = field(default_factory=Watches)
    closing: bool = False

    def written(self, operations: Sequence[Operation], done: asyncio.Future[int]) -> None:
        """A transaction was done, or nobody knows: tell everyone whom it concerns."""
        error = None if done.cancelled() else done.exception()
        if isinstance(error, ConnectionLoss):
            for session in tuple(self.sessions):
                session._lose()
        elif error is None and not done.cancelled():
            self.watches.tell(operations, done.result())


class EmbeddedStore:
    """One session on the file; closing the last one closes the file.

    store = await EmbeddedStore.open("data/metadata.db", SystemDisk(), ThreadOffload("store", 1))
    await store.multi([Create("/cluster", b"")])
    """

    # It is in this process: nothing can come between.
    silent_s = 0.0

    def __init__(self, shared: _Shared, session: int) -> None:
        self._shared = shared
        self.session = session
        self.session_state = SessionState.CONNECTED
        self._session_watches = SessionWatches()
        shared.sessions.append(self)

    @classmethod
    async def open(
        cls, path: str, disk: Disk, offload: Offload, *, create: bool = True
    ) -> EmbeddedStore:
        """Open the file, or make it where it is missing; StorageError where it cannot be used.

        `offload` must have exactly one thread, which the store then owns and closes. With `create`
        off a missing file is refused too: a broker that has run before must have one.
        """
        try:
            database, session = await offload.run(_open, path, disk, create)
        except BaseException:
            offload.close()
            raise
        return cls(_Shared(database, offload), session)

    async def new_session(self) -> EmbeddedStore:
        """Another session on the same file."""
        session = await self._run(self._shared.database.begin_session)
        return EmbeddedStore(self._shared, session)

    async def sync(self) -> None:
        """There is one copy: what it says is the newest."""

    async def read(self, path: str) -> Stored | None:
        return await self._run(self._shared.database.read, path)

    async def children(self, path: str) -> list[str]:
        return await self._run(self._shared.database.children, path)

    async def tree(self, path: str) -> Mapping[str, Stored]:
        return await self._run(self._shared.database.tree, path)

    async def multi(self, operations: Sequence[Operation]) -> int:
        operations = tuple(operations)
        check_transaction(operations)
        done = self._run(self._shared.database.multi, operations, self.session)
        # Whoever asked may be gone before it is done: the others hear of it all the same.
        done.add_done_callback(lambda done: self._shared.written(operations, done))
        return await asyncio.shield(done)

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        return self._shared.watches.add(path, callback, self)

    def watch_session(self, callback: SessionCallback) -> Cancel:
        return self._session_watches.add(callback)

    async def expire(self) -> None:
        """End the session as a lost connection would: its ephemeral nodes go, its owner is told."""
        if self.session_state is SessionState.LOST:
            return
        shared = self._shared
        self._lose()
        paths, revision = await shared.offload.run(_end, shared.database, self.session)
        shared.watches.tell([Delete(path) for path in paths], revision)

    async def close(self) -> None:
        try:
            await self.expire()
        except StoreError as error:
            # A full or failing disk must not keep the file open; the next start drops what is left.
            logger.warning("ephemeral nodes left behind session=%d reason=%s", self.session, error)
        shared = self._shared
        if shared.sessions or shared.closing:
            return
        shared.closing = True
        try:
            await shared.offload.run(shared.database.close)
        finally:
            shared.offload.close()

    def _run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        if self.session_state is SessionState.LOST:
            raise SessionExpired("the session with the metadata store has ended")
        return self._shared.offload.run(function, *args)

    def _lose(self) -> None:
        self.session_state = SessionState.LOST
        self._shared.sessions.remove(self)
        self._shared.watches.drop(self)
        self._session_watches.tell(SessionState.LOST)


def _open(path: str, disk: Disk, create: bool) -> tuple[Database, int]:
    database = Database(path, disk, create=create)
    try:
        return database, database.begin_session()
    except BaseException:
        database.close()
        raise


def _end(database: Database, session: int) -> tuple[list[str], int]:
    return database.end_session(session), database.revision
