"""Loads over bare sockets: prebuilt frames, so that the client costs next to nothing."""

from __future__ import annotations

import random
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from functools import partial

from bench.measure import Stopwatch, percentile
from bench.wire import (
    PRODUCE_V7,
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
    answer = pipelined(connection, [request], count, in_flight)
    result = stopwatch.result(records=count * records, requests=count, bytes=count * len(batch))
    assert produce_error(answer, topic) == 0
    connection.close()
    return {**result, "stored": (count + 1) * records}


def pipelined(
    connection: Connection, requests: Sequence[bytes], count: int, in_flight: int
) -> bytes:
    """Send `count` requests in turn, several in flight; the last answer."""
    answer = b""
    for number in range(count):
        connection.socket.sendall(requests[number % len(requests)])
        if number >= in_flight - 1:
            answer = connection.answer()
    for _ in range(min(in_flight - 1, count)):
        answer = connection.answer()
    return answer


def compressed_produce(
    port: int, pid: int, topic: str, codec: str, batch_bytes: int, total_bytes: int
) -> dict[str, float]:
    """Compressed batches of small JSON events, five in flight; then one at a time for latency.

    Bytes are those of the records before they were compressed.
    """
    from tidelog.model import Codec
    from tidelog.protocol.compression import compress

    chosen, chance = Codec[codec.upper()], random.Random(1)
    requests, records = [], batch_bytes // 250
    for _ in range(20):
        values = [_event(chance) for _ in range(records)]
        batch = record_batch(values, codec=chosen, compress=partial(compress, chosen))
        requests.append(produce_frame(topic, batch, api=PRODUCE_V7))
    connection = Connection(port)
    for request in requests:
        assert produce_error(connection.ask(request), topic) == 0
    count = total_bytes // batch_bytes
    stopwatch = Stopwatch(pid)
    answer = pipelined(connection, requests, count, 5)
    result = stopwatch.result(records=count * records, requests=count, bytes=count * records * 250)
    assert produce_error(answer, topic) == 0
    took_ms = []
    for number in range(count // 4):
        start = time.perf_counter()
        connection.ask(requests[number % len(requests)])
        took_ms.append((time.perf_counter() - start) * 1e3)
    connection.close()
    stored = (len(requests) + count + len(took_ms)) * records
    times = {"p50_ms": percentile(took_ms, 0.50), "p99_ms": percentile(took_ms, 0.99)}
    return {**result, **times, "stored": stored}


def _event(chance: random.Random) -> bytes:
    """A click as an application would log it, 250 bytes of JSON."""
    path = chance.choice(("cart", "search", "item", "checkout"))
    text = (
        f'{{"user_id":{chance.randrange(10**6)},"session":"{chance.randbytes(16).hex()}",'
        f'"event":"page_view","path":"/shop/{path}/{chance.randrange(5000)}","referrer":'
        f'"https://example.com/","duration_ms":{chance.randrange(30_000)},"country":'
        f'"{chance.choice(("DE", "FR", "US", "JP"))}","price":{chance.randrange(10**5) / 100}'
    )
    return (text + ',"note":"' + " " * 250)[:248].encode() + b'"}'


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
            requests=drive(selector, sockets, request, answer_bytes, duration_s)
        )
    finally:
        selector.close()
        for each in opened:
            each.close()


def drive(
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
