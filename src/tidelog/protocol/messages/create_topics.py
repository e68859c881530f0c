"""CreateTopics: creates topics, or only checks that they could be.

Version notes: 4 allows the broker's defaults (-1), 5 is flexible and describes the created topic,
7 answers with topic ids. `configs` of the answer is never null: Java's admin client cannot read
that.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int8, int16, int32, string, structure, uuid


@structure
class CreatableReplicaAssignment:
    """The replicas of one partition, chosen by hand."""

    partition_index: int = int32()
    broker_ids: list[int] = array_of("int32")


@structure
class CreatableTopicConfig:
    """A setting of the new topic."""

    name: str = string()
    value: str | None = string(nullable="0+")


@structure
class CreatableTopic:
    """A topic to create; -1 stands for the default of the broker."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array_of(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array_of(CreatableTopicConfig)


@api_message
class CreateTopicsRequest:
    """Topics to create."""

    topics: list[CreatableTopic] = array_of(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


@structure
class CreatableTopicConfigs:
    """A setting of the created topic and where it comes from."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@structure
class CreatableTopicResult:
    """What became of one topic."""

    name: str = string()
    topic_id: UUID = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array_of(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


@api_message
class CreateTopicsResponse:
    """What became of every topic."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array_of(CreatableTopicResult)
