"""The row of many transactional ids: a broker that was killed knows them all again."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from bench.loads.transactions import set_durability
from bench.measure import cpu_seconds, resident_mb
from bench.peers.peer import Peer
from bench.rows import Row
from bench.runner import Result, Say
from bench.standalone import Makers, connected, on_new_brokers
from bench.wire import Connection, frame, string

FIND_COORDINATOR_V2 = (10, 2)
INIT_PRODUCER_ID_V1 = (22, 1)
_TIMEOUT_MS = 60_000
_CONNECTIONS = 100
# Enough that every partition of the log of transactions has one of them.
_ASKED = 500
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
_NOT_YET = (14, 15, 16)
_FIRST = "first"
Identity = tuple[int, int]


def run_ids(row: Row, make: Makers, rounds: int, quick: bool, say: Say) -> Result:
    """Ids are used once, the broker is killed, and the next one goes on with their epochs."""
    ids = [f"transactional-id-{number}" for number in range(row.sized(quick)["ids"])]

    def measure(peer: Peer) -> Result:
        peer.start()
        # What is measured is the load; a sync for each id would only take long before it.
        set_durability(peer.bootstrap_servers, "replicated")
        known = use_ids(peer.port, ids)
        peer.kill()
        start = time.perf_counter()
        peer.launch()
        step = max(1, len(ids) // _ASKED)
        result = wait_for_ids(peer.port, ids[::step], start)
        result["cpu_s"] = cpu_seconds(peer.pid).total
        result["resident_mb"] = resident_mb(peer.pid)
        for transactional_id, (producer_id, epoch) in result.pop("found").items():
            expected = known[transactional_id]
            if (producer_id, epoch) != (expected[0], expected[1] + 1):
                raise RuntimeError(f"{transactional_id}: {producer_id, epoch} after {expected}")
        return result

    return on_new_brokers(row, make, rounds, say, measure)


def use_ids(port: int, ids: Sequence[str]) -> dict[str, Identity]:
    """InitProducerId of each, many at a time; the producer id and epoch that each was given."""
    first = Connection(port)
    # The first one that asks for a coordinator has the log of transactions made.
    first.ask(frame(FIND_COORDINATOR_V2, string(_FIRST) + b"\1"))
    while _ask(first, _FIRST)[0] in _NOT_YET:
        time.sleep(0.05)
    first.close()
    connections = [Connection(port, 300.0) for _ in range(_CONNECTIONS)]
    known: dict[str, Identity] = {}
    waiting = list(ids)
    while waiting:
        # Those whose partition is still being loaded, or for whom no producer id was left.
        waiting = _use(connections, waiting, known)
    for connection in connections:
        connection.close()
    return known


def _use(
    connections: Sequence[Connection], ids: Sequence[str], known: dict[str, Identity]
) -> list[str]:
    """Ask for each once; those that are told to come again."""
    shares = [ids[number :: len(connections)] for number in range(len(connections))]
    for connection, share in zip(connections, shares, strict=True):
        connection.socket.sendall(b"".join(_frame(each) for each in share))
    again = []
    for connection, share in zip(connections, shares, strict=True):
        for transactional_id in share:
            error, identity = _answer(connection.answer())
            if error in _NOT_YET:
                again.append(transactional_id)
            elif error:
                raise RuntimeError(f"{transactional_id}: error {error}")
            else:
                known[transactional_id] = identity
    return again


def wait_for_ids(port: int, ids: Sequence[str], start: float) -> Result:
    """Ask for these until none of them is told to wait."""
    connection = connected(port)
    listening, deadline = time.perf_counter(), time.monotonic() + 60
    found: dict[str, Identity] = {}
    for transactional_id in ids:
        error, identity = _ask(connection, transactional_id)
        while error in _NOT_YET and time.monotonic() < deadline:
            time.sleep(0.001)
            error, identity = _ask(connection, transactional_id)
        if error:
            raise RuntimeError(f"{transactional_id}: error {error} after a start")
        found[transactional_id] = identity
    done = time.perf_counter()
    connection.close()
    return {"elapsed_s": done - start, "loaded_s": done - listening, "found": found}


def _frame(transactional_id: str) -> bytes:
    body = string(transactional_id) + struct.pack(">i", _TIMEOUT_MS)
    return frame(INIT_PRODUCER_ID_V1, body)


def _ask(connection: Connection, transactional_id: str) -> tuple[int, Identity]:
    return _answer(connection.ask(_frame(transactional_id)))


def _answer(answer: bytes) -> tuple[int, Identity]:
    _, _, error, producer_id, epoch = struct.unpack_from(">iihqh", answer)
    return error, (producer_id, epoch)
