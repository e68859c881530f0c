"""The clients of the matrix, how each is started, and what each cannot be asked for and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.compat import builds

JAVA_OLD, JAVA_NEW = "3.9.2", "4.3.0"


def _python(module: str) -> Callable[[], list[str]]:
    return lambda: builds.python_driver(module)


@dataclass(frozen=True, eq=False)
class Client:
    """One column of the matrix.

    `lacks` names the cases that are not run with it, each with the reason: something the client
    has no way to do. It never names something that the broker gets wrong.
    """

    name: str
    command: Callable[[], list[str]]
    marker: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)
    # Its full AlterConfigs sends what was set before along, so that nothing is ever reset by it.
    keeps_other_configs: bool = False
    # Its transactions have an epoch each (KIP-890).
    raises_epochs: bool = False
    # What it calls an assignor on the wire, where that is not the name that Kafka's clients use.
    protocol_names: Mapping[str, str] = field(default_factory=dict)


def _all(reason: str, *cases: str) -> dict[str, str]:
    return dict.fromkeys(cases, reason)


_CONSUMING = (
    "consume_start",
    "consume_end",
    "consume_offset",
    "consume_inside_batch",
    "consume_time",
    "consume_rewind",
    "consume_all_partitions",
    "consume_read_committed",
    "consume_nothing",
    "consume_after_trim",
    "consume_out_of_range",
    "consume_other_codecs",
    "consume_recompressed",
    "consume_small_fetches",
    "consume_transactions",
)
_ADMIN_BEYOND_METADATA = (
    "create_topic",
    "create_topic_with_configs",
    "create_existing_topic",
    "create_topic_bad_name",
    "create_topic_bad_replication",
    "create_topic_bad_config_name",
    "create_topic_bad_config_value",
    "create_partitions",
    "create_partitions_fewer",
    "delete_topic",
    "delete_unknown_topic",
    "recreate_topic",
    "delete_records",
    "delete_records_beyond_end",
    "describe_topic_configs",
    "describe_broker_configs",
    "describe_unknown_topic_configs",
    "alter_configs",
    "alter_bad_config",
    "incremental_alter_configs",
)

_STATIC = ("group_static_return", "group_static_fenced", "describe_static_group")
_CHANGING_GROUPS = (
    "alter_group_offsets",
    "alter_live_group_offsets",
    "delete_group",
    "delete_live_group",
    "delete_unknown_group",
    "delete_group_offsets",
    "delete_subscribed_group_offsets",
)
_GROUP_ADMIN = (
    *_CHANGING_GROUPS,
    "list_groups",
    "describe_group",
    "describe_static_group",
    "describe_empty_group",
    "describe_unknown_group",
    "list_group_offsets",
    "list_offsets_of_several_groups",
    "group_lag",
)
_COMMITTING = (
    "group_commit_metadata",
    "group_commit_async",
    "group_committed_none",
    "group_resume",
    "group_static_fenced",
    "group_removed_member",
)
_CONSUMER_PROTOCOL = (
    "consumer_protocol_join",
    "consumer_protocol_share",
    "consumer_protocol_take_over",
    "consumer_protocol_resume",
    "consumer_protocol_static_return",
    "consumer_protocol_describe",
)
_TRANSACTIONS = (
    "transaction_commit",
    "transaction_abort",
    "transaction_many",
    "transaction_empty",
    "transaction_fenced",
    "transaction_killed",
    "transaction_timeout",
    "transaction_offsets",
    "transaction_offsets_aborted",
    "transaction_offsets_refused",
)
_NO_GROUP_METADATA = "cannot say which member it commits offsets for"
_NO_CONSUMER_PROTOCOL = _all("no such protocol", *_CONSUMER_PROTOCOL)
_ONE_GROUP_A_CALL = "asks for the offsets of one group a call"

CLIENTS = (
    Client(
        "confluent-kafka",
        _python("confluent"),
        lacks={
            "group_sticky": "no such assignor",
            "list_offsets_of_several_groups": _ONE_GROUP_A_CALL,
            **_all("no such call", "delete_group_offsets", "delete_subscribed_group_offsets"),
        },
    ),
    Client(
        "kafka-python",
        builds.kafka_python_driver,
        lacks={
            "produce_null_key_and_value": "refuses it by itself",
            "describe_unknown_topic_configs": "does not report the error",
            **_NO_CONSUMER_PROTOCOL,
        },
        keeps_other_configs=True,
    ),
    Client(
        "aiokafka",
        _python("aiokafka_driver"),
        lacks={
            **_all("no such call", "incremental_alter_configs", "offset_of_max_timestamp"),
            **_all("no such call", *_CHANGING_GROUPS),
            "produce_null_key_and_value": "refuses it by itself",
            "group_cooperative": "no such assignor",
            "describe_static_group": "does not show the instance id",
            "transaction_offsets_refused": _NO_GROUP_METADATA,
            **_NO_CONSUMER_PROTOCOL,
            "list_offsets_of_several_groups": _ONE_GROUP_A_CALL,
        },
    ),
    Client(
        "kcat",
        _python("kcat"),
        marker="kcat",
        lacks={
            **_all("no admin calls beyond metadata", *_ADMIN_BEYOND_METADATA),
            "offset_of_max_timestamp": "no such call",
            "produce_null_key_and_value": "skips an empty line",
            "produce_timestamps": "cannot set a record's timestamp",
            "produce_bad_timestamp": "cannot set a record's timestamp",
            "produce_key_missing_in_batch": "keys are there or not for a whole run of it",
            "consume_rewind": "cannot seek",
            **_all("cannot seek or pause", "group_seek", "group_pause"),
            "group_sticky": "no such assignor",
            **_all("commits by itself alone", *_COMMITTING),
            **_all("no admin calls beyond metadata", *_GROUP_ADMIN),
            **_all("no transactions", *_TRANSACTIONS),
            **_NO_CONSUMER_PROTOCOL,
        },
    ),
    Client(
        "franz-go",
        builds.go_driver,
        marker="go",
        lacks={"consumer_protocol_static_return": "keeps its instance id when it is closed"},
        raises_epochs=True,
    ),
    Client("java-3.9", lambda: builds.java_driver(JAVA_OLD), marker="java"),
    Client(
        "java-4.3",
        lambda: builds.java_driver(JAVA_NEW),
        marker="java",
        lacks={"alter_configs": "removed from this client"},
        raises_epochs=True,
    ),
    Client(
        "kafkajs",
        builds.node_driver,
        marker="node",
        lacks={
            **_all("no consumer without a group", *_CONSUMING),
            "incremental_alter_configs": "no such call",
            "offset_of_max_timestamp": "no such call",
            "offset_after_last_time": "answers the end by itself",
            "produce_bad_partition": "drops such a record without a word",
            **_all("no such assignor", "group_range", "group_sticky", "group_cooperative"),
            **_all("no static members", *_STATIC),
            **_all("no such setting", "group_reset_none", "group_reset_none_committed"),
            "group_pattern": "looks for topics once, when it subscribes",
            "transaction_offsets_refused": _NO_GROUP_METADATA,
            **_NO_CONSUMER_PROTOCOL,
            "list_offsets_of_several_groups": _ONE_GROUP_A_CALL,
            **_all("no such call", "delete_group_offsets", "delete_subscribed_group_offsets"),
        },
        protocol_names={"roundrobin": "RoundRobinAssigner"},
    ),
)
