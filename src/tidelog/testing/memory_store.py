"""The metadata store in memory, for the simulator and for tests: deterministic, and able to fail.

A `MemoryTree` is the ensemble, a `MemoryStore` one session with it. What can go wrong is set by
hand or by a schedule: a session expires; a connection is lost before a transaction is done, or
after it; a connection is down for a while (`suspend`, `resume`), and the session may end meanwhile
without its owner's knowledge (`expire_unseen`); the owner dies (`abandon`); answers take their time
(`delay`); reads are answered from an older state until the session syncs (`lag`).

What a session's owner is told goes through `MemoryTree.post`, which a simulator replaces so that it
arrives later, and at the owner's machine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import islice

from tidelog.store.port import (
    ANY_VERSION,
    NO_SESSION,
    Cancel,
    Check,
    Conflict,
    ConflictReason,
    ConnectionLoss,
    Create,
    Delete,
    Operation,
    SessionCallback,
    SessionExpired,
    SessionState,
    Set,
    Stored,
    WatchCallback,
    WatchEvent,
    check_transaction,
)
from tidelog.store.watches import SessionWatches, Watches

Nodes = dict[str, Stored]
_CHANGES_KEPT = 64


class Loss(Enum):
    """When the connection breaks in a transaction."""

    BEFORE = "before it is done"
    AFTER = "after it is done"


class MemoryTree:
    """All nodes, and the sessions that are open."""

    def __init__(self) -> None:
        self.nodes: Nodes = {}
        self.revision = 0
        self.watches = Watches()
        self.sessions: dict[int, MemoryStore] = {}
        # What the last transactions changed, as it was before each of them, the newest last.
        self._changed: deque[dict[str, Stored | None]] = deque(maxlen=_CHANGES_KEPT)
        # Has a session's owner called; at once, unless a simulator knows better.
        self.post: Callable[[MemoryStore, Callable[[], None]], None] = _at_once
        # Told of every transaction that was done, with the session that did it.
        self.on_transaction: Callable[[Sequence[Operation], int], None] | None = None

    async def connect(self) -> MemoryStore:
        """A new session."""
        self.revision += 1
        store = MemoryStore(self, self.revision)
        self.sessions[store.session] = store
        return store

    def apply(self, operations: Sequence[Operation], session: int) -> int:
        """All of the operations or none."""
        nodes, revision = self.nodes, self.revision + 1
        before: dict[str, Stored | None] = {}
        for index, operation in enumerate(operations):
            before.setdefault(operation.path, nodes.get(operation.path))
            reason = _apply(nodes, operation, revision, session)
            if reason is not None:
                _take_back(nodes, before)
                raise Conflict(index, operation, reason)
        self.revision = revision
        self._changed.append(before)
        if self.on_transaction is not None:
            self.on_transaction(operations, session)
        self.watches.tell(operations, revision)
        return revision

    def seen(self, lag: int) -> Nodes:
        """The nodes as they were so many transactions ago, if that is still known."""
        if not lag:
            return self.nodes
        nodes = dict(self.nodes)
        for before in islice(reversed(self._changed), lag):
            _take_back(nodes, before)
        return nodes

    def end(self, session: int) -> None:
        """Delete a session's ephemeral nodes."""
        self.sessions.pop(session, None)
        gone = [path for path, node in self.nodes.items() if node.session == session]
        if gone:
            self.apply([Delete(path) for path in gone], session)


class MemoryStore:
    """One session with a tree."""

    # Whoever is out of touch is told so at once.
    silent_s = 0.0

    def __init__(self, tree: MemoryTree, session: int) -> None:
        self._tree = tree
        self.session = session
        self.session_state = SessionState.CONNECTED
        self._session_watches = SessionWatches()
        self._watched: dict[str, list[WatchCallback]] = {}
        # How often the connection came back.
        self.touch = 0
        # The transactions to lose, the next one first.
        self.losses: list[Loss | None] = []
        # How many transactions behind the newest one reads are answered, until `sync`.
        self.lag = 0
        # How long an answer takes, drawn for each call.
        self.delay: Callable[[], float] | None = None

    async def sync(self) -> None:
        await self._reach()
        self.lag = 0

    async def read(self, path: str) -> Stored | None:
        return (await self._seen()).get(path)

    async def children(self, path: str) -> list[str]:
        nodes = await self._seen()
        return sorted(
            name for parent, _, name in (each.rpartition("/") for each in nodes)
            if (parent or "/") == path
        )  # fmt: skip

    async def tree(self, path: str) -> Mapping[str, Stored]:
        nodes = await self._seen()
        below = path.rstrip("/") + "/"
        return {each: nodes[each] for each in sorted(nodes)
                if each == path or each.startswith(below)}  # fmt: skip

    async def multi(self, operations: Sequence[Operation]) -> int:
        operations = tuple(operations)
        check_transaction(operations)
        await self._reach()
        loss = self.losses.pop(0) if self.losses else None
        if loss is Loss.BEFORE:
            raise ConnectionLoss("lost before the transaction was done")
        revision = self._tree.apply(operations, self.session)
        if loss is Loss.AFTER:
            raise ConnectionLoss("lost after the transaction was done")
        await self._reach()
        return revision

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        is_wanted = True
        callbacks = self._watched.setdefault(path, [])
        callbacks.append(callback)

        def changed(event: WatchEvent) -> None:
            # While the connection is down nobody is told; all are when it is up again.
            if self.session_state is SessionState.CONNECTED:
                self._tree.post(self, lambda: callback(event) if is_wanted else None)

        cancel = self._tree.watches.add(path, changed, self)

        def end() -> None:
            nonlocal is_wanted
            is_wanted = False
            cancel()
            if callback in callbacks:
                callbacks.remove(callback)

        return end

    def watch_session(self, callback: SessionCallback) -> Cancel:
        return self._session_watches.add(callback)

    async def close(self) -> None:
        self.expire()

    # -- what goes wrong --------------------------------------------------------------------------

    def expire(self) -> None:
        """The session ends: its ephemeral nodes go, its owner is told."""
        if self.session_state is SessionState.LOST:
            return
        self.expire_unseen()
        self._watched.clear()
        self._move_to(SessionState.LOST)

    def expire_unseen(self) -> None:
        """The session ends; its owner, who cannot be reached, learns of it at `resume`."""
        self._tree.watches.drop(self)
        self._tree.end(self.session)

    def abandon(self) -> None:
        """The owner is gone and is told nothing more. The session lives on until it expires."""
        self._tree.watches.drop(self)
        self._watched.clear()
        self._session_watches.drop()
        self.session_state = SessionState.SUSPENDED

    @property
    def is_alive(self) -> bool:
        """Whether the ensemble still knows the session."""
        return self.session in self._tree.sessions

    def suspend(self) -> None:
        """The connection is down; the session may yet go on."""
        if self.session_state is SessionState.CONNECTED:
            self._move_to(SessionState.SUSPENDED)

    def resume(self) -> None:
        """The connection is up again, which counts as a change of all that is watched."""
        if self.session_state is not SessionState.SUSPENDED:
            return
        self.touch += 1
        if not self.is_alive:
            self.expire()
            return
        self._move_to(SessionState.CONNECTED)
        for path, callbacks in self._watched.items():
            for callback in tuple(callbacks):
                event = WatchEvent(path, self._tree.revision)
                self._tree.post(self, partial(callback, event))

    def _move_to(self, state: SessionState) -> None:
        self.session_state = state
        for callback in self._session_watches:
            self._tree.post(self, partial(callback, state))

    async def _seen(self) -> Nodes:
        await self._reach()
        return self._tree.seen(self.lag)

    async def _reach(self) -> None:
        """Half a round trip; raises where the ensemble cannot be reached."""
        await asyncio.sleep(self.delay() if self.delay is not None else 0)
        if self.session_state is SessionState.LOST:
            raise SessionExpired("the session has ended")
        if self.session_state is SessionState.SUSPENDED:
            raise ConnectionLoss("the connection is down")


def _at_once(store: MemoryStore, call: Callable[[], None]) -> None:
    call()


def _take_back(nodes: Nodes, before: Mapping[str, Stored | None]) -> None:
    for path, node in before.items():
        if node is None:
            nodes.pop(path, None)
        else:
            nodes[path] = node


def _apply(
    nodes: Nodes, operation: Operation, revision: int, session: int
) -> ConflictReason | None:
    """Change `nodes`, or say why not."""
    path = operation.path
    node = nodes.get(path)
    if isinstance(operation, Create):
        parent = path.rpartition("/")[0]
        if node is not None:
            return ConflictReason.NODE_EXISTS
        if parent and parent not in nodes:
            return ConflictReason.NO_PARENT
        if parent and nodes[parent].session != NO_SESSION:
            return ConflictReason.EPHEMERAL_PARENT
        owner = session if operation.ephemeral else NO_SESSION
        nodes[path] = Stored(operation.value, 0, revision, revision, owner)
        return None
    if node is None:
        return ConflictReason.NO_NODE
    if operation.version not in (ANY_VERSION, node.version):
        return ConflictReason.BAD_VERSION
    if isinstance(operation, Set):
        nodes[path] = node._replace(
            value=operation.value, version=node.version + 1, modified=revision
        )
    elif isinstance(operation, Delete):
        if any(each.startswith(path + "/") for each in nodes):
            return ConflictReason.NOT_EMPTY
        del nodes[path]
    else:
        assert isinstance(operation, Check)
    return None
