"""The client against real brokers: Tidelog, and (with Java) Apache Kafka, by the same tests."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.peers import KAFKA_3_LONG, KAFKA_4, TIDELOG
from tests.waiting import eventually
from tidelog.client import aio
from tidelog.client.admin import (
    NewTopic,
    add_partitions,
    alter_configs,
    create_topic,
    delete_records,
    delete_topic,
    describe_cluster,
    describe_configs,
    describe_topic,
    list_topics,
)
from tidelog.client.batching import Delivery, ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_producer import Producer
from tidelog.client.metadata import TopicMetadata
from tidelog.client.offsets import Start, list_offsets, log_bounds
from tidelog.client.operation import UnknownPartitionError, UnknownTopicError, topic_metadata
from tidelog.client.partitioner import partition_for_key
from tidelog.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec, ConfigOperation, ConfigResourceType, ListedOffset, TopicPartition
from tidelog.protocol.batches import Record, iterate_batches

_numbers = itertools.count()


@pytest.fixture(scope="module", params=[TIDELOG, KAFKA_4, KAFKA_3_LONG])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param is not None:
        with request.param(settings={"auto.create.topics.enable": "true"}) as kafka:
            yield kafka.bootstrap_servers
        return
    data_dir = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data_dir, {"auto.create.topics.enable": "true"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    """A fresh topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    client.run(create_topic(client.cluster, NewTopic(name, partitions=3)))
    client.run(topic_metadata(client.cluster, [name], create=True))
    return name


def read_all(servers: str, topic: str, count: int) -> dict[int, list[Record]]:
    """The first `count` records of a topic by partition."""
    found: dict[int, list[Record]] = {}
    with Consumer(servers) as consumer:
        consumer.run(topic_metadata(consumer.cluster, [topic]))
        consumer.assign(dict.fromkeys(consumer.cluster.partitions_of([topic]), Start("start")))
        while sum(map(len, found.values())) < count:
            for partition, records in consumer.poll(1.0):
                found.setdefault(partition.partition, []).extend(records)
    return found


def send(servers: str, records: list[ProducerRecord], **settings: object) -> list[Delivery]:
    with Producer(servers, ProducerSettings(**settings)) as producer:  # type: ignore[arg-type]
        return [producer.send(record) for record in records]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_as_they_were_sent_in_every_codec(
    servers: str, topic: str, codec: Codec
) -> None:
    records = [
        ProducerRecord(topic, b"v%d" % n * 50, b"k%d" % n, headers=[("h", b"%d" % n), ("z", None)])
        for n in range(500)
    ]
    deliveries = send(servers, records, codec=codec)
    assert all(delivery.error is None for delivery in deliveries)
    found = read_all(servers, topic, 500)
    for record, delivery in zip(records, deliveries, strict=True):
        stored = found[delivery.partition.partition][delivery.offset]
        assert record.key is not None
        assert delivery.partition.partition == partition_for_key(record.key, 3)
        assert (stored.offset, stored.key, stored.value) == (
            delivery.offset,
            record.key,
            record.value,
        )
        assert stored.headers == record.headers


def test_the_codec_asked_for_is_the_codec_stored(servers: str, topic: str) -> None:
    send(servers, [ProducerRecord(topic, b"x" * 1000, partition=1)], codec=Codec.ZSTD)
    with Consumer(servers) as consumer:
        consumer.assign({TopicPartition(topic, 1): Start("start")})
        chunks = []
        while not chunks:
            chunks = list(consumer.poll_chunks(1.0))
    headers = [header for _, header in iterate_batches(chunks[0].records)]
    assert [header.codec for header in headers] == [Codec.ZSTD]
    assert headers[0].producer_id >= 0


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks(servers: str, topic: str, acks: int) -> None:
    # The partition serves before a record is sent whose loss nobody would tell of.
    send(servers, [ProducerRecord(topic, b"first", partition=2)])
    record = ProducerRecord(topic, None, b"key", partition=2)
    [delivery] = send(servers, [record], acks=acks)
    assert delivery.offset == (-1 if acks == 0 else 1)
    [_, stored] = read_all(servers, topic, 2)[2]
    assert (stored.key, stored.value) == (b"key", None)


def test_topics_are_made_listed_described_changed_and_deleted(client: Client) -> None:
    name = f"admin-{next(_numbers)}"
    made = client.run(
        create_topic(client.cluster, NewTopic(name, 2, configs={"retention.ms": "9"}))
    )
    assert (made.partitions, made.replication_factor) == (2, 1)
    # A broker of a cluster learns of a change some moments after the controller made it.
    eventually(lambda: name in {each.name for each in client.run(list_topics(client.cluster))})
    client.run(add_partitions(client.cluster, name, 5))

    def described() -> TopicMetadata:
        return client.run(describe_topic(client.cluster, name))

    assert described().topic_id == made.topic_id
    eventually(lambda: sorted(described().partitions) == [0, 1, 2, 3, 4])
    changes = [
        ("retention.ms", ConfigOperation.DELETE, None),
        ("max.message.bytes", ConfigOperation.SET, "4000"),
    ]
    client.run(alter_configs(client.cluster, ConfigResourceType.TOPIC, name, changes))

    def own() -> dict[str, str | None]:
        entries = client.run(describe_configs(client.cluster, ConfigResourceType.TOPIC, name))
        return {entry.name: entry.value for entry in entries if entry.source == "topic"}

    eventually(lambda: own() == {"max.message.bytes": "4000"})
    client.run(delete_topic(client.cluster, name))
    with pytest.raises(UnknownTopicError):
        client.run(delete_topic(client.cluster, name))


def test_the_broker_s_own_error_codes_reach_the_caller(client: Client, topic: str) -> None:
    def code(new: NewTopic) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            client.run(create_topic(client.cluster, new))
        return caught.value.code

    assert code(NewTopic(topic)) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert code(NewTopic("no/slash")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(NewTopic("n", 0)) is ErrorCode.INVALID_PARTITIONS
    assert code(NewTopic("n", 1, 9)) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert code(NewTopic("n", configs={"retention.ms": "long"})) is ErrorCode.INVALID_CONFIG
    with pytest.raises(KafkaError) as caught:
        client.run(add_partitions(client.cluster, topic, 1))
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    with pytest.raises(UnknownPartitionError):
        client.run(log_bounds(client.cluster, [TopicPartition(topic, 7)]))


def test_the_cluster_describes_itself(client: Client, servers: str) -> None:
    described = client.run(describe_cluster(client.cluster))
    assert len(described.cluster_id) == 22
    assert [f"{broker.host}:{broker.port}" for broker in described.brokers] == [servers]
    broker_id = str(described.brokers[0].id)
    entries = client.run(describe_configs(client.cluster, ConfigResourceType.BROKER, broker_id))
    assert "log.segment.bytes" in {entry.name for entry in entries}


def test_offsets_by_time_and_by_place(servers: str, client: Client, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    now_ms = client.cluster.clock.wall_ms()
    records = [
        ProducerRecord(topic, b"%d" % n, partition=0, timestamp_ms=now_ms + n * 10)
        for n in range(100)
    ]
    send(servers, records, codec=Codec.GZIP)
    found = client.run(list_offsets(client.cluster, {tp: now_ms + 501}))
    assert (found[tp].offset, found[tp].timestamp_ms) == (51, now_ms + 510)
    latest = client.run(list_offsets(client.cluster, {tp: ListedOffset.MAX_TIMESTAMP}))
    assert latest[tp].offset == 99
    with Consumer(servers) as consumer:
        for start, first in [
            (Start("tail", 3), b"97"),
            (Start("offset", 40), b"40"),
            (Start("time", now_ms + 501), b"51"),
            (Start("start"), b"0"),
        ]:
            consumer.assign({tp: start})
            seen: list[bytes | None] = []
            while len(seen) < 3:
                for _, taken in consumer.poll(1.0):
                    seen += [record.value for record in taken]
            assert seen[0] == first


def test_trimmed_records_are_gone_and_a_reader_behind_is_moved(servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    send(servers, [ProducerRecord(topic, b"%d" % n, partition=0) for n in range(20)], batch_bytes=1)
    with Consumer(servers, ConsumerSettings(out_of_range="earliest")) as consumer:
        assert consumer.run(delete_records(consumer.cluster, {tp: 12})) == {tp: 12}
        assert consumer.run(log_bounds(consumer.cluster, [tp])) == {tp: (12, 20)}
        consumer.assign({tp: Start("offset", 3)})
        seen: list[int] = []
        while not seen:
            for _, records in consumer.poll(1.0):
                seen += [record.offset for record in records]
        assert seen[0] == 12
    with Consumer(servers) as strict:
        strict.assign({tp: Start("offset", 3)})
        with pytest.raises(KafkaError) as caught:
            for _ in range(100):
                list(strict.poll(0.1))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_too_large_for_the_topic_is_split_and_a_record_too_large_fails(
    servers: str, client: Client
) -> None:
    name = f"small-{next(_numbers)}"
    client.run(
        create_topic(client.cluster, NewTopic(name, 1, configs={"max.message.bytes": "5000"}))
    )
    records = [ProducerRecord(name, b"x" * 400) for _ in range(100)]
    records.insert(50, ProducerRecord(name, b"y" * 9000))
    deliveries = send(servers, records, linger_ms=1000)
    failed = [index for index, delivery in enumerate(deliveries) if delivery.error is not None]
    assert failed == [50]
    assert [delivery.offset for delivery in deliveries if delivery.error is None] == list(
        range(100)
    )


def test_a_topic_may_be_created_by_its_first_record(servers: str) -> None:
    name = f"auto-{next(_numbers)}"
    [delivery] = send(servers, [ProducerRecord(name, b"first")])
    assert delivery.result() == 0


def test_a_topic_that_does_not_exist_is_told(servers: str, client: Client) -> None:
    with pytest.raises(UnknownTopicError):
        client.run(describe_topic(client.cluster, "nowhere"))


def test_a_reader_waits_for_what_is_written_later(servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    with Consumer(servers) as consumer:
        consumer.assign({tp: Start("end")})
        assert list(consumer.poll(0.05)) == []
        writer = threading.Timer(
            0.2, send, (servers, [ProducerRecord(topic, b"late", partition=0)])
        )
        writer.start()
        try:
            seen: list[bytes | None] = []
            while not seen:
                for _, records in consumer.poll(10.0):
                    seen += [record.value for record in records]
        finally:
            writer.join()
    assert seen == [b"late"]


@pytest.mark.parametrize("shell", ["blocking", "event loop"])
def test_with_acks_0_all_that_was_flushed_arrives(
    servers: str, client: Client, topic: str, shell: str
) -> None:
    """What was handed over was called sent while 28 MB of it were not, and were dropped."""
    records = [ProducerRecord(topic, bytes(10_000), partition=0) for _ in range(3000)]

    async def send_in_loop() -> None:
        async with aio.Producer(servers, ProducerSettings(acks=0)) as producer:
            for record in records:
                await producer.send(record)
            await producer.flush()

    if shell == "blocking":
        deliveries = send(servers, records, acks=0)
        assert all(delivery.done and delivery.error is None for delivery in deliveries)
    else:
        asyncio.run(send_in_loop())
    partition = TopicPartition(topic, 0)
    eventually(lambda: client.run(log_bounds(client.cluster, [partition]))[partition] == (0, 3000))


def test_the_event_loop_shell_does_the_same(servers: str, topic: str) -> None:
    async def exercise() -> None:
        async with aio.Producer(servers) as producer:
            deliveries = [
                await producer.send(ProducerRecord(topic, b"%d" % n, partition=n % 3))
                for n in range(300)
            ]
            assert await producer.wait(deliveries[0]) == 0
            await producer.flush()
            assert [delivery.offset for delivery in deliveries] == [n // 3 for n in range(300)]
        async with aio.Consumer(servers) as consumer:
            await consumer.run(topic_metadata(consumer.cluster, [topic]))
            partitions = consumer.cluster.partitions_of([topic])
            await consumer.assign(dict.fromkeys(partitions, Start("start")))
            seen: list[int] = []
            while len(seen) < 300:
                for _, records in await consumer.poll(1.0):
                    seen += [int(record.value or b"-1") for record in records]
            assert sorted(seen) == list(range(300))
        async with aio.Client(servers) as client:
            runs = [client.run(describe_topic(client.cluster, topic)) for _ in range(20)]
            described = await asyncio.gather(*runs)
            assert {entry.name for entry in described} == {topic}

    asyncio.run(exercise())


def test_records_survive_a_broker_that_is_killed_while_they_are_sent(tmp_path: Path) -> None:
    settings = ProducerSettings(
        batch_bytes=2000, client=ClientSettings(request_timeout_ms=5000, retry_backoff_max_ms=100)
    )
    with BrokerProcess(tmp_path / "data") as broker:
        with Client(broker.bootstrap_servers) as client:
            client.run(create_topic(client.cluster, NewTopic("orders", 2)))
        deliveries: list[Delivery] = []
        kills = 0
        with Producer(broker.bootstrap_servers, settings) as producer:
            for number in range(20_000):
                record = ProducerRecord("orders", b"%d" % number, partition=number % 2)
                deliveries.append(producer.send(record))
                if number % 5000 == 2500:
                    broker.kill()
                    broker.start()
                    kills += 1
            producer.flush()
        assert kills == 4
        assert all(delivery.error is None for delivery in deliveries)
        found = read_all(broker.bootstrap_servers, "orders", 20_000)
    for partition, records in found.items():
        expected = [b"%d" % number for number in range(partition, 20_000, 2)]
        assert [record.value for record in records] == expected
