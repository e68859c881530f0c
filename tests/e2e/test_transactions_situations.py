"""Situations in which Apache Kafka tries its own transactions, with a real client on one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.testing import Broker

SECONDS = 20
MANY_PARTITIONS = 60
SETTINGS = {
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as started:
        yield started


def create(broker: Broker, topic: str, partitions: int = 1) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        create_topic(client, topic, partitions)


def producer(broker: Broker, transactional_id: str, **settings: object) -> Producer:
    given = {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": transactional_id,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    made = Producer(given)  # type: ignore[arg-type]
    made.init_transactions(SECONDS)
    return made


def reader(broker: Broker, topic: str, partitions: int = 1, **settings: object) -> Consumer:
    given = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    made = Consumer(given)  # type: ignore[arg-type]
    made.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    return made


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(SECONDS)
        assert message is not None, f"{len(found)} of {count}"
        assert message.error() is None, message.error()
        found.append(message)
    return [message.value() for message in found]


def test_a_transaction_of_many_partitions_of_one_leader_is_ended_in_all(broker: Broker) -> None:
    create(broker, "many", MANY_PARTITIONS)
    client = producer(broker, "many")
    for commits in (False, True):
        client.begin_transaction()
        for partition in range(MANY_PARTITIONS):
            client.produce("many", str(commits), partition=partition)
        client.flush(SECONDS)
        if commits:
            client.commit_transaction(SECONDS)
        else:
            client.abort_transaction(SECONDS)
    consumer = reader(broker, "many", MANY_PARTITIONS)
    assert read(consumer, MANY_PARTITIONS) == [b"True"] * MANY_PARTITIONS
    assert consumer.poll(0.2) is None
    consumer.close()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_transactions_are_committed_and_aborted(broker: Broker, codec: str) -> None:
    create(broker, "compressed")
    client = producer(broker, "compressed", compression_type=codec, linger_ms=50)
    for number in range(4):
        client.begin_transaction()
        for _ in range(100):
            client.produce("compressed", b"%d" % number * 100, partition=0)
        client.flush(SECONDS)
        if number % 2:
            client.commit_transaction(SECONDS)
        else:
            client.abort_transaction(SECONDS)
    consumer = reader(broker, "compressed")
    assert read(consumer, 200) == [b"1" * 100] * 100 + [b"3" * 100] * 100
    consumer.close()


def test_a_fetch_that_waits_for_more_leaves_out_what_is_aborted_meanwhile(broker: Broker) -> None:
    create(broker, "waits")
    consumer = reader(broker, "waits", fetch_min_bytes=100_000, fetch_wait_max_ms=1_500)
    # The fetch is on its way, and waits at the broker for so many bytes.
    assert consumer.poll(0.3) is None
    first, second = producer(broker, "first"), producer(broker, "second")
    first.begin_transaction()
    second.begin_transaction()
    for number in range(20):
        first.produce("waits", f"aborted-{number}", partition=0)
        first.flush(SECONDS)
        second.produce("waits", f"committed-{number}", partition=0)
        second.flush(SECONDS)
    first.abort_transaction(SECONDS)
    second.commit_transaction(SECONDS)
    assert read(consumer, 20) == [b"committed-%d" % number for number in range(20)]
    consumer.close()


def test_metadata_of_offsets_is_committed_with_them(broker: Broker) -> None:
    create(broker, "source")
    consumer = reader(broker, "source")
    client = producer(broker, "copier")
    client.begin_transaction()
    client.produce("source", "a", partition=0)
    offsets = [TopicPartition("source", 0, 5, "a note")]
    client.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
    client.commit_transaction(SECONDS)
    (found,) = consumer.committed([TopicPartition("source", 0)], SECONDS)
    # librdkafka sends the zero byte that ends a string in C along.
    assert (found.offset, found.metadata.rstrip("\0")) == (5, "a note")
    consumer.close()


def test_an_id_that_expired_is_refused_once_and_begins_anew() -> None:
    """Its producer id goes with it; the partition still knows that one, and takes the next."""
    with Broker(settings=SETTINGS | {"transactional.id.expiration.ms": "500"}) as broker:
        create(broker, "expires")
        client = producer(broker, "expires")
        commit(client, "before")
        _wait_forgotten(broker, "expires")
        with pytest.raises(KafkaException) as caught:
            commit(client, "refused")
        assert not caught.value.args[0].retriable()
        commit(producer(broker, "expires"), "after")
        consumer = reader(broker, "expires")
        assert read(consumer, 2) == [b"before", b"after"]
        assert consumer.poll(0.2) is None
        consumer.close()


def commit(client: Producer, value: str) -> None:
    client.begin_transaction()
    client.produce("expires", value, partition=0)
    client.commit_transaction(SECONDS)


def _wait_forgotten(broker: Broker, transactional_id: str) -> None:
    request = DescribeTransactionsRequest([transactional_id])
    with RawClient(broker.bootstrap_servers) as raw:

        def is_forgotten() -> bool:
            (found,) = raw.call("DescribeTransactions", 0, request).transaction_states
            return bool(found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

        eventually(is_forgotten)
