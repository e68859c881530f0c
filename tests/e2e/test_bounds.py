"""Hostile peers: memory stays within its bound and others are served as before."""

from __future__ import annotations

import contextlib
import select
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
STALLED_READERS = 300
# What is on its way, and the connection itself.
STALLED_BYTES_MAX = (64 + 32) * 1024
# Fifty produces must be answered before each half-sent frame has got so many further bytes.
TRICKLE_PRODUCES = 50
TRICKLE_ROUNDS_MAX = 150
TRICKLE_SECONDS = 0.05


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
    """Send as much as the peer takes, up to a limit each, until nobody takes any more.

    Ends at twice the pool, too: the broker drops some and goes on reading the others.
    """
    selector = selectors.DefaultSelector()
    sent = dict.fromkeys(sockets, 0)
    for connection in sockets:
        selector.register(connection, selectors.EVENT_WRITE)
    while selector.get_map() and sum(sent.values()) < 2 * POOL_BYTES:
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


def test_half_sent_frames_that_trickle_do_not_hold_up_others(broker: BrokerProcess) -> None:
    sockets = open_sockets(broker, 400)
    for connection in sockets:
        connection.send(struct.pack(">i", MIB))
    pushed = push(sockets, bytes(64 * 1024), limit_bytes=300_000)
    assert pushed > POOL_BYTES - FRAME_BYTES_MAX, "the pool must be spent"
    with RawClient(broker.bootstrap_servers) as client:
        request = client.encode("Produce", 9, produce("t", batch([b"x" * 50_000])))
        client.socket.sendall(request)
        answered = rounds = 0
        while answered < TRICKLE_PRODUCES:
            rounds += 1
            assert rounds <= TRICKLE_ROUNDS_MAX, f"{answered} produces in {rounds} rounds"
            for connection in tuple(sockets):
                try:
                    connection.send(b"x")
                except BlockingIOError:
                    continue
                except OSError:
                    sockets.remove(connection)
                    connection.close()
            if select.select([client.socket], [], [], TRICKLE_SECONDS)[0]:
                client.receive_frame()
                answered += 1
                client.socket.sendall(request)
    for connection in sockets:
        connection.close()


def test_a_slow_frame_on_a_quiet_broker_is_not_dropped(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap_servers) as slow, RawClient(broker.bootstrap_servers) as other:
        request = slow.encode("Produce", 9, produce("t", batch([b"x" * 300_000])))
        slow.socket.sendall(request[:100_000])
        for _ in range(200):
            other.call("Produce", 9, produce("t", batch([b"y" * 50_000])))
        slow.socket.sendall(request[100_000:])
        assert slow.receive()[1].responses[0].partition_responses[0].error_code == 0


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


def test_a_stalled_reader_holds_its_position_and_64_kib(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        for _ in range(16):
            client.call("Produce", 9, produce("t", batch([b"z" * 1_000] * 900)))
    before = broker.resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(STALLED_READERS):
            reader = RawClient(broker.bootstrap_servers, receive_buffer_bytes=4096)
            stack.enter_context(reader)
            reader.send("Fetch", 11, fetch("t", partition_max_bytes=50 * MIB))
            # Its socket is full once the answer to this one has begun to leave.
            assert reader.socket.recv(1, socket.MSG_PEEK)
        per_reader = (broker.resident_bytes() - before) // STALLED_READERS
    assert per_reader <= STALLED_BYTES_MAX, f"{per_reader} bytes for each stalled reader"


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
        clients: list[RawClient] = []
        while len(clients) < 5:
            # The connection that saw the broker come up may count for a moment yet.
            client = RawClient(broker.bootstrap_servers)
            try:
                assert client.call("ApiVersions", 2, ApiVersionsRequest()).error_code == 0
                clients.append(client)
            except ConnectionError:
                client.close()
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
