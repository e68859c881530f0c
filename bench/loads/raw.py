"""Loads over bare sockets: prebuilt frames, so that the client costs next to nothing."""

from __future__ import annotations

import selectors
import socket
import struct
import time

from bench.measure import Stopwatch
from bench.wire import (
    Connection,
    batch_of_size,
    metadata_frame,
    produce_error,
    produce_frame,
    record_batch,
)


def pipelined_produce(
    port: int, pid: int, topic: str, batch_bytes: int, total_bytes: int, in_flight: int
) -> dict[str, float]:
    """The same batch of 1 KB records over and over on one connection, several in flight."""
    batch, records = batch_of_size(batch_bytes, 1_000)
    request = produce_frame(topic, batch)
    connection = Connection(port)
    assert produce_error(connection.ask(request), topic) == 0
    count = total_bytes // len(request)
    stopwatch = Stopwatch(pid)
    answer = b""
    for number in range(count):
        connection.socket.sendall(request)
        if number >= in_flight - 1:
            answer = connection.answer()
    for _ in range(min(in_flight - 1, count)):
        answer = connection.answer()
    result = stopwatch.result(records=count * records, requests=count, bytes=count * len(batch))
    assert produce_error(answer, topic) == 0
    connection.close()
    return {**result, "stored": (count + 1) * records}


def small_requests(
    port: int, pid: int, topic: str, kind: str, connections: int, duration_s: float
) -> dict[str, float]:
    """One small request in flight per connection, answered and sent again, for a while."""
    if kind == "produce":
        request = produce_frame(topic, record_batch([b"x" * 100]), acks=1)
    else:
        request = metadata_frame(topic)
    # Each connection is answered once before the next is made: a burst of them would overflow the
    # listen backlog and wait for the kernel to send again.
    opened = [Connection(port)]
    answer_bytes = 4 + len(opened[0].ask(request))
    for _ in range(connections - 1):
        opened.append(Connection(port))
        opened[-1].ask(request)
    selector = selectors.DefaultSelector()
    for each in opened:
        selector.register(each.socket, selectors.EVENT_READ)
    try:
        stopwatch = Stopwatch(pid)
        sockets = [each.socket for each in opened]
        return stopwatch.result(
            requests=_drive(selector, sockets, request, answer_bytes, duration_s)
        )
    finally:
        selector.close()
        for each in opened:
            each.close()


def _drive(
    selector: selectors.BaseSelector,
    sockets: list[socket.socket],
    request: bytes,
    answer_bytes: int,
    duration_s: float,
) -> int:
    """Keep one request in flight on each socket until the time is over; returns the answers."""
    size_prefix = struct.pack(">i", answer_bytes - 4)
    for each in sockets:
        each.send(request)
    waiting, count = len(sockets), 0
    deadline = time.perf_counter() + duration_s
    while waiting:
        again = time.perf_counter() < deadline
        for key, _ in selector.select(10):
            connection: socket.socket = key.fileobj  # type: ignore[assignment]
            answer = connection.recv(answer_bytes, socket.MSG_WAITALL)
            assert answer[:4] == size_prefix and len(answer) == answer_bytes, "odd answer"
            count += 1
            if again:
                connection.send(request)
            else:
                waiting -= 1
    return count
