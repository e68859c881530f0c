"""What a command changes, and what it answers."""

from __future__ import annotations

import pytest

from tests.unit.cluster.helpers import ENDPOINTS, image_with, make_rules
from tidelog.cluster.changes import TopicCreated
from tidelog.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterBrokerConfigs,
    AlterTopicConfigs,
    Command,
    ConfigChange,
    CreatedTopic,
    CreateTopic,
    DeleteTopic,
    ProducerIdBlock,
    RegisterBroker,
    UnregisterBroker,
)
from tidelog.cluster.configs import ConfigRules
from tidelog.cluster.image import BrokerRegistration, MetadataImage
from tidelog.cluster.planner import PlannerRules, plan
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.model import NO_LEADER, NO_TOPIC_ID, ConfigOperation

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def after(image: MetadataImage, command: Command) -> MetadataImage:
    rules = make_rules(seed=image.version)
    return image.apply_all(plan(image, command, rules).changes, image.version + 1)


def test_a_topic_takes_the_defaults_that_the_caller_left_out() -> None:
    rules = make_rules(default_partitions=5, default_replication_factor=2)
    planned = plan(
        image_with((0, 1, 2)), CreateTopic("orders", configs={"retention.ms": "1"}), rules
    )
    assert isinstance(planned.answer, CreatedTopic)
    assert (planned.answer.partitions, planned.answer.replication_factor) == (5, 2)
    (change,) = planned.changes
    assert isinstance(change, TopicCreated)
    assert change.topic.topic_id == planned.answer.topic_id != NO_TOPIC_ID
    assert change.topic.configs == {"retention.ms": "1"}
    for state in change.topic.partitions:
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (
            state.replicas[0],
            0,
            0,
        )
        assert state.isr == state.replicas


@pytest.mark.parametrize(
    "command",
    [
        CreateTopic("new", 3, validate_only=True),
        AddPartitions("orders", 9, validate_only=True),
        AlterTopicConfigs("orders", [ConfigChange("retention.ms", "1")], validate_only=True),
        AlterBrokerConfigs("", [ConfigChange("retention.ms", "1")], validate_only=True),
        # Altering to what is so already changes nothing either.
        AlterTopicConfigs("orders", [ConfigChange("retention.ms", None, DELETE)]),
    ],
)
def test_validation_alone_changes_nothing(command: Command) -> None:
    assert plan(image_with((0,), [CreateTopic("orders")]), command, make_rules()).changes == ()


def test_the_ids_of_topics_are_random_and_not_those_of_validations() -> None:
    rules = make_rules()
    image = image_with()
    ids = set()
    for n in range(100):
        answer = plan(image, CreateTopic(f"t{n}"), rules).answer
        assert isinstance(answer, CreatedTopic)
        ids.add(answer.topic_id)
    assert len(ids) == 100


def test_assignments_are_taken_as_given() -> None:
    image = after(image_with((0, 1, 2)), CreateTopic("orders", assignments={1: [2, 0], 0: [1, 2]}))
    assert [each.replicas for each in image.topics["orders"].partitions] == [(1, 2), (2, 0)]
    image = after(image, AddPartitions("orders", 4, [[0, 1], [2, 1]]))
    assert [each.replicas for each in image.topics["orders"].partitions[2:]] == [(0, 1), (2, 1)]
    assert [each.partition for each in image.topics["orders"].partitions] == [0, 1, 2, 3]


def test_a_deleted_name_is_free_again_and_so_are_those_it_collided_with() -> None:
    image = image_with((0,), [CreateTopic("a.b")])
    with pytest.raises(KafkaError):
        plan(image, CreateTopic("a_b"), make_rules())
    image = after(after(image, DeleteTopic("a.b")), CreateTopic("a_b"))
    assert list(image.topics) == ["a_b"]
    image = after(image, DeleteTopic(topic_id=image.topics["a_b"].topic_id))
    assert (image.topics, image.topic_names, image.unified_names) == ({}, {}, {})
    assert image.partition_count == 0


@pytest.mark.parametrize(
    ("before", "changes", "replace", "expected"),
    [
        ({}, [("retention.ms", "1", SET)], False, {"retention.ms": "1"}),
        ({"retention.ms": "1"}, [("retention.ms", None, DELETE)], False, {}),
        (
            {"retention.ms": "1"},
            [("segment.bytes", "9", SET)],
            False,
            {"retention.ms": "1", "segment.bytes": "9"},
        ),
        ({"retention.ms": "1"}, [("segment.bytes", "9", SET)], True, {"segment.bytes": "9"}),
        ({"retention.ms": "1"}, [], True, {}),
        # The default counts where nothing is set.
        ({}, [("cleanup.policy", "compact", APPEND)], False, {"cleanup.policy": "delete,compact"}),
        (
            {"cleanup.policy": "compact"},
            [("cleanup.policy", "compact,delete", APPEND)],
            False,
            {"cleanup.policy": "compact,delete"},
        ),
        (
            {"cleanup.policy": "compact,delete"},
            [("cleanup.policy", "delete", SUBTRACT)],
            False,
            {"cleanup.policy": "compact"},
        ),
        ({}, [("cleanup.policy", "delete", SUBTRACT)], False, {"cleanup.policy": ""}),
    ],
)
@pytest.mark.parametrize("resource", ["topic", "0", ""])
def test_settings_are_replaced_or_altered_one_by_one(
    resource: str,
    before: dict[str, str],
    changes: list[tuple[str, str | None, ConfigOperation]],
    replace: bool,
    expected: dict[str, str],
) -> None:
    start = [ConfigChange(name, value) for name, value in before.items()]
    alterations = [ConfigChange(*each) for each in changes]
    image = image_with((0,), [CreateTopic("orders", configs=before)])
    if resource == "topic":
        image = after(image, AlterTopicConfigs("orders", alterations, replace))
        assert image.topics["orders"].configs == expected
        return
    image = after(image, AlterBrokerConfigs(resource, start))
    image = after(image, AlterBrokerConfigs(resource, alterations, replace))
    assert image.broker_configs.get(resource, {}) == expected


def test_settings_of_every_broker_may_have_rules_of_their_own() -> None:
    def refuse(configs: object) -> None:
        raise ConfigError("only for a single broker")

    rules = PlannerRules(make_rules().random, ConfigRules(validate_every_broker=refuse))
    image = image_with()
    assert plan(image, AlterBrokerConfigs("0", [ConfigChange("x", "1")]), rules).changes
    with pytest.raises(KafkaError) as raised:
        plan(image, AlterBrokerConfigs("", [ConfigChange("x", "1")]), rules)
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_c12_blocks_of_producer_ids_follow_on_each_other() -> None:
    image = image_with()
    blocks = []
    for _ in range(3):
        planned = plan(image, AllocateProducerIds(0, 100), make_rules())
        image = image.apply_all(planned.changes, image.version + 1)
        blocks.append(planned.answer)
    assert blocks == [
        ProducerIdBlock(0, 1000),
        ProducerIdBlock(1000, 1000),
        ProducerIdBlock(2000, 1000),
    ]
    assert image.next_producer_id == 3000


def test_a_broker_that_comes_back_leads_in_a_new_epoch_what_it_led() -> None:
    image = image_with((0, 1), [CreateTopic("orders", assignments={0: [0], 1: [1], 2: [0]})])
    image = after(image, RegisterBroker(BrokerRegistration(0, 200, "rack", ENDPOINTS)))
    states = image.topics["orders"].partitions
    assert [each.leader for each in states] == [0, 1, 0]
    assert [each.leader_epoch for each in states] == [1, 0, 1]
    assert [each.partition_epoch for each in states] == [1, 0, 1]
    assert image.brokers[0].epoch == 200


def test_a_broker_that_goes_hands_over_to_those_in_sync_or_leaves_no_leader() -> None:
    image = image_with((0, 1), [CreateTopic("orders", assignments={0: [0, 1], 1: [1, 0]})])
    image = after(image, CreateTopic("alone", assignments={0: [0]}))
    image = after(image, UnregisterBroker(0, 100))
    assert [each.leader for each in image.topics["orders"].partitions] == [1, 1]
    assert [each.leader_epoch for each in image.topics["orders"].partitions] == [1, 0]
    alone = image.topics["alone"].partitions[0]
    assert (alone.leader, alone.leader_epoch, alone.isr) == (NO_LEADER, 1, (0,))
    image = after(image, RegisterBroker(BrokerRegistration(0, 200, None, ENDPOINTS)))
    alone = image.topics["alone"].partitions[0]
    assert (alone.leader, alone.leader_epoch, alone.partition_epoch) == (0, 2, 2)
    assert [each.leader for each in image.topics["orders"].partitions] == [1, 1]
