"""Requests of every API, in every version, that touch something which not everybody may touch.

The topic `secret`, the group `team` and the transactional id `ledger` exist. A request is filled in
from the declaration of its message: one element in every list, and the values that `REQUESTS`
names. None of them changes anything that another one looks at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.e2e.produce_requests import batch
from tidelog.protocol.apis import Api
from tidelog.protocol.messages.fetch import ReplicaState
from tidelog.protocol.schema import VERSION_MAX, FieldSpec, schema_of

TOPIC, GROUP, TRANSACTIONAL_ID = "secret", "team", "ledger"
# With a member of the newer protocol, which subscribes to the topic.
CONSUMERS = "modern"
# Of a transaction that is open, and has the topic.
OPEN_ID = "open-ledger"
NO_ID = UUID(int=0)
DOOMED = "doomed-{}"
_PLAIN = batch([b"value"])
_TRANSACTIONAL = batch(
    [b"value"], producer_id=999, producer_epoch=0, base_sequence=0, transactional=True
)
_ANY, _LITERAL, _ALLOW = 1, 3, 3


@dataclass(slots=True, frozen=True)
class Variant:
    """One request of an API: the fields that matter, in the versions that can say it."""

    label: str
    values: dict[str, Any]
    first: int = 0
    last: int = VERSION_MAX


def _resources(**values: Any) -> list[Variant]:
    """Settings of a topic, a group and a broker."""
    topic = {"name": "retention.ms", "value": "1000", "configuration_keys": ["retention.ms"]}
    group = {
        "name": "consumer.session.timeout.ms",
        "value": "50000",
        "configuration_keys": ["consumer.session.timeout.ms"],
    }
    broker = {"name": "message.max.bytes", "value": "100000", "configuration_keys": ["node.id"]}
    return [
        Variant("topic", {"resource_type": 2, "resource_name": TOPIC, **topic, **values}),
        Variant("group", {"resource_type": 32, "resource_name": GROUP, **group, **values}),
        Variant("broker", {"resource_type": 4, "resource_name": "1", **broker, **values}),
    ]


_FETCH = {
    "replica_id": -1,
    "replica_state": None,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "forgotten_topics_data": [],
    "rack_id": "",
}
_MEMBER = {
    "member_id": "ghost",
    "group_instance_id": None,
    "generation_id": 1,
    "reason": None,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "name": "range",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "assignments": [],
}
_NOT_MEMBER = {
    "member_id": "",
    "group_instance_id": None,
    "generation_id_or_member_epoch": -1,
    "generation_id": -1,
    "retention_time_ms": -1,
    "committed_leader_epoch": -1,
}
_PRODUCER = {"producer_id": 999, "producer_epoch": 0}
_OPERATIONS = {
    "include_cluster_authorized_operations": True,
    "include_topic_authorized_operations": True,
    "topic_id": NO_ID,
}
_HEARTBEAT = {
    "member_id": "ghost",
    "member_epoch": 5,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout_ms": -1,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": [],
}

REQUESTS: dict[str, list[Variant]] = {
    "Produce": [
        Variant("plain", {"acks": 1, "transactional_id": None, "records": _PLAIN}),
        Variant("in a transaction", {"acks": 1, "records": _TRANSACTIONAL}),
        Variant(
            "in a transaction that it does not name",
            {"acks": 1, "transactional_id": None, "records": _TRANSACTIONAL},
        ),
    ],
    "Fetch": [
        Variant("consumer", _FETCH),
        Variant("replica", {**_FETCH, "replica_id": 5, "replica_state": ReplicaState(5, -1)}),
    ],
    "ListOffsets": [
        Variant("latest", {"timestamp": -1, "replica_id": -1, "current_leader_epoch": -1})
    ],
    "Metadata": [
        Variant("by name", _OPERATIONS),
        Variant("missing", {**_OPERATIONS, "name": "absent"}),
        Variant(
            "missing, may be created",
            {**_OPERATIONS, "name": "created-{}", "allow_auto_topic_creation": True},
            4,
        ),
        Variant("by id", {**_OPERATIONS, "name": None, "topic_id": TOPIC}, 12),
        Variant("all", {**_OPERATIONS, "topics": None}, 1),
    ],
    "OffsetCommit": [Variant("one", _NOT_MEMBER)],
    "OffsetFetch": [
        Variant("named", {"member_id": None, "member_epoch": -1}),
        Variant("all", {"member_id": None, "member_epoch": -1, "topics": None}, 2),
    ],
    "FindCoordinator": [
        Variant("group", {"key_type": 0, "key": GROUP, "coordinator_keys": [GROUP]}),
        Variant(
            "transactional id",
            {"key_type": 1, "key": TRANSACTIONAL_ID, "coordinator_keys": [TRANSACTIONAL_ID]},
            1,
        ),
    ],
    "JoinGroup": [Variant("ghost", {**_MEMBER, "group_id": "others"})],
    "Heartbeat": [Variant("ghost", _MEMBER)],
    "LeaveGroup": [Variant("ghost", _MEMBER)],
    "SyncGroup": [Variant("ghost", _MEMBER)],
    "DescribeGroups": [Variant("one", {"include_authorized_operations": True})],
    "ListGroups": [Variant("all", {"states_filter": [], "types_filter": []})],
    "ApiVersions": [
        Variant("any", {"client_software_name": "raw", "client_software_version": "1"})
    ],
    "CreateTopics": [
        Variant(
            "dry",
            {
                "name": "fresh",
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
                "validate_only": True,
            },
        )
    ],
    "DeleteTopics": [
        Variant("absent", {"name": "absent", "topic_names": ["absent"], "topic_id": NO_ID}),
        Variant("by id", {"name": None, "topic_id": DOOMED.format("id")}, 6),
        Variant("by name", {"name": DOOMED, "topic_names": [DOOMED], "topic_id": NO_ID}),
    ],
    "DeleteRecords": [Variant("none", {})],
    "InitProducerId": [
        Variant(
            "transactional",
            {"transaction_timeout_ms": 10_000, "producer_id": -1, "producer_epoch": -1},
        ),
        Variant(
            "idempotent",
            {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        ),
        Variant(
            "two-phase",
            {
                "transaction_timeout_ms": 10_000,
                "producer_id": -1,
                "producer_epoch": -1,
                "enable2_pc": True,
            },
            6,
        ),
    ],
    "OffsetForLeaderEpoch": [Variant("first", {"replica_id": -1, "current_leader_epoch": -1})],
    "AddPartitionsToTxn": [
        Variant(
            "unknown producer",
            {
                **_PRODUCER,
                "v3_and_below_transactional_id": TRANSACTIONAL_ID,
                "v3_and_below_producer_id": 999,
                "verify_only": True,
            },
        ),
    ],
    "AddOffsetsToTxn": [Variant("unknown producer", _PRODUCER)],
    "EndTxn": [Variant("unknown producer", {**_PRODUCER, "committed": True})],
    "WriteTxnMarkers": [Variant("missing topic", {**_PRODUCER, "name": "absent"})],
    "TxnOffsetCommit": [Variant("unknown producer", {**_NOT_MEMBER, **_PRODUCER})],
    "DescribeAcls": [
        Variant(
            "all",
            {
                "resource_type_filter": _ANY,
                "resource_name_filter": None,
                "pattern_type_filter": _ANY,
                "principal_filter": "User:nobody-else",
                "host_filter": None,
                "operation": _ANY,
                "permission_type": _ANY,
            },
        )
    ],
    "CreateAcls": [
        Variant(
            "one",
            {
                "resource_type": 2,
                "resource_pattern_type": _LITERAL,
                "principal": "User:somebody",
                "host": "*",
                "operation": 3,
                "permission_type": _ALLOW,
            },
        )
    ],
    "DeleteAcls": [
        Variant(
            "none",
            {
                "resource_type_filter": _ANY,
                "resource_name_filter": None,
                "pattern_type_filter": _ANY,
                "principal_filter": "User:nobody-else",
                "host_filter": None,
                "operation": _ANY,
                "permission_type": _ANY,
            },
        )
    ],
    "DescribeConfigs": _resources(),
    "AlterConfigs": _resources(validate_only=True),
    "AlterReplicaLogDirs": [Variant("nowhere", {"path": "/nowhere"})],
    "DescribeLogDirs": [Variant("one", {})],
    "CreatePartitions": [Variant("dry", {"count": 5, "assignments": None, "validate_only": True})],
    "DeleteGroups": [Variant("missing", {"groups_names": ["nobodys"]})],
    "ElectLeaders": [Variant("needless", {"election_type": 0})],
    "IncrementalAlterConfigs": _resources(validate_only=True),
    "AlterPartitionReassignments": [
        Variant("cancel", {"replicas": None, "allow_replication_factor_change": True})
    ],
    "ListPartitionReassignments": [Variant("one", {})],
    "OffsetDelete": [Variant("one", {})],
    "DescribeClientQuotas": [
        Variant("users", {"entity_type": "user", "match_type": 2, "match": None, "strict": False})
    ],
    "AlterClientQuotas": [
        Variant(
            "dry",
            {
                "entity_type": "user",
                "entity_name": "somebody",
                "key": "producer_byte_rate",
                "value": 1000.0,
                "validate_only": True,
            },
        )
    ],
    "DescribeUserScramCredentials": [Variant("one", {"name": "somebody"})],
    "AlterUserScramCredentials": [
        Variant("missing", {"name": "somebody", "mechanism": 1, "upsertions": []})
    ],
    "AlterPartition": [Variant("any", {})],
    "UpdateFeatures": [
        Variant(
            "unknown",
            {"feature": "nonsense", "max_version_level": 1, "upgrade_type": 1},
        )
    ],
    "DescribeCluster": [Variant("operations", {**_OPERATIONS, "endpoint_type": 1})],
    "DescribeProducers": [Variant("one", {})],
    "UnregisterBroker": [Variant("unknown", {"broker_id": 77})],
    "DescribeTransactions": [Variant("two", {"transactional_ids": [TRANSACTIONAL_ID, OPEN_ID]})],
    "ListTransactions": [
        Variant(
            "all",
            {
                "state_filters": [],
                "producer_id_filters": [],
                "duration_filter": -1,
                "transactional_id_pattern": None,
            },
        )
    ],
    "AllocateProducerIds": [Variant("any", {})],
    "ConsumerGroupHeartbeat": [
        Variant("ghost", _HEARTBEAT),
        Variant("ghost without names", {**_HEARTBEAT, "subscribed_topic_names": None}),
    ],
    "ConsumerGroupDescribe": [
        Variant("two", {"group_ids": [GROUP, CONSUMERS], "include_authorized_operations": True})
    ],
    "ListConfigResources": [Variant("all", {"resource_types": []})],
    "DescribeTopicPartitions": [
        Variant("by name", {"cursor": None, "response_partition_limit": 100}),
        Variant("all", {"cursor": None, "response_partition_limit": 100, "topics": []}),
    ],
    "OffsetsWithinBytes": [Variant("one", {"max_bytes": 1})],
    "FollowMetadata": [Variant("any", {})],
    "SubmitCommand": [Variant("any", {})],
}
# Not asked here: what they ask of a client is who it is, and an answer may end the connection.
UNASKED = {"SaslHandshake", "SaslAuthenticate"}


def requests(api: Api, version: int, topic_ids: dict[str, UUID]) -> Iterator[tuple[str, Any]]:
    """Every request of an API in one version, with its label."""
    for variant in REQUESTS[api.name]:
        if variant.first <= version <= variant.last:
            filling = _Filling(variant.values, version, topic_ids)
            yield f"{api.name} {version}: {variant.label}", filling.fill(api.request)


@dataclass(slots=True)
class _Filling:
    values: dict[str, Any]
    version: int
    topic_ids: dict[str, UUID]

    def fill(self, cls: type[Any]) -> Any:
        made = cls()
        for spec in schema_of(cls).fields:
            if spec.carried_by(self.version):
                setattr(made, spec.name, self._field(spec))
        return made

    def _field(self, spec: FieldSpec) -> Any:
        if spec.name in self.values:
            return self._named(self.values[spec.name], spec)
        one = self._one(spec)
        return [one] if spec.is_array else one

    def _named(self, value: Any, spec: FieldSpec) -> Any:
        """A value of the table: topics are named there by name, whatever the request has."""
        if isinstance(value, list):
            return [self._named(each, spec) for each in value]
        if isinstance(value, str):
            value = value.format(self.version)
            if spec.wire_type == "uuid":
                return self.topic_ids[value]
        return value

    def _one(self, spec: FieldSpec) -> Any:
        if spec.structure is not None:
            return None if spec.tag is not None else self.fill(spec.structure)
        if spec.wire_type == "string":
            if "transactional_id" in spec.name:
                return TRANSACTIONAL_ID
            return GROUP if "group" in spec.name else TOPIC
        if spec.wire_type == "uuid":
            return self.topic_ids[TOPIC]
        if spec.wire_type in ("bytes", "records"):
            return b""
        if spec.wire_type == "bool":
            return False
        return 10_000 if spec.name == "timeout_ms" else 0
