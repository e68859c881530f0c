"""Classic groups of real clients: join, share, leave, die, commit, resume."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.broker_process import BrokerProcess
from tests.waiting import eventually
from tidelog.testing import Broker

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that newer Pythons do without.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PARTITIONS = 6
WAIT_SECONDS = 30.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings={"group.min.session.timeout.ms": "500"}) as running:
        yield running


def create_topic(servers: str, name: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions)])[name].result(timeout=10)


def produce(servers: str, topic: str, values: range, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    for value in values:
        producer.produce(topic, str(value), partition=value % partitions)
    assert producer.flush(10) == 0


class Member:
    """A consumer of confluent-kafka that is polled by a thread of its own until it ends."""

    def __init__(self, servers: str, group: str, topic: str, **settings: object) -> None:
        self.values: list[int] = []
        self.owned: set[int] = set()
        self.errors: list[KafkaError] = []
        self._stop = threading.Event()
        self._leave = True
        timeouts = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 200}
        if settings.get("group.protocol") == "consumer":
            # There the broker says how long and how often.
            timeouts = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **timeouts,
                **settings,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {each.partition for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {each.partition for each in partitions}

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self.errors.append(error)
            else:
                value = message.value()
                assert value is not None
                self.values.append(int(value))
                self._commit(message)
        if self._leave:
            self.consumer.close()

    def _commit(self, message: Message) -> None:
        try:
            self.consumer.commit(message, asynchronous=False)
        except KafkaException as raised:
            error = raised.args[0]
            # A rebalance overtook the commit, as with any broker: the record may come again.
            if error.code() not in (
                KafkaError.ILLEGAL_GENERATION,
                KafkaError.REBALANCE_IN_PROGRESS,
            ):
                self.errors.append(error)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def shared_by(members: list[Member]) -> bool:
    """Every partition has one owner, and every member owns its fair share."""
    owned = [each.owned for each in members]
    total = sum(map(len, owned))
    return set().union(*owned) == set(range(PARTITIONS)) and total == PARTITIONS and all(owned)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_the_partitions_as_they_come_and_go(broker: Broker, strategy: str) -> None:
    topic = group = f"shared-{strategy}"
    create_topic(broker.bootstrap_servers, topic)
    members: list[Member] = []

    def add() -> None:
        settings: dict[str, object] = {"partition.assignment.strategy": strategy}
        members.append(Member(broker.bootstrap_servers, group, topic, **settings))

    try:
        for count in (1, 2, 3):
            add()
            eventually(lambda: shared_by(members), lambda: [each.owned for each in members])
            produce(broker.bootstrap_servers, topic, range(count * 60, count * 60 + 60))
        members[1].close()
        left = [members[0], members[2]]
        eventually(lambda: shared_by(left))
        produce(broker.bootstrap_servers, topic, range(240, 300))
        expected = set(range(60, 300))
        eventually(lambda: {v for each in members for v in each.values} == expected)
        # Each record was committed after it was taken: nothing is taken twice without a takeover,
        # and at most one per partition and rebalance with one.
        taken = [value for each in members for value in each.values]
        assert len(taken) - len(expected) <= 4 * PARTITIONS
        assert not [error for each in members for error in each.errors]
    finally:
        for each in members:
            each.close()


def test_more_members_than_partitions_idle_cleanly(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "narrow", 1)
    members = [Member(broker.bootstrap_servers, "narrow", "narrow") for _ in range(3)]
    try:
        eventually(lambda: sorted(len(each.owned) for each in members) == [0, 0, 1])
        produce(broker.bootstrap_servers, "narrow", range(10), 1)
        eventually(lambda: sorted(v for each in members for v in each.values) == list(range(10)))
    finally:
        for each in members:
            each.close()


def kafka_python_consume(servers: str, group: str, topic: str, count: int) -> list[int]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(WAIT_SECONDS * 1000),
    )
    values = []
    try:
        for message in consumer:
            values.append(int(message.value))
            if len(values) == count:
                break
        consumer.commit()
    finally:
        consumer.close()
    return values


def confluent_consume(servers: str, group: str, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: list[int] = []
    while len(values) < count:
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None and message.error() is None
        value = message.value()
        assert value is not None
        values.append(int(value))
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def aiokafka_consume(servers: str, group: str, topic: str, count: int) -> list[int]:
    import asyncio

    import aiokafka

    async def run() -> list[int]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            values = []
            while len(values) < count:
                message = await asyncio.wait_for(consumer.getone(), WAIT_SECONDS)
                values.append(int(message.value or b""))
            await consumer.commit()
            return values
        finally:
            await consumer.stop()

    return asyncio.run(run())


@pytest.mark.parametrize(
    "consume",
    [confluent_consume, kafka_python_consume, aiokafka_consume],
    ids=["confluent-kafka", "kafka-python", "aiokafka"],
)
def test_a_group_resumes_behind_what_it_committed(broker: Broker, consume: Any) -> None:
    name = f"resume-{consume.__name__}"
    servers = broker.bootstrap_servers
    create_topic(servers, name, 1)
    produce(servers, name, range(10), 1)
    assert consume(servers, name, name, 10) == list(range(10))
    produce(servers, name, range(10, 20), 1)
    # Another client of the same group goes on where this one stopped.
    assert confluent_consume(servers, name, name, 10) == list(range(10, 20))


def test_members_of_two_client_libraries_share_one_group(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "mixed")
    first = Member(servers, "mixed", "mixed", **{"partition.assignment.strategy": "range"})
    other = kafka.KafkaConsumer(
        bootstrap_servers=servers, group_id="mixed", auto_offset_reset="earliest"
    )

    def both() -> bool:
        other.poll(timeout_ms=50)
        theirs = {each.partition for each in other.assignment()}
        return bool(theirs and first.owned) and theirs | first.owned == set(range(PARTITIONS))

    try:
        eventually(lambda: len(first.owned) == PARTITIONS)
        # As the leader it would assign nothing of a topic that it does not know yet.
        assert other.partitions_for_topic("mixed") == set(range(PARTITIONS))
        other.subscribe(["mixed"])
        eventually(both)
    finally:
        first.close()
        other.close()


def test_commits_carry_metadata_and_the_leader_epoch(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "annotated", 2)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "annotated"})
    offset = TopicPartition("annotated", 0, 7, metadata="höhe", leader_epoch=0)
    consumer.commit(offsets=[offset], asynchronous=False)
    found, none = consumer.committed(
        [TopicPartition("annotated", 0), TopicPartition("annotated", 1)], timeout=10
    )
    assert (found.offset, found.metadata) == (7, "höhe")
    assert none.offset < 0 and none.error is None
    with pytest.raises(KafkaException) as refused:
        consumer.commit(
            offsets=[TopicPartition("annotated", 0, 8, metadata="x" * 5_000)], asynchronous=False
        )
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    consumer.close()


def test_clients_can_neither_write_nor_delete_the_offsets_topic(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "t", 1)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "any"})
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(
        "__consumer_offsets", b"v", b"k", on_delivery=lambda error, _: outcome.append(error)
    )
    producer.flush(10)
    assert outcome[0] is not None and outcome[0].code() == KafkaError.TOPIC_EXCEPTION
    admin = AdminClient({"bootstrap.servers": servers})
    with pytest.raises(KafkaException):
        admin.delete_topics(["__consumer_offsets"])["__consumer_offsets"].result(timeout=10)
    assert "__consumer_offsets" in admin.list_topics(timeout=10).topics
    # It can be read.
    reader = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    reader.assign(
        [TopicPartition("__consumer_offsets", each, OFFSET_BEGINNING) for each in range(50)]
    )
    message = reader.poll(WAIT_SECONDS)
    assert message is not None and message.error() is None and message.key() is not None
    reader.close()


def test_a_static_member_that_returns_causes_no_rebalance(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "static")

    def member(instance: str) -> Member:
        settings: dict[str, object] = {
            "group.instance.id": instance,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 20_000,
        }
        return Member(servers, "static", "static", **settings)

    first, second = member("one"), member("two")
    try:
        eventually(lambda: shared_by([first, second]))
        before = set(first.owned)
        first.close()
        first = member("one")
        eventually(lambda: bool(first.owned))
        assert first.owned == before
        assert shared_by([first, second])
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("stop", ["kill", "terminate"])
def test_members_live_through_a_restart_of_the_broker(tmp_path: Path, stop: str) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", settings) as process:
        servers = process.bootstrap_servers
        create_topic(servers, "t")
        members = [Member(servers, "g", "t", **{"session.timeout.ms": 10_000}) for _ in range(2)]
        try:
            eventually(lambda: shared_by(members))
            produce(servers, "t", range(120))
            eventually(lambda: {v for each in members for v in each.values} == set(range(120)))
            getattr(process, stop)()
            process.start()
            produce(servers, "t", range(120, 240))
            eventually(lambda: {v for each in members for v in each.values} == set(range(240)))
            # All was committed before the broker went, so hardly anything is taken twice.
            taken = [value for each in members for value in each.values]
            assert len(taken) - 240 <= 2 * PARTITIONS
        finally:
            for each in members:
                each.close()
        admin = AdminClient({"bootstrap.servers": servers})
        described = admin.describe_consumer_groups(["g"])["g"].result(timeout=10)
        assert described.state.name == "EMPTY"


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_work_of_a_dead_or_sleeping_worker_is_taken_over(
    broker: Broker, fault: signal.Signals
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "work")
    arguments = [servers, "work", "work", "1500"]
    worker = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("group_worker.py")), *arguments],
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    member = None
    try:
        produce(servers, "work", range(60))
        first = worker.stdout.readline()
        settings: dict[str, object] = {
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 1_500,
        }
        member = Member(servers, "work", "work", **settings)
        eventually(lambda: member is not None and len(member.owned) == PARTITIONS // 2)
        worker.send_signal(fault)
        eventually(lambda: member is not None and len(member.owned) == PARTITIONS)
        produce(servers, "work", range(60, 120))
        eventually(lambda: member is not None and set(member.values) >= set(range(60, 120)))
        before = committed_sum(servers)
        if fault is signal.SIGSTOP:
            # It wakes up with records in hand; what it commits now must move nothing back.
            worker.send_signal(signal.SIGCONT)
            eventually(lambda: member is not None and len(member.owned) == PARTITIONS // 2)
            produce(servers, "work", range(120, 180))
        expected = 180 if fault is signal.SIGSTOP else 120
        eventually(lambda: committed_sum(servers) == expected)
        assert before == 120
    finally:
        worker.kill()
        worker.wait()
        printed = worker.stdout.read()
        worker.stdout.close()
        if member is not None:
            member.close()
    values = {int(line) for line in (first + printed).split() if line.isdigit()}
    assert values | set(member.values) == set(range(expected))


def committed_sum(servers: str) -> int:
    """How many records of the topic `work` its group has committed, over all partitions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "work"})
    partitions = [TopicPartition("work", each) for each in range(PARTITIONS)]
    found = consumer.committed(partitions, timeout=10)
    consumer.close()
    return sum(max(0, each.offset) for each in found)
