"""Which function serves which API.

To serve another API, add its row to `protocol/apis`, its messages, a handler and a row here. What
the key, the versions and the messages are, `protocol/apis` alone says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, TypedDict, Unpack

from tidelog.server.tools import (
    ClusterTools,
    ControllerTools,
    DataTools,
    DiskTools,
    GroupTools,
    SaslTools,
    TransactionTools,
)

# By what its handlers work with and the name of the API: a module of `server/handlers`, imported
# on first use, and its function.
_HANDLERS: Final[dict[type, dict[str, str]]] = {
    DataTools: {
        "Produce": "produce:produce",
        "Fetch": "fetch:fetch",
        "ListOffsets": "list_offsets:list_offsets",
        "DeleteRecords": "delete_records:delete_records",
        "OffsetForLeaderEpoch": "offset_for_leader_epoch:offset_for_leader_epoch",
        "DescribeProducers": "transaction_admin:describe_producers",
        "OffsetsWithinBytes": "offsets_within_bytes:offsets_within_bytes",
    },
    DiskTools: {
        "DescribeLogDirs": "describe_log_dirs:describe_log_dirs",
        "AlterReplicaLogDirs": "alter_replica_log_dirs:alter_replica_log_dirs",
    },
    TransactionTools: {
        "InitProducerId": "init_producer_id:init_producer_id",
        "AddPartitionsToTxn": "transactions:add_partitions_to_txn",
        "AddOffsetsToTxn": "transactions:add_offsets_to_txn",
        "EndTxn": "transactions:end_txn",
        "WriteTxnMarkers": "write_txn_markers:write_txn_markers",
        "DescribeTransactions": "transaction_admin:describe_transactions",
        "ListTransactions": "transaction_admin:list_transactions",
    },
    SaslTools: {
        "SaslHandshake": "sasl:sasl_handshake",
        "SaslAuthenticate": "sasl:sasl_authenticate",
    },
    GroupTools: {
        "FindCoordinator": "find_coordinator:find_coordinator",
        "JoinGroup": "groups:join_group",
        "SyncGroup": "groups:sync_group",
        "Heartbeat": "groups:heartbeat",
        "LeaveGroup": "groups:leave_group",
        "OffsetCommit": "offsets:offset_commit",
        "OffsetFetch": "offsets:offset_fetch",
        "OffsetDelete": "offsets:offset_delete",
        "TxnOffsetCommit": "txn_offset_commit:txn_offset_commit",
        "ListGroups": "group_admin:list_groups",
        "DescribeGroups": "group_admin:describe_groups",
        "DeleteGroups": "group_admin:delete_groups",
        "ConsumerGroupHeartbeat": "consumer_groups:consumer_group_heartbeat",
        "ConsumerGroupDescribe": "consumer_groups:consumer_group_describe",
    },
    ControllerTools: {
        "FollowMetadata": "controlling:follow_metadata",
        "SubmitCommand": "controlling:submit_command",
        "AlterPartition": "leader_requests:alter_partition",
        "AllocateProducerIds": "leader_requests:allocate_producer_ids",
    },
    ClusterTools: {
        "ApiVersions": "api_versions:api_versions",
        "Metadata": "metadata:metadata",
        "DescribeCluster": "describe_cluster:describe_cluster",
        "DescribeTopicPartitions": "describe_topic_partitions:describe_topic_partitions",
        "ElectLeaders": "partition_moves:elect_leaders",
        "AlterPartitionReassignments": "partition_moves:alter_partition_reassignments",
        "ListPartitionReassignments": "partition_moves:list_partition_reassignments",
        "UnregisterBroker": "broker_admin:unregister_broker",
        "UpdateFeatures": "broker_admin:update_features",
        "ListConfigResources": "configs:list_config_resources",
        "CreateTopics": "topics:create_topics",
        "DeleteTopics": "topics:delete_topics",
        "CreatePartitions": "topics:create_partitions",
        "DescribeConfigs": "configs:describe_configs",
        "AlterConfigs": "configs:alter_configs",
        "IncrementalAlterConfigs": "configs:incremental_alter_configs",
        "DescribeAcls": "acls:describe_acls",
        "CreateAcls": "acls:create_acls",
        "DeleteAcls": "acls:delete_acls",
        "DescribeClientQuotas": "client_quotas:describe_client_quotas",
        "AlterClientQuotas": "client_quotas:alter_client_quotas",
        "DescribeUserScramCredentials": "scram_users:describe_user_scram_credentials",
        "AlterUserScramCredentials": "scram_users:alter_user_scram_credentials",
    },
}
HANDLERS: Final = {name: row for rows in _HANDLERS.values() for name, row in rows.items()}
# Served before the broker is ready: what brokers need of each other to become so.
EARLY: Final = frozenset(
    {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "FollowMetadata", "SubmitCommand"}
)
TOOLS: Final = {name: tools for tools, rows in _HANDLERS.items() for name in rows}

Answer = Any
Handler = Callable[[Any, Any], Answer | Awaitable[Answer]]
SplitAndJoin = tuple[Callable[[Any], Iterable[Any]], Callable[[Sequence[Any]], Any]]
Prepare = Callable[[Any, Any], object | asyncio.Future[object]]


class RouteOptions(TypedDict, total=False):
    """What a handler may say about itself.

    With `prepare`, its result (or the result of the future it returns) is in `context.prepared`
    when the handler runs. `overlaps` lets the next request start while this one's answer waits.
    A large request that `waits`, for records, replicas or members, gives its turn to others
    meanwhile. An answer that `is_brief`, as a rule, is encoded in one go. A large request is served
    in `parts` where there is a way to split it, and to join the answers. A `shortcut` (see
    `dispatch`) is made once, with what the API is served with.
    """

    prepare: Prepare
    overlaps: bool
    waits: bool
    is_brief: bool
    parts: SplitAndJoin
    shortcut: Callable[[Any, Any], Any]


@dataclass(slots=True)
class Route:
    """How one API is served; see `RouteOptions`.

    `handler(request, context)` returns an answer or a wait for one. A handler with much to do is a
    generator that yields after every unit of work (see `pieces`).
    """

    handler: Handler
    prepare: Prepare | None = None
    overlaps: bool = False
    waits: bool = False
    is_brief: bool = False
    parts: SplitAndJoin | None = None
    shortcut: Callable[[Any, Any], Any] | None = None


def served(**options: Unpack[RouteOptions]) -> Callable[[Handler], Route]:
    """Put options on a handler; one without any is a plain function."""
    return lambda handler: Route(handler, **options)


def handler_module(api_name: str) -> str:
    """The dotted name of the module that serves an API; KeyError if none does."""
    return f"tidelog.server.handlers.{HANDLERS[api_name].partition(':')[0]}"


@cache
def route(api_name: str) -> Route:
    """The route of an API, importing its module at the first call; KeyError if there is none."""
    module = import_module(handler_module(api_name))
    found = getattr(module, HANDLERS[api_name].partition(":")[2])
    return found if isinstance(found, Route) else Route(found)
