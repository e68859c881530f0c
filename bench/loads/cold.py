"""A live tail, by itself and beside a reader that catches up with data that only the disk has."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from bench.measure import Stopwatch, percentile
from bench.wire import Connection, fetch_frame, produce_error, produce_frame, record_batch

_WAIT_MS = 5_000
_BETWEEN_S = 0.002
_FETCH_BYTES = 1_000_000
_HEAD = struct.Struct(">qi")
_LAST_OFFSET_DELTA = 23


def tail(port: int, pid: int, topic: str, partition_end: int, seconds: float) -> dict[str, float]:
    """One record every 2 ms, and how long each takes to a reader that waits for it."""
    writer, reader = Connection(port), Connection(port)
    produce = produce_frame(topic, record_batch([b"x" * 100]), acks=1)
    stopwatch, took_ms, offset = Stopwatch(pid), [], partition_end
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        reader.socket.sendall(fetch_frame(topic, offset, _FETCH_BYTES, wait_ms=_WAIT_MS))
        time.sleep(_BETWEEN_S)
        start = time.perf_counter()
        writer.socket.sendall(produce)
        records = fetched_records(reader.answer(), topic)
        took_ms.append((time.perf_counter() - start) * 1e3)
        assert produce_error(writer.answer(), topic) == 0
        offset = offset_after(records, offset)
    writer.close()
    reader.close()
    times = {"p50_ms": percentile(took_ms, 0.50), "p99_ms": percentile(took_ms, 0.99)}
    return {**stopwatch.result(requests=len(took_ms)), **times, "end": offset}


def catch_up(
    port: int, pid: int, topic: str, partition_end: int, log_dir: str, seconds: float
) -> dict[str, float]:
    """All records from the first one on, a megabyte at a time, again and again from the disk."""
    connection, stopwatch, total = Connection(port), Stopwatch(pid), 0
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        forget(Path(log_dir), topic)
        offset = 0
        while offset < partition_end and time.perf_counter() < deadline:
            connection.socket.sendall(fetch_frame(topic, offset, _FETCH_BYTES))
            records = fetched_records(connection.answer(), topic)
            total += len(records)
            offset = offset_after(records, offset)
    connection.close()
    return stopwatch.result(bytes=total)


def forget(log_dir: Path, topic: str) -> list[Path]:
    """Have the kernel forget the segments of a topic that are on the disk."""
    found = list(log_dir.rglob(f"{topic}-0/*.log"))
    for path in found:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return found


def fetched_records(answer: bytes, topic: str) -> bytes:
    """The records of the only partition in a Fetch 11 answer; RuntimeError for an error."""
    position = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    (error,) = struct.unpack_from(">h", answer, position)
    if error:
        raise RuntimeError(f"Fetch: error {error}")
    position += 2 + 8 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, position)
    position += 4 + 16 * max(aborted, 0) + 4
    (size,) = struct.unpack_from(">i", answer, position)
    return answer[position + 4 : position + 4 + max(size, 0)]


def offset_after(records: bytes, offset: int) -> int:
    """The offset behind the last whole batch."""
    position = 0
    while position + _HEAD.size <= len(records):
        base_offset, size = _HEAD.unpack_from(records, position)
        if position + _HEAD.size + size > len(records):
            break
        (delta,) = struct.unpack_from(">i", records, position + _LAST_OFFSET_DELTA)
        offset = base_offset + delta + 1
        position += _HEAD.size + size
    return offset
