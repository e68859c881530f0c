"""TLS connections that do not go on: they cost little, end in time, and hold up nobody."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.waiting import eventually
from tidelog.host import acceptor
from tidelog.protocol.apis import api
from tidelog.protocol.framing import encode_request
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.server.broker import Broker as ServerBroker
from tidelog.server.connection import Connection
from tidelog.server.outbox import SMALL_PIECE_BYTES
from tidelog.testing import Broker
from tidelog.testing.certificates import Authority

_RECORDS, _RECORD_BYTES = 64, 512 * 1024


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    authority = Authority()
    authority.issue().write(tmp_path / "broker.pem")
    authority.write(tmp_path / "ca.pem")
    return tmp_path


@pytest.fixture
def broker(directory: Path) -> Iterator[Broker]:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "message.max.bytes": "2000000",
    }
    with Broker(settings=settings) as running:
        yield running


def server_of(broker: Broker) -> ServerBroker:
    server = broker._broker
    assert server is not None
    return server


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_x27_a_handshake_that_does_not_go_on_is_ended_and_counted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "TLS_HANDSHAKE_SECONDS", 0.2)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "max.connections": "3",
    }
    with Broker(settings=settings) as broker:
        silent = [connect(broker) for _ in range(3)]
        with connect(broker) as refused:
            assert refused.recv(1) == b"", "those that shake hands count against the limit"
        for each in silent:
            with each:
                assert each.recv(1) == b"", "its time is up"
        with connect(broker) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            eventually(lambda: _is_over(plain))


def _is_over(stream: socket.socket) -> bool:
    try:
        return stream.recv(4096) == b""
    except OSError:
        return True


def test_a_broker_stops_without_waiting_for_a_handshake(broker: Broker) -> None:
    silent = [connect(broker) for _ in range(5)]
    broker.stop()
    for each in silent:
        with each:
            assert _is_over(each)


def fetch_frame(topic_id: object, number: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_bytes=1 << 30,
        max_wait_ms=0,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    parts = encode_request(api("Fetch"), 13, number, "slow", request)
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def test_x24_a_client_that_does_not_read_its_answer_costs_a_few_pieces(
    broker: Broker, directory: Path
) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "message.max.bytes": 2_000_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    for _ in range(_RECORDS):
        producer.produce("large", b"x" * _RECORD_BYTES)
    assert producer.flush(30) == 0
    server = server_of(broker)
    topic_id = server.parts.metadata.image.topics["large"].topic_id
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    with connect(broker) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        with context.wrap_socket(stream, server_hostname="127.0.0.1") as tls:
            port = tls.getsockname()[1]
            tls.sendall(fetch_frame(topic_id, 1))

            def ours() -> list[Connection]:
                connections = tuple(server.parts.listeners[0].connections)
                return [each for each in connections if each.peer.endswith(f":{port}")]

            # With TLS 1.3 the client is done with the handshake before the broker is.
            eventually(lambda: len(ours()) == 1)
            (connection,) = ours()
            eventually(lambda: connection._outbox.is_busy)
            sent = connection._outbox.bytes_sent
            # What the kernel's buffers of both sides take, and a few pieces on top.
            assert sent < 8 * 1024 * 1024 + 4 * SMALL_PIECE_BYTES < _RECORDS * _RECORD_BYTES
            assert connection._transport.get_write_buffer_size() <= 2 * SMALL_PIECE_BYTES
            # It reads in the end, and gets all of it.
            (length,) = struct.unpack(">i", _received(tls, 4))
            assert length > _RECORDS * _RECORD_BYTES
            assert len(_received(tls, length)) == length


def _received(stream: ssl.SSLSocket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = stream.recv(min(1 << 16, count - len(data)))
        assert piece, f"cut off after {len(data)} of {count}"
        data += piece
    return bytes(data)


def test_the_loop_is_uvloop_or_asyncio_and_both_speak_tls(directory: Path) -> None:
    """The acceptor's handshake on the standard loop, too: uvloop is not everywhere."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "broker.pem")

    class Gate:
        """Lets everybody in."""

        def __init__(self) -> None:
            self.made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self.lost = asyncio.Event()

        def refusal(self, host: str) -> None:
            return None

        def opened(self, host: str) -> asyncio.BaseProtocol:
            return Greeter(self)

        def forget(self, connection: asyncio.BaseProtocol) -> None:
            pass

    class Greeter(asyncio.Protocol):
        """Tells which version of TLS it speaks."""

        def __init__(self, gate: Gate) -> None:
            self._gate = gate

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            tls = transport.get_extra_info("ssl_object")
            self._gate.made.set_result(tls.version())
            transport.close()

        def connection_lost(self, error: Exception | None) -> None:
            self._gate.lost.set()

    async def run() -> str:
        from tidelog.host.clock import SystemClock

        gate = Gate()
        made = acceptor.SocketAcceptor("x", gate, SystemClock(), lambda: context)
        await made.bind("127.0.0.1", 0)
        made.serve(5)
        trusted = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        _, writer = await asyncio.open_connection("127.0.0.1", made.port, ssl=trusted)
        version = await gate.made
        writer.close()
        await writer.wait_closed()
        await gate.lost.wait()
        made.close()
        await made.wait_closed()
        return version

    assert asyncio.run(run()) == "TLSv1.3"


@pytest.mark.parametrize("loop", ["the broker's", "asyncio's"])
@pytest.mark.parametrize(
    ("version", "certificate", "alert"),
    [
        (ssl.TLSVersion.TLSv1_3, None, "CERTIFICATE_REQUIRED"),
        (ssl.TLSVersion.TLSv1_3, "expired", "CERTIFICATE_EXPIRED"),
        (ssl.TLSVersion.TLSv1_2, None, "HANDSHAKE_FAILURE"),
    ],
)
def test_a_client_whose_certificate_is_refused_is_sent_the_alert_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str,
    version: ssl.TLSVersion, certificate: str | None, alert: str,
) -> None:  # fmt: skip
    if loop == "asyncio's":
        monkeypatch.setattr("tidelog.testing.broker.new_event_loop", asyncio.new_event_loop)
    authority = Authority()
    trust = authority.write(tmp_path / "ca.pem")
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue().write(tmp_path / "broker.pem"),
        "ssl.truststore.location": trust,
        "ssl.client.auth": "required",
    }
    context = ssl.create_default_context(cafile=trust)
    context.maximum_version = version
    if certificate is not None:
        path = authority.issue("CN=alice", expired=True).write(tmp_path / "client.pem")
        context.load_cert_chain(path)
    with (
        Broker(settings=settings) as broker,
        connect(broker) as stream,
        pytest.raises(ssl.SSLError, match=alert),
        context.wrap_socket(stream, server_hostname="127.0.0.1") as tls,
    ):
        # With TLS 1.3 the client is done with the handshake before the broker is.
        tls.recv(1)
