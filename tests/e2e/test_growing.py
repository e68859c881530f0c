"""One path, under load: one broker, three, three replicas, a lost leader, ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.e2e.test_cluster_cli import Shell
from tests.waiting import eventually
from tidelog.errors import TidelogError
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


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_one_broker_grows_to_three_and_moves_to_zookeeper_under_load(tmp_path: Path) -> None:
    data, written = tmp_path / "data", Acknowledged()
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
