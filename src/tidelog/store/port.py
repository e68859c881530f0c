"""The seam for durable metadata: a small tree of versioned values, in ZooKeeper's shape.

What it is: nodes named by absolute paths (`/topics/orders`), each with a value, a version that
starts at 0 and rises by one with every `Set`, and the revision that created it. A revision is the
store's own clock: it rises with every transaction and never falls, not even over restarts, so the
revision at which a broker's ephemeral node was created serves as its broker epoch.

Promises: `multi` is wholly done or not done, and durable when it returns. A parent must exist
before its child, a node with children cannot be deleted, an ephemeral node has no children and
goes when its session ends. Watches say that something changed, never what: look again.

`ConnectionLoss` means that nobody knows whether the transaction was done. The caller must read
back; repeating it blindly is wrong. Every other error means that nothing was done.

Left out: access lists, sequential nodes, time to live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from tidelog.errors import StorageError, TidelogError

ANY_VERSION: Final = -1
NO_SESSION: Final = 0
# ZooKeeper takes 1 MiB and answers anything larger by closing the connection.
TRANSACTION_BYTES_MAX: Final = 512 * 1024
# What ZooKeeper adds to each operation: its frame, the access list of a node, the chroot.
_OPERATION_BYTES: Final = 160


class Stored(NamedTuple):
    """A node as it was read."""

    value: bytes
    version: int
    created: int
    modified: int
    session: int


class Check(NamedTuple):
    """The node must exist with this version."""

    path: str
    version: int = ANY_VERSION


class Create(NamedTuple):
    """The node must not exist yet; an ephemeral one belongs to the caller's session."""

    path: str
    value: bytes
    ephemeral: bool = False


class Set(NamedTuple):
    """Replace the value of a node that has this version."""

    path: str
    value: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node that has this version and no children."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete


class ConflictReason(Enum):
    """Why an operation of a transaction was refused."""

    BAD_VERSION = "has another version"
    NO_NODE = "does not exist"
    NODE_EXISTS = "exists already"
    NOT_EMPTY = "has children"
    NO_PARENT = "has no parent"
    EPHEMERAL_PARENT = "would be the child of an ephemeral node"


class SessionState(Enum):
    """What a store knows of its own session."""

    CONNECTED = "connected"
    # Out of touch: the session, and with it every ephemeral node, may be gone.
    SUSPENDED = "suspended"
    # Gone for good: the ephemeral nodes are deleted, this store object is of no more use.
    LOST = "lost"


class StoreError(TidelogError):
    """A store that did not do what was asked."""


class Conflict(StoreError):
    """A transaction whose conditions do not hold; nothing of it was done."""

    def __init__(self, index: int, operation: Operation, reason: ConflictReason) -> None:
        super().__init__(f"operation {index}: {operation.path} {reason.value}")
        self.index = index
        self.operation = operation
        self.reason = reason


class ConnectionLoss(StoreError):
    """The outcome is unknown: read back before doing anything else."""


class SessionExpired(StoreError):
    """The session has ended; nothing was done and nothing more can be."""


class TransactionTooLarge(StoreError):
    """More than any store takes at once; nothing was done. Do it in smaller steps."""


class StoreFull(StoreError):
    """No space left; nothing was done and the same call may succeed later."""


class StoreUnreachable(StorageError):
    """Nobody answers where the store should be; the same call may succeed later."""


class WatchEvent(NamedTuple):
    """Something changed at the watched `path`, at or before the revision."""

    path: str
    revision: int


WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionState], None]
Cancel = Callable[[], None]


def transaction_bytes(operations: Sequence[Operation]) -> int:
    """What a transaction weighs, as `TRANSACTION_BYTES_MAX` counts it."""
    size = 0
    for each in operations:
        size += _OPERATION_BYTES + len(each.path)
        if isinstance(each, Create | Set):
            size += len(each.value)
    return size


def check_transaction(operations: Sequence[Operation]) -> None:
    """TransactionTooLarge where a store would have to refuse it for its size."""
    size = transaction_bytes(operations)
    if size > TRANSACTION_BYTES_MAX:
        raise TransactionTooLarge(
            f"a transaction of {size} bytes, {TRANSACTION_BYTES_MAX} are allowed"
        )


class Store(Protocol):
    """One session with a versioned store. Callbacks come on the event loop, in order."""

    @property
    def session(self) -> int:
        """The number of this session, never used before by another."""
        ...

    @property
    def session_state(self) -> SessionState: ...

    @property
    def silent_s(self) -> float:
        """For how long nothing has shown that the store knows of this session.

        It is suspended when a third of its time has passed so, at the latest. A process that was
        stopped sees it here before it is told anything.
        """
        ...

    async def sync(self) -> None:
        """Return once reads of this session see all that anybody wrote before the call."""
        ...

    async def read(self, path: str) -> Stored | None:
        """The node, or None where there is none; perhaps as it was a moment ago, see `sync`."""
        ...

    async def children(self, path: str) -> list[str]:
        """The names (not paths) of the node's children, sorted."""
        ...

    async def tree(self, path: str) -> Mapping[str, Stored]:
        """The node and everything below it, by path; one moment's view only while the caller is
        the one writer."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> int:
        """Do all of the operations, in order, or none; the revision that they made."""
        ...

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        """Be told when the node comes, changes or goes, and when children of it come or go.

        Several changes may be told as one; an interrupted connection counts as a change.
        """
        ...

    def watch_session(self, callback: SessionCallback) -> Cancel:
        """Be told of changes of `session_state`."""
        ...

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes."""
        ...
