"""Administration as operations: topics, their settings, their offsets, and the cluster.

Each function returns an operation for a shell's `run`:

    client.run(create_topic(client.cluster, NewTopic("orders", partitions=6)))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tidelog.client.connection import Call
from tidelog.client.faults import UnsupportedApiError, raise_for
from tidelog.client.metadata import ANY, CONTROLLER, BrokerNode, Cluster, TopicMetadata
from tidelog.client.operation import (
    Operation,
    UnknownPartitionError,
    UnknownTopicError,
    answered,
    ask,
    by_topic,
    refresh,
    retried,
    topic_metadata,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigOperation, ConfigResourceType, TopicPartition


@dataclass(slots=True)
class NewTopic:
    """A topic to create; -1 leaves the number to the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    validate_only: bool = False


@dataclass(slots=True)
class CreatedTopic:
    """What the broker made of a `NewTopic`; counts are -1 where an old broker tells none."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int


@dataclass(slots=True)
class ConfigEntry:
    """One setting of a topic or broker, and where its value comes from."""

    name: str
    value: str | None
    source: str
    read_only: bool


@dataclass(slots=True)
class ClusterDescription:
    """The cluster as DescribeCluster, or Metadata before it, tells."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerNode]
    # Brokers that the cluster knows and that are not there now.
    away: list[BrokerNode] = field(default_factory=list)


# Later versions take ids beside names, which older brokers cannot be asked for.
_DELETE_BY_NAME_VERSION = 5
# From here on brokers that are away can be asked for.
_FENCED_VERSION = 2

_CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    5: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}


@retried
def create_topic(cluster: Cluster, topic: NewTopic) -> Operation[CreatedTopic]:
    """Create a topic; TOPIC_ALREADY_EXISTS, INVALID_CONFIG and the like as `KafkaError`."""
    from tidelog.protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    configs = [
        CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
    ]
    entry = CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
    )
    request = CreateTopicsRequest(
        topics=[entry], timeout_ms=_timeout_ms(cluster), validate_only=topic.validate_only
    )
    response = yield from ask(Call(CONTROLLER, "CreateTopics", request))
    result = response.topics[0]
    raise_for(result.error_code, result.error_message)
    return CreatedTopic(
        result.name, result.topic_id, result.num_partitions, result.replication_factor
    )


@retried
def delete_topic(cluster: Cluster, name: str) -> Operation[None]:
    """Delete a topic and its data."""
    from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest

    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_timeout_ms(cluster))
    call = Call(CONTROLLER, "DeleteTopics", request, max_version=_DELETE_BY_NAME_VERSION)
    response = yield from ask(call)
    _raise_for_topic(name, response.responses[0])
    cluster.topics.pop(name, None)


def _raise_for_topic(name: str, result: Any) -> None:
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(name)
    raise_for(result.error_code, result.error_message)


@retried
def list_topics(cluster: Cluster) -> Operation[list[TopicMetadata]]:
    """All topics that the broker shows, by name, internal ones too."""
    yield from refresh(cluster)
    return [cluster.topics[name] for name in sorted(cluster.topics)]


def describe_topic(cluster: Cluster, name: str) -> Operation[TopicMetadata]:
    """One topic as it is now; UnknownTopicError where there is none."""
    cluster.forget([name])
    return (yield from topic_metadata(cluster, [name]))[name]


@retried
def add_partitions(cluster: Cluster, name: str, total: int) -> Operation[None]:
    """Raise a topic's number of partitions to `total`."""
    from tidelog.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )

    entry = CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(topics=[entry], timeout_ms=_timeout_ms(cluster))
    response = yield from ask(Call(CONTROLLER, "CreatePartitions", request))
    _raise_for_topic(name, response.results[0])
    cluster.forget([name])


@retried
def describe_configs(
    cluster: Cluster, resource: ConfigResourceType, name: str
) -> Operation[list[ConfigEntry]]:
    """The effective settings of a topic or broker, by name."""
    from tidelog.protocol.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )

    entry = DescribeConfigsResource(
        resource_type=int(resource), resource_name=name, configuration_keys=None
    )
    node = int(name) if resource is ConfigResourceType.BROKER and name else ANY
    request = DescribeConfigsRequest(resources=[entry])
    response = yield from ask(Call(node, "DescribeConfigs", request))
    result = response.results[0]
    _raise_for_topic(name, result)
    entries = [
        ConfigEntry(
            config.name,
            config.value,
            _CONFIG_SOURCES.get(config.config_source, "unknown"),
            bool(config.read_only),
        )
        for config in result.configs
    ]
    return sorted(entries, key=lambda entry: entry.name)


@retried
def alter_configs(
    cluster: Cluster,
    resource: ConfigResourceType,
    name: str,
    changes: Sequence[tuple[str, ConfigOperation, str | None]],
) -> Operation[None]:
    """Change single settings of a topic or broker and leave the others as they are."""
    from tidelog.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    configs = [
        AlterableConfig(name=key, config_operation=int(operation), value=value)
        for key, operation, value in changes
    ]
    entry = AlterConfigsResource(resource_type=int(resource), resource_name=name, configs=configs)
    node = int(name) if resource is ConfigResourceType.BROKER and name else CONTROLLER
    request = IncrementalAlterConfigsRequest(resources=[entry], validate_only=False)
    response = yield from ask(Call(node, "IncrementalAlterConfigs", request))
    _raise_for_topic(name, response.responses[0])


@retried
def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> Operation[dict[TopicPartition, int]]:
    """Drop the records below an offset (-1: all so far); the new log start per partition."""
    from tidelog.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    def build(partitions: Sequence[TopicPartition]) -> object:
        topics = [
            DeleteRecordsTopic(
                name, [DeleteRecordsPartition(tp.partition, before[tp]) for tp in group]
            )
            for name, group in by_topic(partitions).items()
        ]
        return DeleteRecordsRequest(topics, _timeout_ms(cluster))

    responses = yield from by_leader(cluster, list(before), "DeleteRecords", build)
    return {tp: part.low_watermark for response in responses for tp, part in answered(response)}


@retried
def describe_cluster(cluster: Cluster) -> Operation[ClusterDescription]:
    """Who is there; by Metadata where the broker is too old for DescribeCluster."""
    from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest

    with_those_away = DescribeClusterRequest(include_fenced_brokers=True)
    try:
        response = yield from ask(
            Call(ANY, "DescribeCluster", with_those_away, min_version=_FENCED_VERSION)
        )
    except UnsupportedApiError:
        try:
            response = yield from ask(Call(ANY, "DescribeCluster", DescribeClusterRequest()))
        except UnsupportedApiError:
            yield from refresh(cluster, [])
            brokers = list(cluster.brokers.values())
            return ClusterDescription(cluster.cluster_id or "", cluster.controller_id, brokers)
    raise_for(response.error_code, response.error_message)
    described = ClusterDescription(response.cluster_id, response.controller_id, [])
    for each in sorted(response.brokers, key=lambda broker: broker.broker_id):
        kept = described.away if each.is_fenced else described.brokers
        kept.append(BrokerNode(each.broker_id, each.host, each.port, each.rack))
    return described


def by_leader(
    cluster: Cluster, partitions: Sequence[TopicPartition], api: str, build: Any
) -> Operation[list[Any]]:
    """One call per leader, all at once, each built from the partitions that it leads."""
    yield from topic_metadata(cluster, sorted({tp.topic for tp in partitions}))
    leaders: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        if tp.partition not in cluster.topics[tp.topic].partitions:
            raise UnknownPartitionError(tp)
        leaders.setdefault(cluster.leader(*tp), []).append(tp)
    if -1 in leaders:
        cluster.forget({tp.topic for tp in leaders[-1]})
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{leaders[-1][0]} has no leader")
    outcomes = yield [Call(node, api, build(group)) for node, group in leaders.items()]
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return list(outcomes)


def _timeout_ms(cluster: Cluster) -> int:
    return cluster.settings.request_timeout_ms
