"""Metadata: brokers, topics, partitions and their leaders.

In version 0 an empty list asks for all topics; from version 1 on null does, and an empty list asks
for none. Version notes: 7 brings leader epochs, 9 is flexible, 10 topic ids, 12 look-up by id,
13 an error for the whole answer.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int16, int32, string, structure, uuid


@structure
class MetadataRequestTopic:
    """A topic to describe, by name or, from version 12 on, by id."""

    topic_id: UUID = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


@api_message
class MetadataRequest:
    """Which topics to describe."""

    topics: list[MetadataRequestTopic] | None = array_of(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@structure
class MetadataResponseBroker:
    """A broker and where it listens."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@structure
class MetadataResponsePartition:
    """A partition, its leader and its replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array_of("int32")
    isr_nodes: list[int] = array_of("int32")
    offline_replicas: list[int] = array_of("int32", "5+", ignorable=True)


@structure
class MetadataResponseTopic:
    """A topic and its partitions."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: UUID = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array_of(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


@api_message
class MetadataResponse:
    """The cluster as the answering broker knows it."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array_of(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array_of(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", ignorable=True)
