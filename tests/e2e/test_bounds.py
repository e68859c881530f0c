"""Hostile peers: memory stays within its bound and others are served as before."""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.produce_requests import batch, create_topic, fetch, produce
from tests.e2e.raw_client import RawClient
from tidelog.protocol.messages.api_versions import ApiVersionsRequest

MIB = 1 << 20
POOL_BYTES = 128 * MIB
FRAME_BYTES_MAX = 100 * MIB
ALLOWED_GROWTH_BYTES = int(POOL_BYTES * 1.1)
LATENCY_SAMPLES = 400


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "queued.max.request.bytes": str(POOL_BYTES),
        "socket.request.max.bytes": str(FRAME_BYTES_MAX),
        "connections.frame.timeout.ms": "60000",
    }
    with BrokerProcess(tmp_path / "data", settings) as process:
        with RawClient(process.bootstrap_servers) as client:
            create_topic(client, "t")
        yield process


def median_latency(servers: str) -> float:
    """The median of a synchronous small produce, in seconds."""
    records = batch([b"x" * 100])
    samples = []
    with RawClient(servers) as client:
        request = client.encode("Produce", 9, produce("t", records, acks=1))
        for _ in range(LATENCY_SAMPLES):
            start = time.perf_counter()
            client.socket.sendall(request)
            client.receive_frame()
            samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def address(broker: BrokerProcess) -> tuple[str, int]:
    return "127.0.0.1", broker.port


def open_sockets(broker: BrokerProcess, count: int) -> list[socket.socket]:
    opened = []
    for _ in range(count):
        connection = socket.create_connection(address(broker))
        connection.setblocking(False)
        opened.append(connection)
    return opened


def push(sockets: list[socket.socket], payload: bytes, limit_bytes: int) -> int:
    """Send as much as the peer takes, up to a limit each, until nobody takes any more."""
    selector = selectors.DefaultSelector()
    sent = dict.fromkeys(sockets, 0)
    for connection in sockets:
        selector.register(connection, selectors.EVENT_WRITE)
    while selector.get_map():
        ready = selector.select(timeout=1.0)
        if not ready:
            break
        for key, _ in ready:
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            try:
                sent[connection] += connection.send(payload)
            except BlockingIOError:
                continue
            except OSError:
                selector.unregister(connection)
                continue
            if sent[connection] >= limit_bytes:
                selector.unregister(connection)
    selector.close()
    return sum(sent.values())


@contextlib.contextmanager
def held_to_the_bound(broker: BrokerProcess) -> Iterator[None]:
    """Memory grows by no more than the pool and a tenth; a bystander's median does not double."""
    median_latency(broker.bootstrap_servers)
    before_latency = median_latency(broker.bootstrap_servers)
    before = broker.resident_bytes()
    yield
    growth = broker.resident_bytes() - before
    latency = median_latency(broker.bootstrap_servers)
    print(
        f"growth={growth / MIB:.1f} MiB allowed={ALLOWED_GROWTH_BYTES / MIB:.1f} MiB"
        f" median before={before_latency * 1e3:.3f} ms during={latency * 1e3:.3f} ms"
    )
    assert growth <= ALLOWED_GROWTH_BYTES


def test_a_thousand_sockets_announcing_100_mib_stay_within_the_pool(broker: BrokerProcess) -> None:
    sockets: list[socket.socket] = []
    with held_to_the_bound(broker):
        sockets = open_sockets(broker, 1_000)
        announcement = struct.pack(">i", FRAME_BYTES_MAX)
        for connection in sockets:
            connection.send(announcement)
        pushed = push(sockets, bytes(64 * 1024), limit_bytes=2 * MIB)
        assert pushed > POOL_BYTES, "the peers must have pushed more than the pool holds"
    for connection in sockets:
        connection.close()
    with RawClient(broker.bootstrap_servers) as client:
        large = batch([b"y" * 900_000])
        answer = client.call("Produce", 9, produce("t", large)).responses[0].partition_responses[0]
        assert answer.error_code == 0


def test_a_hundred_readers_that_never_read_cost_next_to_nothing(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        for _ in range(64):
            client.call("Produce", 9, produce("t", batch([b"z" * 1_000] * 900)))
    readers: list[RawClient] = []
    with held_to_the_bound(broker):
        for _ in range(100):
            reader = RawClient(broker.bootstrap_servers, receive_buffer_bytes=4096)
            reader.send("Fetch", 11, fetch("t", partition_max_bytes=50 * MIB))
            readers.append(reader)
        # The last one was answered as far as its socket takes it: so were those before it.
        assert readers[-1].socket.recv(1, socket.MSG_PEEK)
    for reader in readers:
        reader.close()


def test_ten_thousand_pipelined_requests_unread_stop_being_read(broker: BrokerProcess) -> None:
    with held_to_the_bound(broker):
        client = RawClient(broker.bootstrap_servers, receive_buffer_bytes=4096)
        request = client.encode("ApiVersions", 2, ApiVersionsRequest())
        client.socket.setblocking(False)
        pushed = push([client.socket], request * 100, limit_bytes=len(request) * 10_000)
        assert pushed > 0
    client.close()


@pytest.mark.parametrize(
    "length", [0, -1, FRAME_BYTES_MAX + 1, 2**31 - 1], ids=["zero", "negative", "large", "largest"]
)
def test_a_bad_frame_closes_its_connection_and_says_why(broker: BrokerProcess, length: int) -> None:
    with RawClient(broker.bootstrap_servers) as bad, RawClient(broker.bootstrap_servers) as good:
        bad.socket.sendall(struct.pack(">i", length))
        assert bad.is_closed()
        assert good.call("ApiVersions", 2, ApiVersionsRequest()).error_code == 0
    assert f"frame length {length} is outside" in broker.log_text()


def test_connections_beyond_the_limit_are_refused_and_the_others_served(tmp_path: Path) -> None:
    settings = {"max.connections.per.ip": "5"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        clients = [RawClient(broker.bootstrap_servers) for _ in range(5)]
        for client in clients:
            assert client.call("ApiVersions", 2, ApiVersionsRequest()).error_code == 0
        with RawClient(broker.bootstrap_servers) as refused:
            assert refused.is_closed()
        clients.pop().close()
        deadline = time.monotonic() + 10
        while True:
            try:
                with RawClient(broker.bootstrap_servers) as again:
                    again.call("ApiVersions", 2, ApiVersionsRequest())
                break
            except (ConnectionResetError, BrokenPipeError):
                assert time.monotonic() < deadline
        for client in clients:
            client.close()
    assert "max.connections.per.ip=5 reached" in broker.log_text()


def test_silent_and_stalled_connections_are_closed_at_their_deadlines(tmp_path: Path) -> None:
    settings = {
        "connections.first.byte.ms": "300",
        "connections.frame.timeout.ms": "300",
        "connections.max.idle.ms": "300",
    }
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with (
            RawClient(broker.bootstrap_servers) as silent,
            RawClient(broker.bootstrap_servers) as stalled,
            RawClient(broker.bootstrap_servers) as idle,
        ):
            stalled.socket.sendall(struct.pack(">i", 1000) + bytes(10))
            assert idle.call("ApiVersions", 2, ApiVersionsRequest()).error_code == 0
            assert silent.is_closed()
            assert stalled.is_closed()
            assert idle.is_closed()
