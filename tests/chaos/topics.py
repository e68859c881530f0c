"""One partition at a time, whose replicas a test chooses, and what was promised of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from tests.chaos.reading import read_replicas
from tests.chaos.world import WAIT_S, World
from tests.e2e.produce_requests import offset_at
from tests.e2e.raw_client import RawClient

_LATEST = -1
_names = count()


class Promises:
    """A topic with one partition, and the offsets and values that were acknowledged there."""

    def __init__(self, world: World, replicas: Sequence[int], **configs: str) -> None:
        self.world = world
        self.topic = f"scripted{next(_names)}"
        self.acknowledged: dict[int, int] = {}
        self._sent = 0
        admin = world.admin()
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        topic = NewTopic(self.topic, 1, replica_assignment=[list(replicas)], config=settings)
        admin.create_topics([topic])[self.topic].result(timeout=WAIT_S)
        self.wait_isr(*replicas)

    def send(self, records: int = 200) -> None:
        """With acks=all; returns when all are acknowledged."""
        producer = Producer(
            {
                "bootstrap.servers": self.world.brokers.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        for _ in range(records):
            self._sent += 1
            producer.produce(self.topic, str(self._sent), partition=0, on_delivery=self._heard)
        assert producer.flush(WAIT_S) == 0, f"{self.topic} cannot be written"

    def _heard(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset, value = message.offset(), message.value()
        if offset is not None and value is not None:
            self.acknowledged[offset] = int(value)

    def state(self) -> tuple[int, set[int]]:
        """Who leads, and who is in sync."""
        found = self.world.metadata().topics[self.topic].partitions[0]
        return found.leader, set(found.isrs)

    def leader(self) -> int:
        return self.state()[0]

    def wait_isr(self, *brokers: int) -> None:
        wanted = set(brokers)
        self.world.wait(f"{self.topic} has {wanted} in sync", lambda: self._in_sync() == wanted)

    def _in_sync(self) -> set[int]:
        try:
            return self.state()[1]
        except Exception:
            return set()

    def wait_leader(self, *brokers: int) -> None:
        """Until one of these leads."""

        def leads() -> bool:
            try:
                return self.leader() in brokers
            except Exception:
                return False

        self.world.wait(f"{self.topic} is led by one of {brokers}", leads)

    def lost(self) -> int:
        """How many of the acknowledged offsets the leader does not have any more."""
        with RawClient(self.world.brokers.server(self.leader())) as client:
            end = offset_at(client, self.topic, _LATEST)
        return sum(offset >= end for offset in self.acknowledged)

    def assert_kept(self) -> None:
        """Whatever was acknowledged is where it was, on every broker."""
        self.assert_kept_by(*self.world.brokers.ids)

    def assert_kept_by(self, *replicas: int) -> None:
        wanted = [(f"{self.topic}-0", offset) for offset in self.acknowledged]
        problems, records = read_replicas(self.world.brokers, replicas, wanted, self.world.writer)
        assert problems == []
        for record in records:
            assert self.acknowledged.get(record.offset, record.value) == record.value, record
