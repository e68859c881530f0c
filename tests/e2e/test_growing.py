"""One path, under load: an earlier version's directory, one broker, three, three replicas, a lost
leader, ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.e2e.earlier_version import OFFSETS_TOPIC, make_earlier
from tests.e2e.test_cluster_cli import Shell
from tests.waiting import eventually
from tidelog.client.admin import describe_configs
from tidelog.client.blocking import Client
from tidelog.client.producer import init_producer_id
from tidelog.errors import TidelogError
from tidelog.model import ConfigResourceType
from tidelog.testing import Broker, Cluster, ZooKeeper

PAUSE_S = 0.002


class Acknowledged:
    """What writers were told is stored."""

    def __init__(self) -> None:
        self.values: set[bytes] = set()
        self._number = 0

    @contextmanager
    def written_meanwhile(self, servers: str) -> Iterator[None]:
        """Write all the time; at the end everything that was sent is acknowledged."""
        ending = threading.Event()
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})

        def write() -> None:
            while not ending.wait(PAUSE_S):
                self._number += 1
                producer.produce("orders", b"%d" % self._number, on_delivery=self._delivered)
                producer.poll(0)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
            count = len(self.values)
            # It goes on to the end.
            eventually(lambda: len(self.values) > count)
        finally:
            ending.set()
            thread.join()
            assert producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        value = message.value()
        assert value is not None
        self.values.add(value)


def read(servers: str, count: int) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "-", "log_level": 0})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: set[bytes] = set()
    try:
        while len(found) < count:
            found.update(message.value() or b"" for message in consumer.consume(1000, 5.0))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_directory_of_the_earlier_version_becomes_that_of_three_brokers(
    tmp_path: Path, killed: bool
) -> None:
    """Topics, settings, records, committed offsets and producer ids, without a step between."""
    data, written = tmp_path / "data", Acknowledged()
    with Broker(data_dir=data) as broker:
        shell = Shell(broker.bootstrap_servers)
        shell.run("topic", "create", "orders", "-p", "1", "--set", "retention.ms=123456789")
        shell.run("topic", "create", "gone", "-p", "1")
        shell.run("topic", "delete", "gone", "--yes")
        with written.written_meanwhile(broker.bootstrap_servers):
            pass
        committed = commit_end(broker.bootstrap_servers)
        (before,) = shell.json("topic", "describe", "orders")
        highest = producer_id(broker.bootstrap_servers)
    make_earlier(data, killed=killed)
    with Cluster(3, data_dir=data) as cluster:
        shell = Shell(cluster.bootstrap_servers)
        (after,) = shell.json("topic", "describe", "orders")
        assert (after["id"], after["settings"]) == (before["id"], before["settings"])
        assert after["settings"]["retention.ms"] == "123456789"
        assert [each["end"] for each in after["partitions"]] == [committed]
        assert "gone" not in [each["name"] for each in shell.json("topic", "list")]
        (place,) = shell.json("group", "describe", "billing")["partitions"]
        assert (place["committed"], place["lag"]) == (committed, 0)
        assert producer_id(cluster.bootstrap_servers) > highest
        with written.written_meanwhile(cluster.bootstrap_servers):
            shell.run("topic", "replicate", "--all", "--factor", "3", "--wait")
        # A commit must not be acknowledged by one broker of three: the minimum was for one.
        assert minimum_in_sync(cluster.bootstrap_servers, OFFSETS_TOPIC) == "2"
        assert written.values <= read(cluster.bootstrap_servers, len(written.values))


def commit_end(servers: str) -> int:
    """Consume all in the group "billing" and commit that; how far it is."""
    settings = {"group.id": "billing", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, **settings})
    consumer.subscribe(["orders"])
    _, end = consumer.get_watermark_offsets(TopicPartition("orders", 0))
    try:
        count = 0
        while count < end:
            count += len(consumer.consume(1000, 1.0))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return end


def producer_id(servers: str) -> int:
    """A new one."""
    with Client(servers) as client:
        return client.run(init_producer_id(client.cluster)).producer_id


def minimum_in_sync(servers: str, topic: str) -> str | None:
    with Client(servers) as client:
        entries = client.run(describe_configs(client.cluster, ConfigResourceType.TOPIC, topic))
    return next(each.value for each in entries if each.name == "min.insync.replicas")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_one_broker_grows_to_three_and_moves_to_zookeeper_under_load(tmp_path: Path) -> None:
    data, written = tmp_path / "data", Acknowledged()
    with Broker(data_dir=data) as broker, written.written_meanwhile(broker.bootstrap_servers):
        pass
    make_earlier(data)
    with Broker(data_dir=data) as broker, written.written_meanwhile(broker.bootstrap_servers):
        pass
    with Cluster(3, data_dir=data) as cluster:
        shell = Shell(cluster.bootstrap_servers)
        with written.written_meanwhile(cluster.bootstrap_servers):
            shell.run("topic", "replicate", "--all", "--factor", "3", "--wait")
            leader = cluster.leader_of("orders")
            cluster.kill(leader)
            eventually(lambda: cluster.leader_of("orders") not in (-1, leader))
            cluster.restart(leader)
            shell.run("cluster", "health", "--wait")
    with ZooKeeper() as ensemble:
        store = f"{ensemble.address}/tidelog"
        said = Shell("").run("cluster", "move", "--data-dir", str(data), "--to", ensemble.address)
        assert f"start its brokers with --store {store}" in said
        with pytest.raises(TidelogError, match=f"was moved to {store}; start the broker with"):
            Cluster(3, data_dir=data).start()
        settings = {"zookeeper.session.timeout.ms": 3000}
        with Cluster(3, data_dir=data, store=store, settings=settings) as cluster:
            shell = Shell(cluster.bootstrap_servers)
            with written.written_meanwhile(cluster.bootstrap_servers):
                shell.run("cluster", "health", "--wait")
            assert sorted(shell.replicas("orders")[0]) == [0, 1, 2]
            values = read(cluster.bootstrap_servers, len(written.values))
            assert written.values <= values
