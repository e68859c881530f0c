"""Filling a store with the nodes of a cluster, in steps that an interrupted command does again.

The caller has claimed the empty store with a node of its own, and takes it away when all is done:
until then no broker starts with what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidelog.store.port import (
    NO_SESSION,
    TRANSACTION_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    Set,
    Store,
    transaction_bytes,
)

# Far below what one transaction takes, and what ZooKeeper does in a moment.
_STEP_BYTES: Final = TRANSACTION_BYTES_MAX // 2


async def fill(target: Store, claim: str, nodes: Mapping[str, bytes]) -> None:
    """Make a store hold these nodes beside the claim, whatever an earlier try has left there.

    The nodes are in the order of their paths.
    """
    there = {
        path: node.value
        for path, node in (await target.tree("/")).items()
        if path != claim and node.session == NO_SESSION
    }
    for step in _steps(_differences(there, nodes)):
        await target.multi([Check(claim), *step])


def _differences(there: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[Operation]:
    for path in sorted(there.keys() - wanted.keys(), reverse=True):
        yield Delete(path)
    for path, value in wanted.items():
        if path not in there:
            yield Create(path, value)
        elif there[path] != value:
            yield Set(path, value)


def _steps(operations: Iterator[Operation]) -> Iterator[Sequence[Operation]]:
    step: list[Operation] = []
    size = 0
    for each in operations:
        more = transaction_bytes([each])
        if step and size + more > _STEP_BYTES:
            yield step
            step, size = [], 0
        step.append(each)
        size += more
    if step:
        yield step
