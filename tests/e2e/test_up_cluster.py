"""`tidelog up --brokers N` and `testing.Cluster`: real processes, killed and stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e.broker_process import free_port
from tests.waiting import eventually
from tidelog.client.admin import NewTopic, create_topic, describe_cluster, describe_topic
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_producer import Producer
from tidelog.client.faults import AuthenticationError
from tidelog.client.offsets import Start
from tidelog.client.producer import ProducerRecord
from tidelog.client.security import read_security
from tidelog.client.settings import ClientSettings
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.testing import Broker, Cluster, ZooKeeper


class Up:
    """`tidelog up` as a process, what it says in a file."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.log_path = Path(f"{directory}.log")
        self.port = free_port()
        command = [
            sys.executable, "-m", "tidelog", "up", "--listen", f"127.0.0.1:{self.port}",
            "--data-dir", str(directory), *arguments,
        ]  # fmt: skip
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_up(self) -> list[str]:
        def is_up() -> bool:
            assert self.process.poll() is None, self.log
            return "tidelog is up on" in self.log

        eventually(is_up, lambda: self.log)
        (servers,) = re.findall(r"tidelog is up on (\S+)", self.log)
        return str(servers).split(",")

    def brokers(self) -> list[psutil.Process]:
        children: list[psutil.Process] = psutil.Process(self.process.pid).children()
        return sorted(children, key=lambda each: each.cmdline())


@contextmanager
def up(directory: Path, *arguments: str) -> Iterator[Up]:
    started = Up(directory, *arguments)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def write(servers: str, topic: str, values: list[bytes]) -> None:
    with Producer(servers) as producer:
        for value in values:
            producer.send(ProducerRecord(topic, value=value))


def read(servers: str, topic: str, partitions: int, count: int) -> set[bytes]:
    found: list[bytes] = []
    with Consumer(servers) as consumer:
        consumer.assign({TopicPartition(topic, each): Start("start") for each in range(partitions)})
        while len(found) < count:
            for _, records in consumer.poll(5.0):
                found += [bytes(record.value or b"") for record in records]
    return set(found)


def test_brokers_of_one_command_are_one_cluster_and_stop_in_order(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--brokers", "3", "--replication", "1") as started:
        servers = started.wait_up()
        ports = [int(each.rpartition(":")[2]) for each in servers]
        assert ports[0] == started.port and ports == sorted(set(ports)) and len(ports) == 3
        with Client(servers[2]) as client:
            client.run(create_topic(client.cluster, NewTopic("orders", partitions=6)))
            described = client.run(describe_topic(client.cluster, "orders"))
            assert {each.leader for each in described.partitions.values()} == {0, 1, 2}
        values = [b"%d" % each for each in range(60)]
        write(servers[1], "orders", values)
        assert read(servers[0], "orders", 6, 60) == set(values)
        assert sorted(each.name for each in (tmp_path / "data").iterdir() if each.is_dir()) == [
            "0", "1", "2",
        ]  # fmt: skip

        # A killed broker comes back with what it had.
        victim = started.brokers()[1]
        victim.kill()
        eventually(lambda: started.log.count("started node_id=1") == 2, lambda: started.log)
        assert read(servers[0], "orders", 6, 60) == set(values)

        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(timeout=60) == 0, started.log
        stopped = re.findall(r"^\[\d\] .*stopped node_id=(\d)", started.log, re.M)
        assert stopped == ["2", "1", "0"]


def test_brokers_of_one_command_are_secured_as_their_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "up.properties"
    file.write_text(
        "listeners=CLIENTS://127.0.0.1:0\n"
        "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT\n"
        "authorizer.class.name=acl\nsuper.users=User:admin\n"
    )
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_PASSWORD", "a-long-secret")
    # A client's own file, as the page has it, is not a broker's business.
    monkeypatch.setenv("TIDELOG_CLIENT_CONFIG", "client.properties")
    arguments = ("--brokers", "2", "--config", str(file), "--bootstrap-user", "admin")
    with up(tmp_path / "data", *arguments) as started:
        servers = started.wait_up()
        for server in servers:
            for password, is_right in (("a-long-secret", True), ("wrong", False)):
                security = read_security(
                    {
                        "security.protocol": "SASL_PLAINTEXT",
                        "sasl.mechanism": "SCRAM-SHA-512",
                        "sasl.username": "admin",
                        "sasl.password": password,
                    }
                )
                settings = ClientSettings.impatient("tester", 10_000, security)
                with Client(server, settings) as client:
                    if is_right:
                        found = client.run(describe_cluster(client.cluster))
                        assert [each.id for each in found.brokers] == [0, 1]
                    else:
                        with pytest.raises(AuthenticationError):
                            client.run(describe_cluster(client.cluster))
        for port in re.findall(r"listening listener=BROKER host=\S+ port=(\d+)", started.log):
            with (
                Client(f"127.0.0.1:{port}", ClientSettings.impatient("tester", 300)) as client,
                pytest.raises(TidelogError),
            ):
                client.run(describe_cluster(client.cluster))
        assert "a-long-secret" not in started.log


def test_the_brokers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--brokers", "2") as started:
        started.wait_up()
        brokers = started.brokers()
        assert len(brokers) == 2
        # One that hangs ends, too.
        brokers[0].suspend()
        started.process.kill()
        started.process.wait()
        _, left = psutil.wait_procs(brokers, timeout=20)
        assert left == []


def test_a_broker_that_cannot_start_ends_the_command_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1").write_text("in the way")
    with up(tmp_path / "data", "--brokers", "2") as started:
        assert started.process.wait(timeout=60) == 1
        assert "error: broker 1 did not start" in started.log
        assert str(tmp_path / "data" / "1") in started.log


def test_the_directory_of_one_broker_becomes_a_clusters(tmp_path: Path) -> None:
    values = [b"%d" % each for each in range(20)]
    with Broker(data_dir=tmp_path / "data") as broker:
        write(broker.bootstrap_servers, "orders", values)
    with Cluster(2, data_dir=tmp_path / "data") as cluster:
        assert read(cluster.bootstrap_servers, "orders", 1, 20) == set(values)
    assert (tmp_path / "data" / "0" / "orders-0").is_dir()
    with pytest.raises(TidelogError, match=r"tidelog up --brokers 2 --data-dir"):
        Broker(data_dir=tmp_path / "data").start()
    with pytest.raises(TidelogError, match=r"holds 2 brokers"):
        Cluster(1, data_dir=tmp_path / "data").start()
    with Cluster(3, data_dir=tmp_path / "data") as cluster:
        assert read(cluster.bootstrap_servers, "orders", 1, 20) == set(values)


def test_a_broker_of_a_test_is_killed_and_started_again() -> None:
    with Cluster(brokers=2, settings={"default.replication.factor": 1}) as cluster:
        servers = cluster.bootstrap_servers
        with Client(servers) as client:
            client.run(create_topic(client.cluster, NewTopic("orders", partitions=2)))
        leader = cluster.leader_of("orders", 1)
        before = cluster.pid(leader)
        cluster.kill(leader)
        with pytest.raises(TidelogError, match=rf"restart\({leader}\) starts it"):
            cluster.pid(leader)
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
        cluster.restart(leader)
        assert cluster.bootstrap_servers == servers
        eventually(lambda: cluster.leader_of("orders", 1) == leader)
        write(servers, "orders", [b"again"])
        cluster.stop(leader)
        assert "stopped node_id" in cluster.log_of(leader)
        with pytest.raises(TidelogError, match="brokers 0 to 1, and no broker 2"):
            cluster.kill(2)


def health(servers: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tidelog", "cluster", "health", "-b", servers, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


def lose_a_leader(cluster: Cluster) -> None:
    """Write, kill the leader, write on, start it again: all that was acknowledged is there."""
    servers = cluster.bootstrap_servers
    with Client(servers) as client:
        client.run(create_topic(client.cluster, NewTopic("orders", partitions=1)))
        described = client.run(describe_topic(client.cluster, "orders"))
        assert sorted(described.partitions[0].replicas) == [0, 1, 2]
    before = [b"before %d" % each for each in range(100)]
    after = [b"after %d" % each for each in range(100)]
    write(servers, "orders", before)
    leader = cluster.leader_of("orders")
    assert health(servers) == (0, "healthy: 3 brokers, 1 partitions in sync")
    cluster.kill(leader)
    write(servers, "orders", after)
    assert cluster.leader_of("orders") not in (-1, leader)
    code, said = health(servers)
    assert code == 1 and f"broker {leader} is not there" in said
    assert "1 partition (orders-0) not in sync on every replica" in said
    cluster.restart(leader)
    assert health(servers, "--wait")[0] == 0
    assert read(servers, "orders", 1, 200) == {*before, *after}


def test_a_killed_leader_takes_nothing_with_it() -> None:
    with Cluster(brokers=3) as cluster:
        lose_a_leader(cluster)


@pytest.mark.spark
def test_a_killed_leader_takes_nothing_with_it_with_zookeeper() -> None:
    with ZooKeeper() as ensemble:
        settings = {"zookeeper.session.timeout.ms": 2000}
        with Cluster(brokers=3, store=ensemble.address, settings=settings) as cluster:
            lose_a_leader(cluster)
