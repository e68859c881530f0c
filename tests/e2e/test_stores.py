"""A broker process with its metadata in ZooKeeper: waited for, served, kept over a restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess, free_port
from tests.waiting import eventually
from tidelog.client.admin import NewTopic, create_topic, list_topics
from tidelog.client.blocking import Client
from tidelog.testing.zookeeper import ZooKeeper


def test_a_broker_waits_for_its_store_says_so_and_stops_when_asked(tmp_path: Path) -> None:
    port = free_port()
    command = [
        sys.executable, "-m", "tidelog", "broker", "--data-dir", str(tmp_path / "data"),
        "--listen", "127.0.0.1:0", "--store", f"zookeeper://127.0.0.1:{port}",
        "--set", "zookeeper.connection.timeout.ms=200",
    ]  # fmt: skip
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file)
    try:
        said = f"waiting for the metadata store: ZooKeeper at 127.0.0.1:{port} cannot be reached"
        eventually(lambda: said in log.read_text())
        process.terminate()
        assert process.wait(timeout=20) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.spark
def test_a_broker_keeps_its_metadata_in_zookeeper(tmp_path: Path) -> None:
    with ZooKeeper() as ensemble:
        settings = {"store": f"{ensemble.address}/here", "zookeeper.session.timeout.ms": "2000"}
        broker = BrokerProcess(tmp_path / "data", settings)
        with broker, Client(broker.bootstrap_servers) as client:
            client.run(create_topic(client.cluster, NewTopic("orders", partitions=2)))
            assert broker.terminate() == 0
        assert not (tmp_path / "data" / "metadata.db").exists()
        with broker, Client(broker.bootstrap_servers) as client:
            topics = client.run(list_topics(client.cluster))
            assert [topic.name for topic in topics] == ["orders"]


def test_a_secret_on_the_command_line_is_refused_with_the_way_to_give_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelog", "broker", "--data-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, "--set", "zookeeper.digest=me:hidden"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "TIDELOG_ZOOKEEPER_DIGEST" in done.stderr
    assert "hidden" not in done.stderr
