"""How far bytes go, asked of a real broker; and nobody but our own client hears of it."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.e2e.raw_client import RawClient
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.blocking import Client
from tidelog.client.offsets import offsets_within
from tidelog.errors import KafkaError
from tidelog.model import TopicPartition
from tidelog.testing import Broker

RECORDS = 3_000
LARGEST_BATCH_BYTES = 25_000


@pytest.fixture
def partition(tidelog_broker: Broker, tidelog_topic: str) -> TopicPartition:
    """A partition of several segments with batches of different sizes."""
    name = f"{tidelog_topic}-bytes"
    with Client(tidelog_broker.bootstrap_servers) as client:
        configs = {"segment.bytes": str(1 << 20)}
        client.run(create_topic(client.cluster, NewTopic(name, 1, configs=configs)))
    producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
    for index in range(RECORDS):
        producer.produce(name, b"x" * (index % 2_700), partition=0)
        if index % 7 == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    return TopicPartition(name, 0)


def reach(client: Client, partition: TopicPartition, start: int, max_bytes: int) -> tuple[int, int]:
    wanted = {partition: (start, max_bytes)}
    return client.run(offsets_within(client.cluster, wanted))[partition]


def test_steps_by_bytes_cover_the_log_and_none_is_too_large(
    tidelog_broker: Broker, partition: TopicPartition
) -> None:
    with Client(tidelog_broker.bootstrap_servers) as client:
        whole = reach(client, partition, 0, 1 << 62)
        assert whole[0] == RECORDS
        for step in (1, 30_000, 100_000, 2_000_000):
            at = total = steps = 0
            while at < RECORDS:
                end, size = reach(client, partition, at, step)
                assert end > at
                assert size <= max(step, LARGEST_BATCH_BYTES)
                at, total, steps = end, total + size, steps + 1
            assert (at, total) == whole
            assert steps >= whole[1] // max(step, LARGEST_BATCH_BYTES)
        assert reach(client, partition, RECORDS, 10) == (RECORDS, 0)
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            reach(client, partition, RECORDS + 1, 10)


def test_other_clients_do_not_hear_of_it(tidelog_broker: Broker) -> None:
    from tidelog.protocol.messages.api_versions import ApiVersionsRequest

    with RawClient(tidelog_broker.bootstrap_servers) as client:
        for name, heard in (("librdkafka", False), ("tidelog", True)):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            answer = client.call("ApiVersions", 4, request)
            assert (20000 in {each.api_key for each in answer.api_keys}) is heard
