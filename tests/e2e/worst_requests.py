"""The worst legal requests of an API, generated from the declaration of its message.

For every array in a request, however deep, there are two: one in which the array names one thing
thousands of times, and one in which it names thousands of things.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tidelog.protocol.apis import Api
from tidelog.protocol.schema import FieldSpec, schema_of

Path = tuple[str, ...]

KNOWN_TOPIC = "known"
KNOWN_GROUP = "group"


@dataclass(slots=True)
class Worst:
    """What makes the requests of one API legal, and what they may cost."""

    # Values of fields, by name, wherever they stand in the request.
    values: dict[str, Any] = field(default_factory=dict)
    # What topics and groups are called: `known` and `group` exist.
    topic: str = KNOWN_TOPIC
    group: str = KNOWN_GROUP
    # How many bytes the answer may have for each element of the request.
    answer_bytes_per_element: int = 100
    # Calls between two turns of the loop, some ten milliseconds on a slow machine. What works in
    # pieces stays far below; what does the whole request at a stretch lies above.
    calls: int = 60_000
    # What the answer may have beside that: one large thing that was asked for.
    answer_bytes: int = 64 * 1024
    # The connection is closed behind the answer.
    is_last: bool = False


# Every API that is served has an entry: a new one is not complete without.
WORST: dict[str, Worst] = {
    "Produce": Worst({"acks": 1, "records": None}),
    "Fetch": Worst({"max_wait_ms": 0, "session_epoch": 0, "partition_max_bytes": 1 << 20}),
    "ListOffsets": Worst({"timestamp": 0, "replica_id": -1, "current_leader_epoch": -1}),
    "Metadata": Worst({"allow_auto_topic_creation": False, "topic_id": UUID(int=0)}),
    "OffsetCommit": Worst(
        {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    ),
    "OffsetFetch": Worst({"member_id": None, "member_epoch": -1}),
    "FindCoordinator": Worst({"key_type": 0}),
    "JoinGroup": Worst(
        {"session_timeout_ms": 10_000, "member_id": "", "protocol_type": "consumer"}
    ),
    "Heartbeat": Worst(),
    "LeaveGroup": Worst(),
    "SyncGroup": Worst({"generation_id": 1}),
    "DescribeGroups": Worst(),
    "ListGroups": Worst(),
    "ApiVersions": Worst({"client_software_name": "raw", "client_software_version": "1"}),
    "SaslHandshake": Worst({"mechanism": "SCRAM-SHA-512"}),
    "SaslAuthenticate": Worst(is_last=True),
    "CreateTopics": Worst(
        {"num_partitions": 1, "replication_factor": 1, "validate_only": True},
        answer_bytes_per_element=200,
    ),
    "DeleteTopics": Worst({"topic_id": UUID(int=0)}, topic="missing"),
    "DeleteRecords": Worst({"offset": 0}),
    "InitProducerId": Worst({"transactional_id": None}),
    "AddPartitionsToTxn": Worst({"verify_only": True}),
    "AddOffsetsToTxn": Worst(),
    "EndTxn": Worst(),
    # Markers that are written would open the files of their partitions.
    "WriteTxnMarkers": Worst({"coordinator_epoch": 0}, topic="missing"),
    "TxnOffsetCommit": Worst({"generation_id": -1, "member_id": "", "group_instance_id": None}),
    "DescribeProducers": Worst(answer_bytes=256 * 1024),
    "DescribeTransactions": Worst(),
    "ListTransactions": Worst({"duration_filter": -1, "transactional_id_pattern": None}),
    "OffsetForLeaderEpoch": Worst({"replica_id": -1, "current_leader_epoch": -1}),
    "DescribeConfigs": Worst({"resource_type": 2}),
    "AlterConfigs": Worst(
        {"resource_type": 2, "validate_only": True}, answer_bytes_per_element=200
    ),
    "DescribeLogDirs": Worst(),
    "CreatePartitions": Worst(
        {"count": 2, "assignments": None, "validate_only": True}, answer_bytes_per_element=200
    ),
    "DeleteGroups": Worst(group="missing"),
    "IncrementalAlterConfigs": Worst(
        {"resource_type": 2, "validate_only": True}, answer_bytes_per_element=200
    ),
    "OffsetDelete": Worst(),
    "DescribeCluster": Worst({"endpoint_type": 1}),
    "ConsumerGroupHeartbeat": Worst(
        {
            "member_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "instance_id": None,
            "rack_id": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "member_id": "member",
            "topic_partitions": [],
        },
        group="consumers",
        # A shard takes a subscription as a whole; the number of its names has a bound.
        calls=100_000,
    ),
    "ConsumerGroupDescribe": Worst(),
    "ListConfigResources": Worst(),
    "AlterReplicaLogDirs": Worst(),
    # An election where the preferred replica leads is refused, and a move to nowhere.
    "ElectLeaders": Worst({"election_type": 0}),
    "AlterPartitionReassignments": Worst(answer_bytes_per_element=200),
    "ListPartitionReassignments": Worst(),
    "AlterPartition": Worst(),
    "UpdateFeatures": Worst(answer_bytes_per_element=200),
    "UnregisterBroker": Worst(),
    "AllocateProducerIds": Worst(),
    "DescribeTopicPartitions": Worst({"cursor": None}, answer_bytes=256 * 1024),
    "FollowMetadata": Worst({"timeout_ms": 0}),
    "SubmitCommand": Worst({"timeout_ms": 0}),
    "DescribeAcls": Worst(),
    "CreateAcls": Worst(answer_bytes_per_element=200),
    "DeleteAcls": Worst({"operation": 3, "permission_type": 3}, answer_bytes_per_element=200),
    "DescribeClientQuotas": Worst({"match_type": 2, "match": None}, answer_bytes_per_element=200),
    "AlterClientQuotas": Worst({"validate_only": True}, answer_bytes_per_element=200),
    "DescribeUserScramCredentials": Worst(answer_bytes_per_element=200),
    "AlterUserScramCredentials": Worst(answer_bytes_per_element=200),
    "OffsetsWithinBytes": Worst({"start_offset": 0, "max_bytes": 1}),
}


@dataclass(slots=True)
class WorstRequest:
    """One request, and how many elements it has."""

    label: str
    message: Any
    elements: int


def worst_requests(api: Api, version: int, elements: int) -> Iterator[WorstRequest]:
    """All of them for one API; one that has no arrays is sent as it is."""
    cls = api.request
    worst = WORST[api.name]
    paths = [path for path in _arrays(cls, version, ()) if worst.values.keys().isdisjoint(path)]
    for path in paths:
        for kind in ("repeated", "distinct"):
            message = _Filling(worst, version, path, elements, kind == "distinct").fill(cls, ())
            yield WorstRequest(f"{'.'.join(path)} {kind}", message, elements)
    if not paths:
        yield WorstRequest("plain", _Filling(worst, version, (), 0, False).fill(cls, ()), 0)


def _arrays(cls: type[Any], version: int, above: Path) -> Iterator[Path]:
    for spec in schema_of(cls).fields:
        if spec.carried_by(version):
            path = (*above, spec.name)
            if spec.is_array:
                yield path
            if spec.structure is not None:
                yield from _arrays(spec.structure, version, path)


@dataclass(slots=True)
class _Filling:
    worst: Worst
    version: int
    crowded: Path
    elements: int
    is_distinct: bool

    def fill(self, cls: type[Any], path: Path, number: int = 0) -> Any:
        made = cls()
        for spec in schema_of(cls).fields:
            if spec.carried_by(self.version) and spec.wire_type != "records":
                setattr(made, spec.name, self._field(spec, (*path, spec.name), number))
            elif spec.name in self.worst.values:
                setattr(made, spec.name, self.worst.values[spec.name])
        return made

    def _field(self, spec: FieldSpec, path: Path, number: int) -> Any:
        if not spec.is_array:
            return self._value(spec, path, number)
        if spec.name in self.worst.values:
            return self.worst.values[spec.name]
        count = self.elements if path == self.crowded else 1
        numbers = range(count) if self.is_distinct else [0] * count
        # In tagged fields and beside the crowded array one element is enough.
        return [self._value(spec, path, each if count > 1 else number) for each in numbers]

    def _value(self, spec: FieldSpec, path: Path, number: int) -> Any:
        if spec.structure is not None:
            if spec.tag is not None and not spec.is_array:
                return None
            return self.fill(spec.structure, path, number)
        if not spec.is_array and spec.name in self.worst.values:
            return self.worst.values[spec.name]
        if spec.wire_type == "string":
            name = self.worst.group if "group" in path[-1] else self.worst.topic
            return name if number == 0 else f"{name}-{number}"
        if spec.wire_type == "uuid":
            return UUID(int=number + 1)
        if spec.wire_type == "bytes":
            return b"bytes"
        return False if spec.wire_type == "bool" else number % 128
