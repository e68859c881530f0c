"""The row of a reader that catches up beside a live tail: the tail must not feel it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.loads.cold import forget
from bench.peers.peer import Peer
from bench.rows import Row
from bench.runner import Result, Say, brief, run_load
from bench.topics import log_end

_BATCH_BYTES = 1_000_000
# The other reader goes on until the tail has ended, whichever of the two starts first.
_LONGER_S = 2.0


def run_catch_up(
    row: Row, make: Sequence[Callable[[], Peer]], rounds: int, quick: bool, say: Say
) -> Result:
    results: dict[str, list[Result]] = {}
    sizes = row.sized(quick)
    for maker in make:
        peer = maker()
        # The records of the load are old: nobody is to remove them meanwhile.
        peer.settings["log.retention.ms"] = "-1"
        with peer, peer.topic(1) as topic:
            where = {"port": peer.port, "pid": peer.pid, "topic": topic}
            fill = {"batch_bytes": _BATCH_BYTES, "in_flight": 5}
            total = {"total_bytes": sizes["total_bytes"]}
            run_load("raw.pipelined_produce", where | fill | total)
            for number in range(rounds):
                result = _measure(peer, where, sizes["seconds"])
                results.setdefault(peer.name, []).append(result)
                ratio = f"{result['alone_p99_ms']:.3f} ms alone"
                say(f"  {row.key} round {number + 1} {peer.name}: {brief(result)}, {ratio}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def _measure(peer: Peer, where: dict[str, object], seconds: float) -> Result:
    """The tail alone, then beside a reader of all that was dropped from memory before."""
    topic = str(where["topic"])
    end = {"partition_end": log_end(peer.bootstrap_servers, topic, 1)}
    alone = run_load("cold.tail", where | end | {"seconds": seconds})
    cold_bytes = drop_from_memory(peer.log_dir, topic)
    lasting = {"log_dir": str(peer.log_dir), "seconds": seconds + _LONGER_S}
    read: list[Result] = []
    catching_up = threading.Thread(
        target=lambda: read.append(run_load("cold.catch_up", where | end | lasting))
    )
    catching_up.start()
    beside = run_load("cold.tail", where | {"partition_end": alone["end"]} | {"seconds": seconds})
    catching_up.join()
    if not read:
        raise RuntimeError("the reader that catches up failed")
    return {
        **beside,
        "alone_p50_ms": alone["p50_ms"],
        "alone_p99_ms": alone["p99_ms"],
        "cold_mb": cold_bytes / 1e6,
        "catch_up_mb_per_s": read[0]["bytes"] / read[0]["elapsed_s"] / 1e6,
    }


def drop_from_memory(log_dir: Path, topic: str) -> int:
    """Have the kernel forget a topic; how many bytes it then lacks, and an error if it has all."""
    os.sync()
    cold = 0
    for path in forget(log_dir, topic):
        with path.open("rb") as file:
            for offset in range(0, os.fstat(file.fileno()).st_size, 4096):
                with contextlib.suppress(OSError):
                    if os.preadv(file.fileno(), [bytearray(1)], offset, os.RWF_NOWAIT):
                        continue
                cold += 4096
    if not cold:
        raise RuntimeError(f"the kernel keeps {topic} in memory: is {log_dir} on a disk?")
    return cold
