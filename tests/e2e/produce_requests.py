"""Produce and fetch requests in a line, for tests on raw sockets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.e2e.raw_client import RawClient
from tidelog.model import Codec
from tidelog.protocol.batches import Record, decode_records, encode_batch, iterate_batches
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def batch(values: Sequence[bytes | None], codec: Codec = Codec.NONE, **header: Any) -> bytes:
    records = [
        Record(offset, 1_700_000_000_000, None, value, []) for offset, value in enumerate(values)
    ]
    return bytes(encode_batch(records, codec=codec, **header))


def produce(
    topic: str, records: bytes, *, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, records)])
        ],
    )


def fetch(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 10 << 20,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
    )


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; settings are given with underscores for dots."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(key.replace("_", "."), value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    result = client.call("CreateTopics", 5, request).topics[0]
    assert result.error_code == 0, result.error_message


def values_in(partition_data: Any) -> list[bytes | None]:
    """The values of all records of a fetched partition, in order."""
    records = partition_data.records
    return [
        record.value
        for position, _ in iterate_batches(records)
        for record in decode_records(records, position)
    ]


def offset_at(client: RawClient, topic: str, timestamp: int, partition: int = 0) -> int:
    """ListOffsets: -1 is the end, -2 the start."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)],
            )
        ],
    )
    answer = client.call("ListOffsets", 7, request).topics[0].partitions[0]
    assert answer.error_code == 0
    offset: int = answer.offset
    return offset
