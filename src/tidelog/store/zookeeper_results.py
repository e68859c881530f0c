"""What kazoo answers, in the words of the port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.protocol.states import ZnodeStat

from tidelog.store.port import Conflict, ConflictReason, Create, Operation, Stored, StoreError

_REASONS: Final[dict[type[ZookeeperError], ConflictReason]] = {
    BadVersionError: ConflictReason.BAD_VERSION,
    NoNodeError: ConflictReason.NO_NODE,
    NodeExistsError: ConflictReason.NODE_EXISTS,
    NotEmptyError: ConflictReason.NOT_EMPTY,
    NoChildrenForEphemeralsError: ConflictReason.EPHEMERAL_PARENT,
}


def stored(value: bytes, stat: ZnodeStat) -> Stored:
    return Stored(value, stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def raise_refused(operations: Sequence[Operation], results: Sequence[object]) -> None:
    """Conflict for the operation that was refused; the others then say that they were undone."""
    for index, result in enumerate(results):
        if not isinstance(result, Exception):
            continue
        if isinstance(result, RolledBackError | RuntimeInconsistency):
            continue
        reason = _REASONS.get(type(result))
        if reason is None:
            raise StoreError(f"ZooKeeper refused {operations[index].path}: {result!r}")
        if reason is ConflictReason.NO_NODE and isinstance(operations[index], Create):
            reason = ConflictReason.NO_PARENT
        raise Conflict(index, operations[index], reason)
