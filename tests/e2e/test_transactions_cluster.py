"""Transactions on three real brokers that are killed, with programs that are killed as well."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.testing import Cluster

PARTITIONS = 4
COPIERS = 2
SECONDS = 120.0


class Copying:
    """The copiers, which come back when they are gone, and what they have done so far."""

    def __init__(self, cluster: Cluster, records: int) -> None:
        self.cluster = cluster
        self.records = records
        self._copiers: dict[int, subprocess.Popen[bytes]] = {}
        first = cluster.bootstrap_servers.split(",")[0]
        with RawClient(first) as client:
            create_topic(client, "in", PARTITIONS)
            create_topic(client, "out", PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for number in range(records):
            producer.produce("in", str(number), partition=number % PARTITIONS)
        assert producer.flush(SECONDS) == 0
        self._reader = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._reader.assign([TopicPartition("out", each, 0) for each in range(PARTITIONS)])
        self.found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}

    def keep_up(self) -> None:
        for number in range(COPIERS):
            copier = self._copiers.get(number)
            if copier is None or copier.poll() is not None:
                self._copiers[number] = subprocess.Popen(
                    [
                        sys.executable, "-m", "tests.e2e.transaction_copier",
                        self.cluster.bootstrap_servers, f"copier-{number}", "in", "out",
                    ],
                    stderr=subprocess.DEVNULL,
                )  # fmt: skip

    def kill(self, number: int) -> None:
        self._copiers[number].kill()
        self._copiers[number].wait()

    def look(self) -> int:
        """How many copies are committed by now."""
        self.keep_up()
        for message in self._reader.consume(500, 0.5):
            if not message.error():
                self.found[message.partition()].append(int(message.value()))
        return sum(map(len, self.found.values()))

    def until(self, count: int) -> None:
        eventually(lambda: self.look() >= count, lambda: self.found, SECONDS)

    def close(self) -> None:
        for copier in self._copiers.values():
            copier.kill()
            copier.wait()
        self._reader.close()


@pytest.mark.parametrize("seed", [1])
def test_t14_a_copy_has_every_record_once_whoever_is_killed(seed: int) -> None:
    """K14: input equals output, nothing twice, order kept."""
    chance = Random(seed)
    records, kills = 3_000, 4
    settings = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"}
    with Cluster(brokers=3, settings=settings) as cluster:
        copying = Copying(cluster, records)
        try:
            for kill in range(kills):
                copying.until(records * kill // (kills + 1))
                if kill % 2:
                    copying.kill(chance.randrange(COPIERS))
                    continue
                broker = chance.randrange(3)
                cluster.kill(broker)
                time.sleep(chance.random())
                cluster.restart(broker)
            copying.until(records)
            copying.look()
        finally:
            copying.close()
    for partition, found in copying.found.items():
        twice = [each for each, count in Counter(found).items() if count > 1]
        assert not twice, f"partition {partition}"
        assert found == list(range(partition, records, PARTITIONS))
