"""The table of APIs: keys, versions advertised and served, and the modules of their messages.

This is the one place that says so: a message takes its versions from here (`api_message`), and
`server/routes` names handlers by the names of the APIs.

The classes of an API are imported when they are first asked for, so that a program pays only for
the messages it speaks. Advertised and served versions differ for two. Produce: librdkafka up to
2.6 sends uncompressed batches to a broker whose smallest version is above zero (KAFKA-18659),
while versions 0 to 2 carry record formats that no longer exist. InitProducerId: version 6 is not
stable in Kafka yet, so only clients of our own are told of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeVar, dataclass_transform

from tidelog.protocol.schema import NEVER_FLEXIBLE, message

T = TypeVar("T")

METADATA_KEY: Final = 3
API_VERSIONS_KEY: Final = 18
SASL_AUTHENTICATE_KEY: Final = 36
SASL_KEYS: Final = (17, SASL_AUTHENTICATE_KEY)


@dataclass(slots=True, eq=False)
class Api:
    """One API; `flexible` is its first version with compact encoding and tagged fields."""

    key: int
    name: str
    module: str
    advertised: tuple[int, int]
    served: tuple[int, int]
    flexible: int = NEVER_FLEXIBLE
    # Not one that Kafka's brokers offer to clients: named only to clients of our own.
    private: bool = False

    @property
    def offered(self) -> tuple[int, int]:
        """What clients of our own are told: all that is advertised, and all that is served."""
        return self.advertised[0], self.served[1]

    @property
    def request(self) -> type[Any]:
        """The class of its requests, imported on first use."""
        return _load(self.module, self.name + "Request")

    @property
    def response(self) -> type[Any]:
        """The class of its responses, imported on first use."""
        return _load(self.module, self.name + "Response")


@cache
def _load(module: str, name: str) -> type[Any]:
    made: type[Any] = getattr(import_module(f"tidelog.protocol.messages.{module}"), name)
    return made


def _served(key: int, name: str, module: str, versions: tuple[int, int], flexible: int) -> Api:
    return Api(key, name, module, versions, versions, flexible)


APIS: Final[tuple[Api, ...]] = (
    Api(0, "Produce", "produce", advertised=(0, 13), served=(3, 13), flexible=9),
    _served(1, "Fetch", "fetch", (4, 18), flexible=12),
    _served(2, "ListOffsets", "list_offsets", (1, 11), flexible=6),
    _served(3, "Metadata", "metadata", (0, 13), flexible=9),
    _served(8, "OffsetCommit", "offset_commit", (2, 10), flexible=8),
    _served(9, "OffsetFetch", "offset_fetch", (1, 10), flexible=6),
    _served(10, "FindCoordinator", "find_coordinator", (0, 6), flexible=3),
    _served(11, "JoinGroup", "join_group", (0, 9), flexible=6),
    _served(12, "Heartbeat", "heartbeat", (0, 4), flexible=4),
    _served(13, "LeaveGroup", "leave_group", (0, 5), flexible=4),
    _served(14, "SyncGroup", "sync_group", (0, 5), flexible=4),
    _served(15, "DescribeGroups", "describe_groups", (0, 6), flexible=5),
    _served(16, "ListGroups", "list_groups", (0, 5), flexible=3),
    _served(17, "SaslHandshake", "sasl", (0, 1), flexible=NEVER_FLEXIBLE),
    _served(18, "ApiVersions", "api_versions", (0, 4), flexible=3),
    _served(19, "CreateTopics", "create_topics", (2, 7), flexible=5),
    _served(20, "DeleteTopics", "delete_topics", (1, 6), flexible=4),
    _served(21, "DeleteRecords", "delete_records", (0, 2), flexible=2),
    Api(22, "InitProducerId", "init_producer_id", advertised=(0, 5), served=(0, 6), flexible=2),
    _served(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", (2, 4), flexible=4),
    _served(24, "AddPartitionsToTxn", "add_partitions_to_txn", (0, 5), flexible=3),
    _served(25, "AddOffsetsToTxn", "add_offsets_to_txn", (0, 4), flexible=3),
    _served(26, "EndTxn", "end_txn", (0, 5), flexible=3),
    _served(27, "WriteTxnMarkers", "write_txn_markers", (1, 2), flexible=1),
    _served(28, "TxnOffsetCommit", "txn_offset_commit", (0, 5), flexible=3),
    _served(29, "DescribeAcls", "acls", (1, 3), flexible=2),
    _served(30, "CreateAcls", "acls", (1, 3), flexible=2),
    _served(31, "DeleteAcls", "acls", (1, 3), flexible=2),
    _served(32, "DescribeConfigs", "describe_configs", (1, 4), flexible=4),
    _served(33, "AlterConfigs", "alter_configs", (0, 2), flexible=2),
    _served(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", (1, 2), flexible=2),
    _served(35, "DescribeLogDirs", "describe_log_dirs", (1, 5), flexible=2),
    _served(36, "SaslAuthenticate", "sasl", (0, 2), flexible=2),
    _served(37, "CreatePartitions", "create_partitions", (0, 3), flexible=2),
    _served(42, "DeleteGroups", "delete_groups", (0, 2), flexible=2),
    _served(43, "ElectLeaders", "elect_leaders", (0, 2), flexible=2),
    _served(44, "IncrementalAlterConfigs", "incremental_alter_configs", (0, 1), flexible=1),
    _served(45, "AlterPartitionReassignments", "alter_partition_reassignments", (0, 1), flexible=0),
    _served(46, "ListPartitionReassignments", "list_partition_reassignments", (0, 0), flexible=0),
    _served(47, "OffsetDelete", "offset_delete", (0, 0), flexible=NEVER_FLEXIBLE),
    _served(48, "DescribeClientQuotas", "client_quotas", (0, 1), flexible=1),
    _served(49, "AlterClientQuotas", "client_quotas", (0, 1), flexible=1),
    _served(50, "DescribeUserScramCredentials", "user_scram_credentials", (0, 0), flexible=0),
    _served(51, "AlterUserScramCredentials", "user_scram_credentials", (0, 0), flexible=0),
    Api(56, "AlterPartition", "alter_partition", (3, 3), (3, 3), 0, private=True),
    _served(57, "UpdateFeatures", "update_features", (0, 2), flexible=0),
    _served(60, "DescribeCluster", "describe_cluster", (0, 2), flexible=0),
    _served(61, "DescribeProducers", "describe_producers", (0, 0), flexible=0),
    _served(64, "UnregisterBroker", "unregister_broker", (0, 0), flexible=0),
    _served(65, "DescribeTransactions", "describe_transactions", (0, 0), flexible=0),
    _served(66, "ListTransactions", "list_transactions", (0, 2), flexible=0),
    Api(67, "AllocateProducerIds", "allocate_producer_ids", (0, 0), (0, 0), 0, private=True),
    _served(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", (0, 1), flexible=0),
    _served(69, "ConsumerGroupDescribe", "consumer_group_describe", (0, 1), flexible=0),
    _served(74, "ListConfigResources", "list_config_resources", (0, 1), flexible=0),
    _served(75, "DescribeTopicPartitions", "describe_topic_partitions", (0, 0), flexible=0),
    Api(20000, "OffsetsWithinBytes", "offsets_within_bytes", (0, 0), (0, 0), 0, private=True),
    Api(20001, "FollowMetadata", "follow_metadata", (0, 0), (0, 0), 0, private=True),
    Api(20002, "SubmitCommand", "submit_command", (0, 1), (0, 1), 0, private=True),
)

API_BY_KEY: Final[dict[int, Api]] = {each.key: each for each in APIS}
_API_BY_NAME: Final[dict[str, Api]] = {each.name: each for each in APIS}


@dataclass_transform()
def api_message(cls: type[T]) -> type[T]:
    """Declare the request or response of the API that its name begins with."""
    own = _API_BY_NAME[cls.__name__.removesuffix("Request").removesuffix("Response")]
    return message(versions=own.served, flexible=own.flexible)(cls)


def api(name_or_key: str | int) -> Api:
    """Look up an API by its name, such as "Produce", or its key; KeyError if there is none."""
    if isinstance(name_or_key, str):
        return _API_BY_NAME[name_or_key]
    return API_BY_KEY[name_or_key]
