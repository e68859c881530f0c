"""Ranges read from real brokers: whole, in order, and what is lost is told."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from tests.peers import KAFKA_3_LONG, KAFKA_4_LONG, TIDELOG, serving
from tidelog.arrow.columns import record_schema
from tidelog.arrow.decode import Decoder
from tidelog.arrow.scan import DataLossError, PartitionRange, Scan, ScanPolicy
from tidelog.client.admin import (
    NewTopic,
    create_topic,
    delete_records,
    delete_topic,
    describe_topic,
)
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.testing import Broker

COUNT = 3_000


@pytest.fixture(scope="module", params=[TIDELOG, KAFKA_4_LONG, KAFKA_3_LONG])
def servers(request: pytest.FixtureRequest, tidelog_broker: Broker) -> Iterator[str]:
    with serving(request.param, tidelog_broker) as servers:
        yield servers


@pytest.fixture
def consumer(servers: str) -> Iterator[Consumer]:
    settings = ConsumerSettings(partition_max_bytes=20_000, max_wait_ms=50)
    with Consumer(servers, settings) as made:
        yield made


def fill(servers: str, consumer: Client, topic: str, partitions: int = 3) -> None:
    consumer.run(create_topic(consumer.cluster, NewTopic(topic, partitions)))
    producer = Producer({"bootstrap.servers": servers, "batch.size": 4_000})
    for value in range(COUNT):
        producer.produce(topic, b"%d" % value, partition=value % partitions)
    assert producer.flush(30) == 0


def offsets(consumer: Consumer, ranges: list[PartitionRange], policy: ScanPolicy | None = None):  # type: ignore[no-untyped-def]
    found: dict[int, list[int]] = {}
    decoder = Decoder(record_schema(("partition", "offset")))
    for batch in Scan(consumer, ranges, decoder, policy):
        for row in batch.to_pylist():
            found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_every_range_is_read_whole_and_no_further(
    servers: str, tidelog_topic: str, consumer: Consumer
) -> None:
    topic = f"{tidelog_topic}-ranges"
    fill(servers, consumer, topic)
    ranges = [
        PartitionRange(topic, 0, 0, 1_000),
        PartitionRange(topic, 1, 17, 423),
        PartitionRange(topic, 2, 5, 5),
    ]
    for _ in range(2):  # the consumer serves one scan after the other
        found = offsets(consumer, ranges)
        assert found == {0: list(range(1_000)), 1: list(range(17, 423))}


def test_what_was_removed_is_a_loss(servers: str, tidelog_topic: str, consumer: Consumer) -> None:
    topic = f"{tidelog_topic}-removed"
    fill(servers, consumer, topic)
    consumer.run(delete_records(consumer.cluster, {TopicPartition(topic, 0): 400}))
    ranges = [PartitionRange(topic, 0, 100, 600), PartitionRange(topic, 1, 0, 10)]
    with pytest.raises(DataLossError, match="offsets 100 to 399 are lost: retention"):
        offsets(consumer, ranges)
    losses: list[DataLossError] = []
    found = offsets(consumer, ranges, ScanPolicy(losses.append))
    assert found == {0: list(range(400, 600)), 1: list(range(10))}
    assert [(loss.start, loss.end) for loss in losses] == [(100, 400)]


def test_a_log_that_ends_too_soon_was_truncated(
    servers: str, tidelog_topic: str, consumer: Consumer
) -> None:
    """P5, found by a task."""
    topic = f"{tidelog_topic}-short"
    fill(servers, consumer, topic)
    ranges = [PartitionRange(topic, 0, 990, 1_010)]
    with pytest.raises(DataLossError, match="1000 to 1009 are lost: the log ends at 1000"):
        offsets(consumer, ranges)
    losses: list[DataLossError] = []
    assert offsets(consumer, ranges, ScanPolicy(losses.append)) == {0: list(range(990, 1_000))}
    assert len(losses) == 1


def test_a_start_behind_the_end_was_truncated_too(
    servers: str, tidelog_topic: str, consumer: Consumer
) -> None:
    topic = f"{tidelog_topic}-behind"
    fill(servers, consumer, topic)
    with pytest.raises(DataLossError, match="the log ends at 1000"):
        offsets(consumer, [PartitionRange(topic, 0, 2_000, 2_010)])


def test_a_topic_created_again_is_another_topic(
    servers: str, tidelog_topic: str, consumer: Consumer
) -> None:
    topic = f"{tidelog_topic}-again"
    fill(servers, consumer, topic)
    was = consumer.run(describe_topic(consumer.cluster, topic)).topic_id
    consumer.run(delete_topic(consumer.cluster, topic))
    fill(servers, consumer, topic)
    with pytest.raises(DataLossError, match="created again"):
        offsets(consumer, [PartitionRange(topic, 0, 0, 10, was)])
    assert offsets(consumer, [PartitionRange(topic, 0, 0, 3, uuid4())], ScanPolicy(print)) == {}


@pytest.mark.parametrize("lenient", [True, False])
def test_a_topic_created_again_in_mid_scan_is_not_read_on(
    servers: str, tidelog_topic: str, lenient: bool
) -> None:
    topic = f"{tidelog_topic}-mid"
    decoder = Decoder(record_schema(("offset",)))
    with Consumer(servers, ConsumerSettings(partition_max_bytes=1)) as consumer:
        fill(servers, consumer, topic, partitions=1)
        was = consumer.run(describe_topic(consumer.cluster, topic)).topic_id
        losses: list[DataLossError] = []
        policy = ScanPolicy(losses.append if lenient else None)
        scan = iter(Scan(consumer, [PartitionRange(topic, 0, 0, COUNT, was)], decoder, policy))
        rows = next(scan).num_rows
        with Client(servers) as other:
            other.run(delete_topic(other.cluster, topic))
            fill(servers, other, topic, partitions=1)
        try:
            for batch in scan:
                rows += batch.num_rows
        except DataLossError as raised:
            losses.append(raised)
            assert not lenient
        [loss] = losses
        assert "created again" in loss.reason
        assert (loss.start, loss.end) == (rows, COUNT), "what came before was of the old one"


def test_a_broker_that_says_nothing_is_an_error_with_a_name() -> None:
    from tidelog.client.settings import ClientSettings

    client = ClientSettings(operation_timeout_ms=200, connect_timeout_ms=200)
    with Consumer("127.0.0.1:1", ConsumerSettings(client=client)) as consumer:
        with pytest.raises(TidelogError, match=r"127\.0\.0\.1:1"):
            offsets(consumer, [PartitionRange("orders", 0, 0, 1)])


def test_a_broker_that_falls_silent_is_an_error_that_says_how_far_it_came(
    tidelog_topic: str,
) -> None:
    settings = ConsumerSettings(partition_max_bytes=1_000, max_wait_ms=50)
    with Broker() as broker, Consumer(broker.bootstrap_servers, settings) as consumer:
        fill(broker.bootstrap_servers, consumer, tidelog_topic, partitions=1)
        decoder = Decoder(record_schema(("offset",)))
        ranges = [PartitionRange(tidelog_topic, 0, 0, COUNT)]
        scan = iter(Scan(consumer, ranges, decoder, ScanPolicy(stall_timeout_ms=300)))
        assert next(scan).num_rows > 0
        broker.stop()
        with pytest.raises(
            TidelogError, match=rf"nothing came for 300 ms from .*-0 at \d+ of {COUNT}"
        ):
            for _ in scan:
                pass
