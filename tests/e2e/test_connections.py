"""Floods of connections: bounded, refused, logged; and the log keeps its descriptors."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess, free_port
from tests.e2e.produce_requests import batch, create_topic, fetch, produce, values_in
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.server.connection import Connection
from tidelog.testing import Broker

KAFKA_STORAGE_ERROR = 56
# The most connections that one address may have to the pages.
PAGE_CONNECTIONS_PER_ADDRESS = 32
# More than the descriptors that the log could let go of.
WAITING_CONNECTIONS = 100


def get(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    headers = {} if host is None else {"Host": host}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def open_descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


@contextlib.contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(count)
        ]


@contextlib.contextmanager
def no_descriptor_left(broker: BrokerProcess) -> Iterator[None]:
    """Let the process open not a single further file for a while."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (open_descriptors(broker), before[1]))
    yield
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


def produce_code(client: RawClient, value: bytes) -> int:
    answer = client.call("Produce", 9, produce("t", batch([value])))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_a_process_without_descriptors_refuses_a_roll_and_recovers_by_itself(
    tmp_path: Path,
) -> None:
    port = free_port()
    settings = {
        "metrics.listener": f"127.0.0.1:{port}",
        "socket.listen.backlog.size": str(2 * WAITING_CONNECTIONS),
    }
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t", segment_bytes=str(1 << 20))
            assert produce_code(client, b"0" * 600_000) == 0
            with no_descriptor_left(broker), connections(broker.port, WAITING_CONNECTIONS):
                assert [produce_code(client, b"1" * 600_000) for _ in range(3)] == [
                    KAFKA_STORAGE_ERROR
                ] * 3
            assert produce_code(client, b"1" * 600_000) == 0
            assert get(port, "/readyz") == (200, "ready\n")
            with RawClient(broker.bootstrap_servers) as later:
                data = later.call("Fetch", 11, fetch("t")).responses[0].partitions[0]
                assert values_in(data) == [b"0" * 600_000, b"1" * 600_000]
        assert broker.terminate() == 0
    assert "cannot accept: Too many open files" in broker.log_text()
    assert "offline" not in broker.log_text()


def test_a_flood_of_silent_http_connections_is_bounded_and_does_not_hide_the_pages(
    tmp_path: Path,
) -> None:
    port = free_port()
    with BrokerProcess(tmp_path / "data", {"metrics.listener": f"127.0.0.1:{port}"}) as broker:
        assert get(port, "/healthz") == (200, "ok\n")
        before = open_descriptors(broker)
        with connections(port, 500):
            assert get(port, "/readyz") == (200, "ready\n")
            assert open_descriptors(broker) - before <= PAGE_CONNECTIONS_PER_ADDRESS
            with RawClient(broker.bootstrap_servers) as client:
                assert client.call("ApiVersions", 2, ApiVersionsRequest()).error_code == 0


def test_refused_connections_are_logged_at_a_rate(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"max.connections": "0"}) as broker:
        for _ in range(200):
            with RawClient(broker.bootstrap_servers) as refused:
                assert refused.is_closed()
    lines = [line for line in broker.log_text().splitlines() if "connections refused" in line]
    assert 1 <= len(lines) <= 2
    assert "max.connections=0 reached" in lines[0]


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    broker = BrokerProcess(tmp_path / "data")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        broker.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(broker.kill)
        expected = min(hard, 1 << 20)
        assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0] == expected
        assert f"open file limit raised from=512 to={expected}" in broker.log_text()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9100", 200),
        ("10.1.2.3", 200),
        ("[::1]:9100", 200),
        ("localhost:9100", 200),
        ("LOCALHOST.", 200),
        ("prometheus.example:9100", 200),
        ("broker.example", 200),
        ("evil.example:9100", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("2130706433", 403),
        ("evil.example:80:80", 403),
    ],
)
def test_pages_are_served_to_addresses_and_configured_names_alone(
    pages: Broker, host: str, status: int
) -> None:
    assert pages.metrics_port is not None
    answer = get(pages.metrics_port, "/metrics", host)
    assert answer[0] == status
    if status == 403:
        assert "metrics.hosts" in answer[1]
    assert get(pages.metrics_port, "/readyz", host)[0] == status
    assert get(pages.metrics_port, "/healthz", host) == (200, "ok\n")


@pytest.fixture(scope="module")
def pages() -> Iterator[Broker]:
    settings = {
        "metrics.listener": "0.0.0.0:0",
        "metrics.hosts": "prometheus.example",
        "advertised.listeners": "PLAINTEXT://broker.example:19092",
    }
    with Broker(settings=settings) as broker:
        yield broker


def test_a_second_host_header_does_not_hide_a_foreign_one(pages: Broker) -> None:
    for head in (b"Host: localhost\r\nHost: evil.example", b"host : evil.example"):
        with socket.create_connection(("127.0.0.1", pages.metrics_port), timeout=30) as stream:
            stream.sendall(b"GET /metrics HTTP/1.1\r\n" + head + b"\r\n\r\n")
            assert stream.recv(12) == b"HTTP/1.1 403"


def test_a_closed_connection_leaves_nothing_to_the_collector_of_cycles() -> None:
    """A flood of short connections grew the broker until the next full collection."""
    with Broker() as broker:
        port = int(broker.bootstrap_servers.partition(":")[2])
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                with RawClient(broker.bootstrap_servers) as client:
                    client.call("ApiVersions", 2, ApiVersionsRequest())
                with socket.create_connection(("127.0.0.1", port), timeout=30) as half:
                    half.sendall(b"\0\0\0\x0a\0")
            eventually(lambda: not any(isinstance(each, Connection) for each in gc.get_objects()))
        finally:
            gc.enable()
