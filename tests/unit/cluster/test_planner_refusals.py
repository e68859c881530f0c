"""What cannot be done is refused with Kafka's code and a sentence that says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.unit.cluster.helpers import ENDPOINTS, image_with, make_rules
from tidelog.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Command,
    ConfigChange,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    UnregisterBroker,
)
from tidelog.cluster.image import BrokerRegistration
from tidelog.cluster.planner import PRODUCER_ID_MAX, plan
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigOperation, ConfigResourceType

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP


def alter(resource: int, name: str, *changes: tuple[Any, ...]) -> AlterConfigs:
    return AlterConfigs(resource, name, [ConfigChange(*each) for each in changes])


REFUSED: list[tuple[Command, ErrorCode, str]] = [
    # Names.
    (CreateTopic(""), E.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
    (CreateTopic("."), E.INVALID_TOPIC_EXCEPTION, "'.' is not allowed"),
    (CreateTopic(".."), E.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
    (CreateTopic("a" * 250), E.INVALID_TOPIC_EXCEPTION, "max allowed length 249"),
    (CreateTopic("a/b"), E.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
    (CreateTopic("a b"), E.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
    (CreateTopic("a\n"), E.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
    (CreateTopic("a\0"), E.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
    (CreateTopic("ä"), E.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
    (CreateTopic("१"), E.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
    (CreateTopic("old_one"), E.INVALID_TOPIC_EXCEPTION, "collides with existing topic: old.one"),
    (CreateTopic("orders"), E.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists."),
    # Numbers.
    (CreateTopic("new", 0), E.INVALID_PARTITIONS, "non-positive value"),
    (CreateTopic("new", -2), E.INVALID_PARTITIONS, "non-positive value"),
    (CreateTopic("new", 10_001), E.POLICY_VIOLATION, "Excessively large number"),
    (CreateTopic("new", 2**31 - 1), E.POLICY_VIOLATION, "Excessively large number"),
    (CreateTopic("new", 98), E.POLICY_VIOLATION, "limit of 100"),
    (CreateTopic("new", 1, 0), E.INVALID_REPLICATION_FACTOR, "larger than 0"),
    (CreateTopic("new", 1, -2), E.INVALID_REPLICATION_FACTOR, "larger than 0"),
    (CreateTopic("new", 1, 3), E.INVALID_REPLICATION_FACTOR, "only 2 broker(s) are registered"),
    # Assignments.
    (CreateTopic("new", 1, assignments={0: [0]}), E.INVALID_REQUEST, "numPartitions was not set"),
    (
        CreateTopic("new", -1, 1, assignments={0: [0]}),
        E.INVALID_REQUEST,
        "replication factor was not set",
    ),
    (CreateTopic("new", assignments={1: [0]}), E.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
    (CreateTopic("new", assignments={0: []}), E.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
    (
        CreateTopic("new", assignments={0: [1, 1]}),
        E.INVALID_REPLICA_ASSIGNMENT,
        "the broker 1 more than once",
    ),
    (
        CreateTopic("new", assignments={0: [0, 1], 1: [0]}),
        E.INVALID_REPLICA_ASSIGNMENT,
        "not consistent with previous partitions, which have 2",
    ),
    (
        CreateTopic("new", assignments={0: [7]}),
        E.INVALID_REPLICA_ASSIGNMENT,
        "broker 7, but no such broker is registered",
    ),
    # Settings of a new topic.
    (CreateTopic("new", configs={"x": "1"}), E.INVALID_CONFIG, "Unknown topic config name: x"),
    (CreateTopic("new", configs={"retention.ms": "soon"}), E.INVALID_CONFIG, "soon"),
    # Deleting.
    (DeleteTopic("gone"), E.UNKNOWN_TOPIC_OR_PARTITION, "'gone' does not exist"),
    (DeleteTopic(topic_id=UUID(int=5)), E.UNKNOWN_TOPIC_ID, ""),
    # More partitions.
    (AddPartitions("gone", 3), E.UNKNOWN_TOPIC_OR_PARTITION, "'gone' does not exist"),
    (AddPartitions("orders", 2), E.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
    (AddPartitions("orders", 1), E.INVALID_PARTITIONS, "1 would not be an increase"),
    (AddPartitions("orders", -1), E.INVALID_PARTITIONS, "-1 would not be an increase"),
    (AddPartitions("orders", 20_000), E.POLICY_VIOLATION, "Excessively large number"),
    (AddPartitions("orders", 101), E.POLICY_VIOLATION, "limit of 100"),
    (AddPartitions("orders", 3, []), E.INVALID_REPLICA_ASSIGNMENT, "0 assignment(s)"),
    (AddPartitions("orders", 3, [[0], [1]]), E.INVALID_REPLICA_ASSIGNMENT, "2 assignment(s)"),
    (AddPartitions("orders", 3, [[0, 1]]), E.INVALID_REPLICA_ASSIGNMENT, "which have 1 replica"),
    (AddPartitions("orders", 3, [[9]]), E.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
    # Altering settings.
    (alter(TOPIC, "gone"), E.UNKNOWN_TOPIC_OR_PARTITION, "'gone' does not exist"),
    (alter(TOPIC, ""), E.INVALID_REQUEST, "Default topic resources are not allowed."),
    (alter(TOPIC, "a b"), E.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
    (alter(TOPIC, "orders", ("x", "1")), E.INVALID_CONFIG, "Unknown topic config name: x"),
    (alter(TOPIC, "orders", ("retention.ms", "x")), E.INVALID_CONFIG, "Not a number of type LONG"),
    (alter(TOPIC, "orders", ("retention.ms", None)), E.INVALID_REQUEST, "Null value not supported"),
    (alter(TOPIC, "orders", ("retention.ms", "1", APPEND)), E.INVALID_CONFIG, "Can't APPEND to"),
    (alter(TOPIC, "orders", ("retention.ms", "1", SUBTRACT)), E.INVALID_CONFIG, "Can't SUBTRACT"),
    (alter(TOPIC, "orders", ("retention.ms", "1", 9)), E.INVALID_REQUEST, "Unknown operation 9"),
    (
        alter(TOPIC, "orders", ("retention.ms", "1"), ("retention.ms", None, DELETE)),
        E.INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    (
        alter(TOPIC, "orders", *((f"name{n}", "1") for n in range(1_001))),
        E.INVALID_REQUEST,
        "at most 1000",
    ),
    *(
        (make({name: value}), E.INVALID_CONFIG, words)
        for make in (
            lambda configs: CreateTopic("new", configs=configs),
            lambda configs: alter(TOPIC, "orders", *configs.items()),
            lambda configs: alter(BROKER, "", *configs.items()),
            lambda configs: alter(BROKER, "0", *configs.items()),
            lambda configs: alter(GROUP, "g", *configs.items()),
        )
        for name, value, words in (
            ("", "1", "has 0 characters; it must have between 1 and 255"),
            ("n" * 256, "1", "has 256 characters; it must have between 1 and 255"),
            ("n", "v" * 32_768, "exceeds the maximum value size of 32767 bytes."),
            ("n", "\U0001f30a" * 16_384, "exceeds the maximum value size of 32767 bytes."),
        )
    ),
    (
        CreateTopic("new", configs={f"name{n}": "1" for n in range(1_001)}),
        E.INVALID_CONFIG,
        "There would be 1001 settings; at most 1000 are taken",
    ),
    (
        alter(BROKER, "", *((f"name{n}", "v" * 30_000) for n in range(9))),
        E.INVALID_CONFIG,
        "more than 262144 bytes together",
    ),
    (
        alter(BROKER, "", *((f"name{n}", "\0" * 30_000) for n in range(2))),
        E.INVALID_CONFIG,
        "more than 262144 bytes together",
    ),
    (
        CreateTopic("new", configs={"retention.ms": None}),
        E.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    ),
    (alter(BROKER, "7"), E.INVALID_REQUEST, "expected 0, 1, but received 7"),
    (alter(BROKER, "-1"), E.INVALID_REQUEST, "expected 0, 1, but received -1"),
    (alter(BROKER, "one"), E.INVALID_REQUEST, "Node id must be an integer, but it is: one"),
    (alter(BROKER, "२"), E.INVALID_REQUEST, "Node id must be an integer"),
    (alter(BROKER, "0", ("node.id", "1")), E.INVALID_REQUEST, "dynamically: [node.id]"),
    (alter(BROKER, "", ("node.id", "1")), E.INVALID_REQUEST, "dynamically: [node.id]"),
    (alter(BROKER, "0", ("x", "1", APPEND)), E.INVALID_CONFIG, "Unknown config name: x"),
    (
        alter(BROKER, "0", ("max.connections", "1", APPEND)),
        E.INVALID_CONFIG,
        "Config value append is not allowed for config key: max.connections",
    ),
    (alter(GROUP, ""), E.INVALID_REQUEST, "Default group resources are not allowed."),
    (alter(GROUP, "g", ("x", "1")), E.INVALID_CONFIG, "Unknown group config name: x"),
    (
        alter(GROUP, "g", ("consumer.session.timeout.ms", "1")),
        E.INVALID_CONFIG,
        "must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (alter(ConfigResourceType.BROKER_LOGGER, "0"), E.INVALID_REQUEST, "Unknown resource type 8"),
    # Brokers and producer ids.
    (AllocateProducerIds(7, 1), E.BROKER_ID_NOT_REGISTERED, "No broker with id 7"),
    (AllocateProducerIds(0, 99), E.STALE_BROKER_EPOCH, "epoch 100, not 99"),
    (UnregisterBroker(7, 1), E.BROKER_ID_NOT_REGISTERED, "No broker with id 7"),
    (UnregisterBroker(0, 99), E.STALE_BROKER_EPOCH, "epoch 100, not 99"),
    (
        RegisterBroker(BrokerRegistration(0, 100, None, ENDPOINTS)),
        E.STALE_BROKER_EPOCH,
        "registered with epoch 100, got 100",
    ),
]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    REFUSED,
    ids=[f"{n}-{type(case[0]).__name__}-{case[1].name}" for n, case in enumerate(REFUSED)],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_command_that_cannot_be_done_is_refused(
    command: Command, code: ErrorCode, words: str, validate_only: bool
) -> None:
    if isinstance(command, AddPartitions):
        command = replace(command, validate_only=validate_only)
    elif hasattr(command, "validate_only"):
        command = command._replace(validate_only=validate_only)
    image = image_with((0, 1), [CreateTopic("orders", 2), CreateTopic("old.one", 1)])
    with pytest.raises(KafkaError) as raised:
        plan(image, command, make_rules(settings={"cluster.partitions.max": "100"}))
    assert raised.value.code is code
    assert words in raised.value.message


@pytest.mark.parametrize("resource", ["", "0"])
def test_a_broker_has_so_many_settings_and_no_more(resource: str) -> None:
    first = [(f"name{n}", "1") for n in range(1_000)]
    image = image_with((0,), [alter(BROKER, resource, *first)])
    with pytest.raises(KafkaError) as raised:
        plan(image, alter(BROKER, resource, ("one.more", "1")), make_rules())
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "1001 settings; at most 1000" in raised.value.message
    swapped = alter(BROKER, resource, ("name0", None, DELETE), ("one.more", "1"))
    assert plan(image, swapped, make_rules()).changes
    assert plan(image, alter(BROKER, resource, ("name0", "2")), make_rules()).changes


def test_what_is_too_large_from_before_can_be_deleted_in_steps() -> None:
    held = {"": "1", "n" * 60_000: "1", "large": "v" * 3_000_000}
    held |= {f"name{n}": "1" for n in range(5_000)}
    image = replace(image_with((0,)), broker_configs={"": held})
    for name in ("", "n" * 60_000, "large", "name0"):
        [change] = plan(image, alter(BROKER, "", (name, None, DELETE)), make_rules()).changes
        image = image.apply_all([change], image.version + 1)
    assert len(image.broker_configs[""]) == len(held) - 4
    with pytest.raises(KafkaError, match="at most 1000 are taken"):
        plan(image, alter(BROKER, "", ("one.more", "1")), make_rules())


def test_a_list_does_not_grow_beyond_what_a_value_may_have() -> None:
    name = "leader.replication.throttled.replicas"
    members = ",".join(f"{n}:0" for n in range(4_000))
    image = image_with((0,), [CreateTopic("orders"), alter(TOPIC, "orders", (name, members))])
    more = ",".join(f"{n}:1" for n in range(4_000))
    with pytest.raises(KafkaError, match="maximum value size of 32767"):
        plan(image, alter(TOPIC, "orders", (name, more, APPEND)), make_rules())
    again = plan(image, alter(TOPIC, "orders", (name, members, APPEND)), make_rules())
    assert not again.changes


def test_producer_ids_end_before_they_would_wrap() -> None:
    image = image_with((0,))
    low, high = PRODUCER_ID_MAX - 2000, PRODUCER_ID_MAX - 500
    for next_producer_id, possible in ((low, True), (high, False)):
        full = type(image)(1, "cluster", brokers=image.brokers, next_producer_id=next_producer_id)
        if possible:
            plan(full, AllocateProducerIds(0, 100), make_rules())
            continue
        with pytest.raises(KafkaError) as raised:
            plan(full, AllocateProducerIds(0, 100), make_rules())
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_more_in_sync_replicas_than_replicas_are_refused_in_words() -> None:
    image = image_with((0, 1, 2), [CreateTopic("orders", 1, 2)])
    create = CreateTopic("new", 1, 2, configs={"min.insync.replicas": "3"})
    alter = AlterConfigs(
        ConfigResourceType.TOPIC, "orders", [ConfigChange("min.insync.replicas", "3")]
    )
    for command in (create, alter):
        with pytest.raises(KafkaError) as raised:
            plan(image, command, make_rules())
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        assert "has 2 replica(s)" in raised.value.message
    create = create._replace(configs={"min.insync.replicas": "2"})
    assert plan(image, create, make_rules()).changes
