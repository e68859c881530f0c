"""What every API asks before it does anything: the questions of Apache Kafka's brokers.

One row for each API, by name. A row lists the questions that its handler asks, through
`context.require` or `context.authorize`. An API without a row fails a test, and so does a handler
that asks something else than its row says.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from tidelog.security.authorizer import Operation, ResourceType


class Denial(Enum):
    """How a client sees that it may not."""

    # An error in place of the whole answer, or of the whole group or transactional id.
    WHOLE = "whole"
    # An error beside each topic, partition or resource that the client may not touch.
    EACH = "each"
    # The answer is as if the resource did not exist.
    HIDDEN = "hidden"


class Question(NamedTuple):
    """May the client do this to a resource of this kind?"""

    operation: Operation
    resource: ResourceType
    denial: Denial
    # In which requests it is asked; empty for all of them.
    when: str = ""
    # Another permission that is as good: one of the two is enough.
    otherwise: tuple[Operation, ResourceType] | None = None


_TOPIC = ResourceType.TOPIC
_GROUP = ResourceType.GROUP
_CLUSTER = ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_EACH, _WHOLE, _HIDDEN = Denial.EACH, Denial.WHOLE, Denial.HIDDEN

# Open to everybody: a client needs it to find out what there is, and to say who it is.
_NOTHING: Final[tuple[Question, ...]] = ()
_AS_BROKER: Final = (Question(Operation.CLUSTER_ACTION, _CLUSTER, _WHOLE),)
_DESCRIBE_CLUSTER: Final = (Question(Operation.DESCRIBE, _CLUSTER, _WHOLE),)
_ALTER_CLUSTER: Final = (Question(Operation.ALTER, _CLUSTER, _WHOLE),)
_AS_MEMBER: Final = (Question(Operation.READ, _GROUP, _WHOLE),)
_UNDER_ID: Final = Question(Operation.WRITE, _TRANSACTIONAL_ID, _WHOLE)
_CREATE: Final = Question(Operation.CREATE, _TOPIC, _EACH, otherwise=(Operation.CREATE, _CLUSTER))


def _configs(operation: Operation) -> tuple[Question, ...]:
    return (
        Question(operation, _TOPIC, _EACH, "for topics"),
        Question(operation, _GROUP, _EACH, "for groups"),
        Question(operation, _CLUSTER, _EACH, "for brokers and their loggers"),
    )


AUTHORIZATION: Final[dict[str, tuple[Question, ...]]] = {
    "Produce": (
        Question(Operation.WRITE, _TOPIC, _EACH),
        _UNDER_ID._replace(when="with batches of a transaction"),
    ),
    "Fetch": (
        Question(Operation.READ, _TOPIC, _EACH, "from consumers"),
        Question(Operation.CLUSTER_ACTION, _CLUSTER, _WHOLE, "from replicas"),
    ),
    "ListOffsets": (Question(Operation.DESCRIBE, _TOPIC, _EACH),),
    "Metadata": (
        Question(Operation.DESCRIBE, _TOPIC, _EACH, "for topics by name or id"),
        Question(Operation.DESCRIBE, _TOPIC, _HIDDEN, "for all topics"),
        _CREATE._replace(when="where a missing topic would be created"),
        Question(Operation.DESCRIBE, _CLUSTER, _HIDDEN, "with the cluster's operations"),
    ),
    "OffsetCommit": (*_AS_MEMBER, Question(Operation.READ, _TOPIC, _EACH)),
    "OffsetFetch": (
        Question(Operation.DESCRIBE, _GROUP, _WHOLE),
        Question(Operation.DESCRIBE, _TOPIC, _EACH, "for some topics"),
        Question(Operation.DESCRIBE, _TOPIC, _HIDDEN, "for all topics"),
    ),
    "FindCoordinator": (
        Question(Operation.DESCRIBE, _GROUP, _EACH, "for groups"),
        Question(Operation.DESCRIBE, _TRANSACTIONAL_ID, _EACH, "for transactional ids"),
    ),
    "JoinGroup": _AS_MEMBER,
    "Heartbeat": _AS_MEMBER,
    "LeaveGroup": _AS_MEMBER,
    "SyncGroup": _AS_MEMBER,
    "DescribeGroups": (Question(Operation.DESCRIBE, _GROUP, _EACH),),
    "ListGroups": (
        Question(Operation.DESCRIBE, _GROUP, _HIDDEN, otherwise=(Operation.DESCRIBE, _CLUSTER)),
    ),
    "SaslHandshake": _NOTHING,
    "ApiVersions": _NOTHING,
    "CreateTopics": (
        _CREATE,
        Question(Operation.DESCRIBE_CONFIGS, _TOPIC, _HIDDEN, "for the settings in the answer"),
    ),
    "DeleteTopics": (
        Question(Operation.DELETE, _TOPIC, _EACH, otherwise=(Operation.DELETE, _CLUSTER)),
        Question(
            Operation.DESCRIBE,
            _TOPIC,
            _HIDDEN,
            "for whether the topic exists, and its name",
            (Operation.DELETE, _CLUSTER),
        ),
    ),
    "DeleteRecords": (Question(Operation.DELETE, _TOPIC, _EACH),),
    "InitProducerId": (
        _UNDER_ID._replace(when="with a transactional id"),
        Question(
            Operation.IDEMPOTENT_WRITE,
            _CLUSTER,
            _WHOLE,
            "without one",
            # On any topic at all.
            (Operation.WRITE, _TOPIC),
        ),
        Question(Operation.TWO_PHASE_COMMIT, _TRANSACTIONAL_ID, _WHOLE, "with two-phase commit"),
    ),
    "OffsetForLeaderEpoch": (
        Question(Operation.DESCRIBE, _TOPIC, _EACH, otherwise=(Operation.CLUSTER_ACTION, _CLUSTER)),
    ),
    "AddPartitionsToTxn": (
        _UNDER_ID._replace(when="from producers"),
        Question(Operation.WRITE, _TOPIC, _EACH, "from producers"),
        Question(Operation.CLUSTER_ACTION, _CLUSTER, _WHOLE, "from brokers, version 4 on"),
    ),
    "AddOffsetsToTxn": (_UNDER_ID, *_AS_MEMBER),
    "EndTxn": (_UNDER_ID,),
    "WriteTxnMarkers": (
        Question(Operation.ALTER, _CLUSTER, _WHOLE, otherwise=(Operation.CLUSTER_ACTION, _CLUSTER)),
    ),
    "TxnOffsetCommit": (_UNDER_ID, *_AS_MEMBER, Question(Operation.READ, _TOPIC, _EACH)),
    "DescribeAcls": _DESCRIBE_CLUSTER,
    "CreateAcls": _ALTER_CLUSTER,
    "DeleteAcls": _ALTER_CLUSTER,
    "DescribeConfigs": _configs(Operation.DESCRIBE_CONFIGS),
    "AlterConfigs": _configs(Operation.ALTER_CONFIGS),
    "AlterReplicaLogDirs": _ALTER_CLUSTER,
    "DescribeLogDirs": _DESCRIBE_CLUSTER,
    "SaslAuthenticate": _NOTHING,
    "CreatePartitions": (Question(Operation.ALTER, _TOPIC, _EACH),),
    "DeleteGroups": (Question(Operation.DELETE, _GROUP, _EACH),),
    "ElectLeaders": _ALTER_CLUSTER,
    "IncrementalAlterConfigs": _configs(Operation.ALTER_CONFIGS),
    "AlterPartitionReassignments": _ALTER_CLUSTER,
    "ListPartitionReassignments": _DESCRIBE_CLUSTER,
    "OffsetDelete": (
        Question(Operation.DELETE, _GROUP, _WHOLE),
        Question(Operation.READ, _TOPIC, _EACH),
    ),
    "DescribeClientQuotas": (Question(Operation.DESCRIBE_CONFIGS, _CLUSTER, _WHOLE),),
    "AlterClientQuotas": (Question(Operation.ALTER_CONFIGS, _CLUSTER, _WHOLE),),
    "DescribeUserScramCredentials": _DESCRIBE_CLUSTER,
    "AlterUserScramCredentials": _ALTER_CLUSTER,
    "AlterPartition": _AS_BROKER,
    "UpdateFeatures": _ALTER_CLUSTER,
    "DescribeCluster": (
        Question(Operation.DESCRIBE, _CLUSTER, _HIDDEN, "with the cluster's operations"),
    ),
    "DescribeProducers": (Question(Operation.READ, _TOPIC, _EACH),),
    "UnregisterBroker": _ALTER_CLUSTER,
    "DescribeTransactions": (
        Question(Operation.DESCRIBE, _TRANSACTIONAL_ID, _EACH),
        Question(Operation.DESCRIBE, _TOPIC, _HIDDEN),
    ),
    "ListTransactions": (Question(Operation.DESCRIBE, _TRANSACTIONAL_ID, _HIDDEN),),
    "AllocateProducerIds": _AS_BROKER,
    "ConsumerGroupHeartbeat": (
        *_AS_MEMBER,
        Question(Operation.DESCRIBE, _TOPIC, _WHOLE, "with names of topics"),
        Question(Operation.DESCRIBE, _TOPIC, _HIDDEN, "with a regular expression"),
    ),
    "ConsumerGroupDescribe": (
        Question(Operation.DESCRIBE, _GROUP, _EACH),
        Question(Operation.DESCRIBE, _TOPIC, _EACH, "for all topics of a group"),
    ),
    "ListConfigResources": (Question(Operation.DESCRIBE_CONFIGS, _CLUSTER, _WHOLE),),
    "DescribeTopicPartitions": (
        Question(Operation.DESCRIBE, _TOPIC, _EACH, "for topics by name"),
        Question(Operation.DESCRIBE, _TOPIC, _HIDDEN, "for all topics"),
    ),
    "OffsetsWithinBytes": (Question(Operation.DESCRIBE, _TOPIC, _EACH),),
    "FollowMetadata": _AS_BROKER,
    "SubmitCommand": _AS_BROKER,
}
