"""SIGKILL under load: nothing acknowledged is lost, no offset is ever used twice."""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.broker_process import BrokerProcess

LONG = os.environ.get("TIDELOG_LONG") == "1"
KILLS = 200 if LONG else 24
KILLS_IN_FLIGHT_MIN = 20
ACKNOWLEDGED_MIN = 100_000
PARTITIONS = 3
PATIENT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "log_level": 0}


@dataclass
class History:
    """What was acknowledged and what was read: (partition, offset) -> value."""

    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    read: dict[tuple[int, int], bytes] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def note(self, seen: dict[tuple[int, int], bytes], message: Message) -> None:
        key = (message.partition(), message.offset())
        value = message.value()
        if seen.setdefault(key, value) != value:
            self.contradictions.append(f"{key}: {seen[key]!r} and then {value!r}")


class Load(threading.Thread):
    """Sends unique values until it is told to stop, and notes what is acknowledged."""

    def __init__(self, servers: str, topic: str, acks: str, idempotent: bool) -> None:
        super().__init__(name=f"load-{topic}")
        self.topic = topic
        self.history = History()
        self.sent = 0
        self.stopping = threading.Event()
        self.producer = Producer(
            {
                **PATIENT,
                "bootstrap.servers": servers,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 1,
                "batch.num.messages": 200,
                "message.timeout.ms": 120_000,
                "max.in.flight.requests.per.connection": 5,
            }
        )

    def run(self) -> None:
        while not self.stopping.is_set():
            # A bounded queue keeps requests in flight at all times without running ahead.
            if len(self.producer) < 2_000:
                for _ in range(200):
                    self.producer.produce(
                        self.topic,
                        f"{self.topic}-{self.sent}".encode(),
                        partition=self.sent % PARTITIONS,
                        on_delivery=self._delivered,
                    )
                    self.sent += 1
            self.producer.poll(0.005)
        assert self.producer.flush(60) == 0

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.history.failures.append(str(error))
        else:
            self.history.note(self.history.acknowledged, message)


class Reader(threading.Thread):
    """Follows a topic through every restart, and notes what it is shown."""

    def __init__(self, servers: str, load: Load) -> None:
        super().__init__(name=f"reader-{load.topic}")
        self.load = load
        self.stopping = threading.Event()
        self.consumer = Consumer(
            {
                **PATIENT,
                "bootstrap.servers": servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            }
        )
        self.consumer.assign([TopicPartition(load.topic, each, 0) for each in range(PARTITIONS)])

    def run(self) -> None:
        history = self.load.history
        while not self.stopping.is_set():
            for message in self.consumer.consume(5_000, 0.05):
                if message.error() is None:
                    history.note(history.read, message)
                elif not message.error().retriable() and message.error().code() > 0:
                    history.failures.append(str(message.error()))
        self.consumer.close()


def read_everything(servers: str, topic: str) -> dict[tuple[int, int], bytes]:
    consumer = Consumer(
        {**PATIENT, "bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False}
    )
    found: dict[tuple[int, int], bytes] = {}
    ends = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        assert low == 0
        ends[partition] = high
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    deadline = time.monotonic() + 60
    while len(found) < sum(ends.values()):
        assert time.monotonic() < deadline, f"{len(found)} of {ends}"
        for message in consumer.consume(10_000, 0.5):
            assert message.error() is None, message.error()
            found[message.partition(), message.offset()] = message.value()
    consumer.close()
    return found


def create_topics(servers: str, topics: list[NewTopic]) -> None:
    admin = AdminClient({**PATIENT, "bootstrap.servers": servers})
    for future in admin.create_topics(topics).values():
        future.result(30)


def test_nothing_acknowledged_is_lost_and_no_offset_repeats_when_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    chance = random.Random(11)
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": str(1 << 20)})
    with broker:
        servers = broker.bootstrap_servers
        create_topics(servers, [NewTopic("leader", PARTITIONS, 1), NewTopic("all", PARTITIONS, 1)])
        loads = [
            Load(servers, "leader", acks="1", idempotent=False),
            Load(servers, "all", acks="all", idempotent=True),
        ]
        readers = [Reader(servers, load) for load in loads]
        for thread in [*loads, *readers]:
            thread.start()
        kills_in_flight = 0
        for kill in range(KILLS):
            target = (kill + 1) * ACKNOWLEDGED_MIN // KILLS
            deadline = time.monotonic() + 60
            while sum(len(load.history.acknowledged) for load in loads) < target:
                assert time.monotonic() < deadline, "the load stands still"
                time.sleep(0.01)
            time.sleep(chance.random() * 0.05)
            in_flight = all(len(load.producer) > 0 for load in loads)
            broker.kill()
            kills_in_flight += in_flight
            broker.start()
        for load in loads:
            load.stopping.set()
            load.join()
        for reader in readers:
            reader.stopping.set()
            reader.join()
        acknowledged = lost = repeated = 0
        for load in loads:
            history = load.history
            assert history.failures == []
            assert history.contradictions == []
            stored = read_everything(servers, load.topic)
            acknowledged += len(history.acknowledged)
            for seen in (history.acknowledged, history.read):
                lost += sum(stored.get(key) != value for key, value in seen.items())
            repeated += len(stored) - len(set(stored.values()))
            if load.topic == "all":
                assert len(stored) == len(set(stored.values())) == load.sent, (
                    "an idempotent producer's records are there exactly once"
                )
    print(
        f"kills={KILLS} in_flight={kills_in_flight} acknowledged={acknowledged} lost={lost}"
        f" repeated={repeated}"
    )
    assert lost == 0
    assert kills_in_flight >= KILLS_IN_FLIGHT_MIN
    assert acknowledged >= ACKNOWLEDGED_MIN


def test_a_clean_stop_answers_what_was_asked_and_leaves_the_marker(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        create_topics(broker.bootstrap_servers, [NewTopic("t", 1, 1)])
        producer = Producer({**PATIENT, "bootstrap.servers": broker.bootstrap_servers})
        delivered: list[object] = []
        for _ in range(1_000):
            producer.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(30) == 0
        assert delivered == [None] * 1_000
        assert broker.terminate() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert not (broker.data_dir / ".kafka_cleanshutdown").is_dir()
