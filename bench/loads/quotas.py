"""Clients that take all they can get, held by a quota, beside a client that asks for little.

The noisy clients go by sockets and do not wait by themselves when they are told to: the broker has
to hold them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from bench.loads.cold import fetched_records
from bench.measure import Stopwatch, percentile
from bench.wire import (
    Connection,
    batch_of_size,
    client_quota_error,
    client_quota_frame,
    fetch_frame,
    produce_error,
    produce_frame,
    record_batch,
)

_QUOTAS = {"bench-writer": "producer_byte_rate", "bench-reader": "consumer_byte_rate"}
_REQUEST_BYTES = 100_000
# A rate is taken over eleven windows of a second.
_PACED_S = 12.0
_ALONE_S = 3.0
# Correlation id, throttle time, error, session, no topics.
_EMPTY_FETCH_BYTES = 4 + 4 + 2 + 4 + 4
_BETWEEN_S = 0.005


class _Noisy(threading.Thread):
    """Asks again and again, and counts the bytes that a quota is about.

    It keeps to its quota by itself for as long as a broker remembers, then takes all it can get: a
    client that was quiet before could use what it has saved up, and would be held in bursts.
    """

    def __init__(self, port: int, ask: bytes, count: Callable[[bytes], int], quota: float) -> None:
        super().__init__(daemon=True)
        self._connection = Connection(port, timeout_s=60)
        self._request, self._count, self._quota = ask, count, quota
        self.bytes = 0
        self._is_over = False
        self._error: Exception | None = None

    def run(self) -> None:
        begin = time.perf_counter()
        try:
            while not self._is_over:
                self.bytes += self._count(self._connection.ask(self._request))
                early = begin + self.bytes / self._quota - time.perf_counter()
                if early > 0 and time.perf_counter() < begin + _PACED_S:
                    time.sleep(early)
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        self._is_over = True
        self.join(60)
        self._connection.close()
        assert not self.is_alive(), "a throttled client waits for more than a minute"
        if self._error is not None:
            raise self._error


def held(port: int, pid: int, topic: str, quota_bytes: float, seconds: float) -> dict[str, float]:
    """A producer and a consumer at their quotas, and the times of a client without any."""
    batch, _ = batch_of_size(_REQUEST_BYTES, 1_000)
    admin = Connection(port)
    assert produce_error(admin.ask(produce_frame(topic, batch)), topic) == 0
    for client_id, name in _QUOTAS.items():
        _alter(admin, client_id, name, quota_bytes)
    write = produce_frame(topic, batch, client_id="bench-writer")
    read = fetch_frame(topic, 0, len(batch), client_id="bench-reader")
    calm = partial(_calm, port, topic)
    alone_ms = calm(_ALONE_S)
    writer = _Noisy(port, write, lambda answer: _written(answer, topic, len(write)), quota_bytes)
    reader = _Noisy(port, read, lambda answer: _read(answer, topic), quota_bytes)
    try:
        writer.start()
        reader.start()
        calm(_PACED_S)
        stopwatch, before = Stopwatch(pid), (writer.bytes, reader.bytes)
        took_ms = calm(seconds)
        result = stopwatch.result(requests=len(took_ms))
        used = (writer.bytes - before[0], reader.bytes - before[1])
    finally:
        for client_id, name in _QUOTAS.items():
            _alter(admin, client_id, name, None)
        writer.stop()
        reader.stop()
        admin.close()
    most = quota_bytes * result["elapsed_s"]
    return {
        **result,
        "producer_of_quota": used[0] / most,
        "consumer_of_quota": used[1] / most,
        "p50_ms": percentile(took_ms, 0.50),
        "p99_ms": percentile(took_ms, 0.99),
        "alone_p50_ms": percentile(alone_ms, 0.50),
        "alone_p99_ms": percentile(alone_ms, 0.99),
    }


def _alter(admin: Connection, client_id: str, name: str, value: float | None) -> None:
    error = client_quota_error(admin.ask(client_quota_frame(client_id, name, value)))
    assert error == 0, f"AlterClientQuotas: error {error}"


def _written(answer: bytes, topic: str, size: int) -> int:
    assert produce_error(answer, topic) == 0, "a throttled produce failed"
    return size


def _read(answer: bytes, topic: str) -> int:
    # While nothing is left of the quota, the answer names no topic.
    if len(answer) > _EMPTY_FETCH_BYTES:
        fetched_records(answer, topic)
    return 4 + len(answer)


def _calm(port: int, topic: str, seconds: float) -> list[float]:
    """One small record every 5 ms, and how long each took."""
    connection, took_ms = Connection(port), []
    request = produce_frame(topic, record_batch([b"x" * 100]), acks=1, client_id="bench-calm")
    deadline = time.perf_counter() + seconds
    while (start := time.perf_counter()) < deadline:
        assert produce_error(connection.ask(request), topic) == 0
        took_ms.append((time.perf_counter() - start) * 1e3)
        time.sleep(_BETWEEN_S)
    connection.close()
    return took_ms
