"""Where replicas are and who leads: the calls with which an operator changes it, and a plan.

Each partition is done or refused by itself, so calls give an outcome for each: None, or the error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.client.connection import Call
from tidelog.client.faults import UnsupportedApiError, error_code, raise_for
from tidelog.client.metadata import ANY, CONTROLLER, BrokerNode, Cluster, TopicMetadata
from tidelog.client.operation import Operation, ask, retried
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition

Outcomes = dict[TopicPartition, KafkaError | None]
_PREFERRED = 0
_UNCLEAN = 1


@dataclass(slots=True)
class Move:
    """A partition that is being moved."""

    partition: TopicPartition
    replicas: list[int]
    adding: list[int]
    removing: list[int]


@retried
def elect_leaders(
    cluster: Cluster, partitions: Sequence[TopicPartition] | None, *, unclean: bool = False
) -> Operation[Outcomes]:
    """Have the first replica lead, or, unclean, any that is there; None for all partitions.

    ELECTION_NOT_NEEDED is the outcome where the leader is the wanted one already.
    """
    from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    named = None
    if partitions is not None:
        named = [TopicPartitions(name, numbers) for name, numbers in _by_topic(partitions)]
    request = ElectLeadersRequest(
        _UNCLEAN if unclean else _PREFERRED, named, cluster.settings.request_timeout_ms
    )
    response = yield from ask(Call(CONTROLLER, "ElectLeaders", request))
    raise_for(response.error_code, None)
    return {
        TopicPartition(topic.topic, each.partition_id): _error(each)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@retried
def reassign(
    cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> Operation[Outcomes]:
    """Begin to move partitions to these brokers; None stops the move of one."""
    from tidelog.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics = []
    for name, numbers in _by_topic(replicas):
        wanted = [(number, replicas[TopicPartition(name, number)]) for number in numbers]
        topics.append(
            ReassignableTopic(
                name,
                [ReassignablePartition(number, _listed(brokers)) for number, brokers in wanted],
            )
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.settings.request_timeout_ms, topics=topics
    )
    response = yield from ask(Call(CONTROLLER, "AlterPartitionReassignments", request))
    raise_for(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): _error(each)
        for topic in response.responses
        for each in topic.partitions
    }


@retried
def list_moves(cluster: Cluster) -> Operation[list[Move]]:
    """All partitions that are being moved."""
    from tidelog.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
    )

    request = ListPartitionReassignmentsRequest(cluster.settings.request_timeout_ms, None)
    response = yield from ask(Call(CONTROLLER, "ListPartitionReassignments", request))
    raise_for(response.error_code, response.error_message)
    return [
        Move(
            TopicPartition(topic.name, each.partition_index),
            each.replicas,
            each.adding_replicas,
            each.removing_replicas,
        )
        for topic in response.topics
        for each in topic.partitions
    ]


@retried
def eligible_leaders(cluster: Cluster, topic: str) -> Operation[dict[int, list[int]]]:
    """By partition, who may lead although not in sync (KIP-966); nothing of an older broker."""
    from tidelog.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        TopicRequest,
    )

    found: dict[int, list[int]] = {}
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest([TopicRequest(topic)], cursor=cursor)
        try:
            response = yield from ask(Call(ANY, "DescribeTopicPartitions", request))
        except UnsupportedApiError:
            return found
        for each in response.topics:
            for state in each.partitions:
                found[state.partition_index] = list(state.eligible_leader_replicas or ())
        cursor = response.next_cursor
        if cursor is None:
            return found


@retried
def log_sizes(
    cluster: Cluster, broker: int, partitions: Sequence[TopicPartition] | None
) -> Operation[dict[TopicPartition, int]]:
    """How many bytes a broker holds of each of these partitions, or of all that it has."""
    from tidelog.protocol.messages.describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
    )

    request = DescribeLogDirsRequest(None)
    if partitions is not None:
        named = [DescribableLogDirTopic(name, numbers) for name, numbers in _by_topic(partitions)]
        request = DescribeLogDirsRequest(named)
    response = yield from ask(Call(broker, "DescribeLogDirs", request))
    raise_for(response.error_code, None)
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_size
        for directory in response.results
        for topic in directory.topics
        for each in topic.partitions
    }


@retried
def failed_replicas(cluster: Cluster, broker: int) -> Operation[list[TopicPartition]]:
    """The replicas that a broker cannot serve, as it says itself: others do not know of them."""
    from tidelog.protocol.messages.metadata import MetadataRequest

    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = yield from ask(Call(broker, "Metadata", request))
    return [
        TopicPartition(topic.name or "", state.partition_index)
        for topic in response.topics
        for state in topic.partitions
        if broker in state.offline_replicas
    ]


@retried
def forget_broker(cluster: Cluster, broker: int) -> Operation[None]:
    """Have the cluster forget a broker that is stopped and holds nothing."""
    from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest

    response = yield from ask(Call(ANY, "UnregisterBroker", UnregisterBrokerRequest(broker)))
    raise_for(response.error_code, response.error_message)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return list(found.items())


def _listed(brokers: Sequence[int] | None) -> list[int] | None:
    return None if brokers is None else list(brokers)


def _error(result: Any) -> KafkaError | None:
    if result.error_code == ErrorCode.NONE:
        return None
    return KafkaError(error_code(result.error_code), result.error_message)


# -- a plan ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Spread:
    """Places replicas on the brokers that have the fewest, on racks that have none first."""

    brokers: Sequence[BrokerNode]
    topics: Sequence[TopicMetadata]
    _held: Counter[int] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        for topic in self.topics:
            for state in topic.partitions.values():
                self._held.update(state.replicas)

    def with_factor(self, replicas: Sequence[int], factor: int) -> list[int]:
        """So many replicas: those that are there stay, the first ones first."""
        return self._fill(list(replicas[:factor]), factor)

    def without(self, replicas: Sequence[int], broker: int) -> list[int]:
        """The same number of replicas, none of them on this broker."""
        kept = [each for each in replicas if each != broker]
        return self._fill(kept, len(replicas), not_on=broker)

    def _fill(self, replicas: list[int], factor: int, not_on: int = -1) -> list[int]:
        racks = {each.id: each.rack for each in self.brokers}
        while len(replicas) < factor:
            used = Counter(racks.get(each) for each in replicas)
            free = [each for each in self.brokers if each.id not in (*replicas, not_on)]
            if not free:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{factor} replicas need as many brokers; {len(self.brokers)} are there.",
                )
            chosen = min(free, key=lambda each: (used[each.rack], self._held[each.id], each.id))
            self._held[chosen.id] += 1
            replicas.append(chosen.id)
        return replicas
