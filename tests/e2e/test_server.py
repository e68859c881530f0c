"""The broker as a process and in a process: pages, listeners, addresses, signals, settings."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess, free_port
from tests.e2e.produce_requests import batch, create_topic, fetch, produce, values_in
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ConfigError, ErrorCode, StorageError
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.testing import Broker

STOCK_SERVER_PROPERTIES = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={directory}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_and_health_pages() -> None:
    with Broker(settings={"metrics.listener": "127.0.0.1:0"}) as broker:
        port = broker.metrics_port
        assert port is not None
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "counted")
            for _ in range(3):
                client.call("Produce", 9, produce("counted", batch([b"a", b"b"])))
            client.call("Fetch", 11, fetch("counted"))
        status, text = get(port, "/metrics")
        assert status == 200
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
        assert lines['tidelog_requests_total{api="Produce"}'] == "3"
        assert lines['tidelog_request_seconds_count{api="Produce"}'] == "3"
        assert lines['tidelog_request_seconds_bucket{api="Produce",le="+Inf"}'] == "3"
        assert lines["tidelog_produced_records_total"] == "6"
        assert lines['tidelog_log_end_offset{topic="counted",partition="0"}'] == "6"
        assert int(lines['tidelog_log_size_bytes{topic="counted",partition="0"}']) > 0
        assert int(lines["tidelog_loop_stall_seconds_count"]) >= 0
        assert float(lines["tidelog_loop_busy_max_seconds"]) >= 0
        assert lines["tidelog_fetched_bytes_total"] == lines["tidelog_produced_bytes_total"]
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/readyz") == (200, "ready\n")
        assert get(port, "/nothing")[0] == 404
        assert get(port, "/metrics", method="POST")[0] == 405


def test_the_address_that_the_client_used_is_advertised_back() -> None:
    settings = {"listeners": "PLAINTEXT://0.0.0.0:0", "allow.plaintext.listeners": "true"}
    with Broker(settings=settings) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        for host in ("127.0.0.1", "127.0.0.2", "127.9.8.7"):
            with RawClient(f"{host}:{port}") as client:
                node = client.call("Metadata", 9, MetadataRequest(topics=[])).brokers[0]
                assert (node.host, node.port) == (host, port)


def test_an_advertised_address_is_told_as_it_is() -> None:
    settings = {"advertised.listeners": "PLAINTEXT://broker.example:19092"}
    with Broker(settings=settings) as broker, RawClient(broker.bootstrap_servers) as client:
        node = client.call("Metadata", 9, MetadataRequest(topics=[])).brokers[0]
        assert (node.host, node.port) == ("broker.example", 19092)


def test_several_listeners_and_none_takes_replicas_that_have_not_authenticated() -> None:
    ports = free_port(), free_port()
    settings = {
        "listeners": f"CLIENTS://127.0.0.1:{ports[0]},BROKERS://127.0.0.1:{ports[1]}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    with Broker(settings=settings):
        for port in ports:
            with RawClient(f"127.0.0.1:{port}") as client:
                request = fetch("t")
                request.replica_id = 5
                code = client.call("Fetch", 11, request).error_code
                assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                node = client.call("Metadata", 9, MetadataRequest(topics=[])).brokers[0]
                assert node.port == port


def test_two_brokers_in_one_process_know_nothing_of_each_other() -> None:
    with Broker() as first, Broker(settings={"node.id": "7"}) as second:
        ids = set()
        for broker in (first, second):
            with RawClient(broker.bootstrap_servers) as client:
                create_topic(client, "same-name")
                client.call(
                    "Produce", 9, produce("same-name", batch([broker.bootstrap_servers.encode()]))
                )
                data = client.call("Fetch", 11, fetch("same-name")).responses[0].partitions[0]
                assert values_in(data) == [broker.bootstrap_servers.encode()]
                ids.add(client.call("Metadata", 9, MetadataRequest(topics=[])).cluster_id)
        assert len(ids) == 2


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)), pytest.raises(StorageError, match="in use by process"):
        Broker(data_dir=str(tmp_path)).start()


def test_every_file_is_its_owners_alone(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Broker(data_dir=str(directory)) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "private")
            client.call("Produce", 9, produce("private", batch([b"x"])))
        modes = {path: path.stat().st_mode & 0o077 for path in directory.rglob("*")}
    assert len(modes) >= 6
    assert {str(path) for path, mode in modes.items() if mode} == set()


def test_a_directory_that_lost_its_metadata_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)):
        pass
    (tmp_path / "metadata.db").unlink()
    with pytest.raises(StorageError, match=r"metadata\.db"):
        Broker(data_dir=str(tmp_path)).start()


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        Broker(settings={"log.segmnt.bytes": "1"}).start()


def test_kafkas_stock_server_properties_start_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK_SERVER_PROPERTIES.format(directory=tmp_path / "data"))
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "broker", "--config", str(file),
         "--listen", f"127.0.0.1:{port}"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if f"tidelog broker 0 on 127.0.0.1:{port}" in line:
            break
    with RawClient(f"127.0.0.1:{port}") as client:
        assert client.call("ApiVersions", 2, ApiVersionsRequest()).error_code == 0
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=20)[1]
    assert process.returncode == 0, rest
    warned = "".join(said)
    assert "zookeeper.connect" in warned
    assert "num.io.threads" in warned


def test_a_taken_port_is_said_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = subprocess.run(
            [sys.executable, "-m", "tidelog", "broker", "--data-dir", str(tmp_path / "data"),
             "--listen", f"127.0.0.1:{taken.getsockname()[1]}"],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "is taken by another process" in run.stderr
    assert "hint: " in run.stderr


def test_sigterm_answers_what_was_asked_and_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        client = RawClient(broker.bootstrap_servers)
        create_topic(client, "t")
        client.send("Fetch", 11, fetch("t", max_wait_ms=1_000))
        waiting = threading.Thread(target=broker.terminate)
        waiting.start()
        data = client.receive()[1].responses[0].partitions[0]
        assert data.error_code == 0
        assert client.is_closed()
        waiting.join(20)
        client.close()
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap_servers) as client:
            client.send("Fetch", 11, fetch("t", max_wait_ms=60_000))
            client.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.socket.recv(1)
            process = broker._process
            assert process is not None
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1.2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 1
    assert not (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_a_signal_repeated_within_a_second_is_the_same_one(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            client.send("Fetch", 11, fetch("t", max_wait_ms=500))
            process = broker._process
            assert process is not None
            for number in (signal.SIGTERM, signal.SIGINT) * 3:
                process.send_signal(number)
            assert client.receive()[1].responses[0].partitions[0].error_code == 0
        assert process.wait(10) == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_names_that_clients_choose_cannot_forge_lines_of_the_log(tmp_path: Path) -> None:
    group = "g\n2026-01-01 00:00:00,000 level=ERROR forged\u2028\u202e\x1b[2J" + "x" * 30_000
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            join = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", b"")],
            )
            client.call("FindCoordinator", 2, FindCoordinatorRequest(key=group))
            eventually(lambda: client.call("JoinGroup", 2, join).error_code == 0)
        assert broker.terminate() == 0
    lines = broker.log_text().splitlines()
    assert any("rebalance begins group=g\\n2026" in line for line in lines)
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert all(line.isprintable() and len(line) < 3_000 for line in lines)


def test_an_unknown_api_or_version_closes_and_api_versions_steps_down() -> None:
    with Broker() as broker:
        for api_key, version in ((999, 0), (3, 99), (11, 0)):
            with RawClient(broker.bootstrap_servers) as client:
                head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
                client.socket.sendall(b"\x00\x00\x00\x0a" + head + b"\x00\x00\x00\x01\xff\xff")
                assert client.is_closed()
        with RawClient(broker.bootstrap_servers) as client:
            client.socket.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x63\x00\x00\x00\x09\xff\xff")
            frame = client.receive_frame()
            assert frame[:6] == b"\x00\x00\x00\x09\x00\x23"
            # One key, its own, as Kafka answers.
            assert frame[6:12] == b"\x00\x00\x00\x01\x00\x12"
            assert client.call("ApiVersions", 2, ApiVersionsRequest()).error_code == 0


def test_the_pytest_plugin_gives_a_broker_and_a_fresh_topic(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    (tmp_path / "test_users.py").write_text(
        "def test_one(tidelog_broker, tidelog_topic):\n"
        "    assert ':' in tidelog_broker.bootstrap_servers\n"
        "    assert tidelog_topic.startswith('test-one-')\n"
        "def test_two(tidelog_topics, tidelog_producer, tidelog_consumer):\n"
        "    orders = tidelog_topics('orders', partitions=2, settings={'retention.ms': '5000'})\n"
        "    assert (orders, tidelog_topics() == tidelog_topics()) == ('orders', False)\n"
        "    assert type(tidelog_producer).__name__ == 'KafkaProducer'\n"
        "    tidelog_producer.send(orders, b'one').get(10)\n"
        "    assert next(tidelog_consumer(orders, group='g')).value == b'one'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\ntidelog_client = kafka-python\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert "2 passed" in run.stdout, run.stdout + run.stderr
