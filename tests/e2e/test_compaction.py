"""A compacted topic with real clients and a real process: what is left, who reads it, what a kill
in the middle of a clean does.

Values are the numbers of the writes, and with one producer and one partition the number of a write
is its offset: so every record that is read says where it must stand.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.broker_process import BrokerProcess, free_port
from tests.waiting import eventually

LONG = os.environ.get("TIDELOG_LONG") == "1"
WRITES = 1_000_000
KEYS = 1000
KILLS = 60 if LONG else 8
TOPIC = "state"
# Segments of 1 MiB, closed by the cleaner itself when nothing comes any more, cleaned at once.
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "1500",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
BROKER_SETTINGS = {"log.cleaner.backoff.ms": "100", "flusher.interval.ms": "100"}
Found = dict[bytes, tuple[int, bytes]]


def create_topic(broker: BrokerProcess, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic(TOPIC, 1, 1, config={**TOPIC_SETTINGS, **settings})
    admin.create_topics([topic])[TOPIC].result(30)


def key_of(number: int) -> bytes:
    """Every key comes once in a thousand writes, in another order each time."""
    return b"key-%d" % ((number * 7 + number // KEYS) % KEYS)


def produce(broker: BrokerProcess, writes: int) -> None:
    failed: list[object] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None or message.offset() != int(message.value()):
            failed.append((error, message.offset(), message.value()))

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "gzip",
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number in range(writes):
        while True:
            try:
                producer.produce(TOPIC, b"%d" % number, key_of(number), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    producer.close()
    assert failed == []


def wait_until_clean(broker: BrokerProcess, end: int, seconds: float = 60.0) -> None:
    """Until Kafka's checkpoint file says that all is clean."""
    path = broker.data_dir / "cleaner-offset-checkpoint"
    eventually(
        lambda: path.exists() and path.read_text() == f"0\n1\n{TOPIC} 0 {end}\n",
        lambda: broker.log_text()[-3000:],
        seconds,
    )


def read_with_confluent(servers: str, isolation: str = "read_committed") -> Iterator[Message]:
    settings = {"bootstrap.servers": servers, "group.id": "r", "enable.auto.commit": False}
    settings |= {"enable.partition.eof": True, "check.crcs": True, "isolation.level": isolation}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "nothing for 30 s"
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def newest_of(broker: BrokerProcess) -> Found:
    found: Found = {}
    for message in read_with_confluent(broker.bootstrap_servers):
        found[message.key()] = (message.offset(), message.value())
    return found


# A process of its own: its import and its threads warn of things that are not ours.
KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, TopicPartition
servers, topic, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
partition = TopicPartition(topic, 0)
consumer.assign([partition])
consumer.seek_to_beginning(partition)
while consumer.position(partition) < end:
    for records in consumer.poll(timeout_ms=1000).values():
        for record in records:
            print(record.key.decode(), record.offset, record.value.decode())
consumer.close()
"""


def read_with_kafka_python(servers: str, end: int) -> Found:
    command = [sys.executable, "-W", "ignore", "-c", KAFKA_PYTHON, servers, TOPIC, str(end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: Found = {}
    for line in done.stdout.splitlines():
        key, offset, value = line.split(" ")
        found[key.encode()] = (int(offset), value.encode())
    return found


async def read_with_aiokafka(servers: str, end: int) -> Found:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers)
    await consumer.start()
    partition = AioPartition(TOPIC, 0)
    found: Found = {}
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    found[record.key] = (record.offset, record.value)
    finally:
        await consumer.stop()
    return found


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        match = re.search(rf"^{name} (\S+)$", page.read().decode(), re.MULTILINE)
    assert match is not None, name
    return float(match[1])


def test_after_a_million_writes_every_client_reads_the_newest_of_each_key(tmp_path: Path) -> None:
    port = free_port()
    settings = {**BROKER_SETTINGS, "metrics.listener": f"127.0.0.1:{port}"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        create_topic(broker)
        produce(broker, WRITES)
        wait_until_clean(broker, WRITES)
        expected = {
            key_of(number): (number, b"%d" % number) for number in range(WRITES - KEYS, WRITES)
        }

        messages = list(read_with_confluent(broker.bootstrap_servers))

        offsets = [message.offset() for message in messages]
        assert offsets == sorted(offsets)
        assert len(messages) == KEYS, "one record of each key"
        assert {each.key(): (each.offset(), each.value()) for each in messages} == expected
        assert read_with_kafka_python(broker.bootstrap_servers, WRITES) == expected
        assert asyncio.run(read_with_aiokafka(broker.bootstrap_servers, WRITES)) == expected
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "w"})
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0)) == (0, WRITES)
        consumer.close()
        assert log_bytes(broker) < 500_000
        assert metric(port, "tidelog_log_cleaner_cleans_total") >= 1
        assert metric(port, "tidelog_log_cleaner_failures_total") == 0
        read = metric(port, "tidelog_log_cleaner_read_bytes_total")
        assert read > 10 * metric(port, "tidelog_log_cleaner_written_bytes_total")
        assert metric(port, "tidelog_log_cleaner_max_dirty_ratio") == 0
        assert broker.terminate() == 0
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert newest_of(broker) == expected


def log_bytes(broker: BrokerProcess) -> int:
    return sum(file.stat().st_size for file in (broker.data_dir / f"{TOPIC}-0").glob("*.log"))


def test_sigkill_in_the_middle_of_cleans_loses_nothing(tmp_path: Path) -> None:
    """Kills at a random moment of a clean, found by its files; the newest of each key survives."""
    chance = random.Random(5)
    broker = BrokerProcess(tmp_path / "data", {**BROKER_SETTINGS, "log.cleaner.backoff.ms": "0"})
    directory = broker.data_dir / f"{TOPIC}-0"
    acknowledged: dict[bytes, int] = {}
    written = midway = 0
    with broker:
        create_topic(broker, **{"internal.segment.bytes": "60000", "segment.ms": "200"})
        for _ in range(KILLS):
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})

            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    number = int(message.value().split(b" ")[0])
                    key = message.key()
                    acknowledged[key] = max(number, acknowledged.get(key, -1))

            for _ in range(20_000):
                value = b"%d " % written + b"x" * 40
                producer.produce(
                    TOPIC, value, b"%d" % chance.randrange(3000), on_delivery=delivered
                )
                written += 1
            producer.flush(30)
            producer.close()
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and not unfinished(directory):
                pass
            time.sleep(chance.random() * 0.01)
            broker.kill()
            midway += bool(unfinished(directory))
            broker.start()
            assert not [name for name in unfinished(directory) if "swap" in name]
            found = {
                key: int(value.split(b" ")[0]) for key, (_, value) in newest_of(broker).items()
            }
            lost = {
                key: (number, found.get(key))
                for key, number in acknowledged.items()
                if found.get(key, -1) < number
            }
            assert not lost
    assert len(acknowledged) > 2900
    assert midway >= KILLS // 4, "too few kills met a clean"


def unfinished(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_records_without_a_key_are_refused_on_a_compacted_topic(
    tmp_path: Path, policy: str
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker, **{"cleanup.policy": policy})
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(TOPIC, b"v", on_delivery=lambda error, _: errors.append(error))
        producer.produce(TOPIC, b"v", b"k", on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        producer.close()
        codes = [error and error.code() for error in errors]
        assert codes in ([KafkaError.INVALID_RECORD, None], [KafkaError.INVALID_RECORD] * 2)


def test_a_topic_becomes_compacted_and_is_deleted_while_it_is_cleaned(tmp_path: Path) -> None:
    """Settings altered at run time count, and a deletion takes the files of a clean with it."""
    settings = {**BROKER_SETTINGS, "log.cleaner.backoff.ms": "0", "log.cleaner.enable": "true"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(4):
            create_topic(broker, **{"cleanup.policy": "delete", "internal.segment.bytes": "100000"})
            produce(broker, 30_000)
            altered = admin.incremental_alter_configs([compacting()])
            for future in altered.values():
                future.result(30)
            deadline = time.monotonic() + 20
            while not unfinished(broker.data_dir / f"{TOPIC}-0"):
                assert time.monotonic() < deadline
            admin.delete_topics([TOPIC])[TOPIC].result(30)
        assert not list(broker.data_dir.glob(f"{TOPIC}-0"))
        assert "ERROR" not in broker.log_text()
        assert broker.terminate() == 0


def compacting() -> object:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    return ConfigResource("topic", TOPIC, incremental_configs=[entry])
