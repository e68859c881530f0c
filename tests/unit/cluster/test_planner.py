"""What a command changes, and what it answers."""

from __future__ import annotations

import pytest

from tests.unit.cluster.helpers import ENDPOINTS, image_with, make_rules
from tidelog.cluster.changes import TopicCreated
from tidelog.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Command,
    ConfigChange,
    CreatedTopic,
    CreateTopic,
    DeleteTopic,
    ProducerIdBlock,
    RegisterBroker,
    UnregisterBroker,
)
from tidelog.cluster.image import BrokerRegistration, MetadataImage
from tidelog.cluster.planner import plan, refused_together
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_LEADER, NO_TOPIC_ID, ConfigOperation, ConfigResourceType

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def after(image: MetadataImage, command: Command) -> MetadataImage:
    rules = make_rules(seed=image.version)
    return image.apply_all(plan(image, command, rules).changes, image.version + 1)


def test_a_topic_takes_the_defaults_that_the_caller_left_out() -> None:
    rules = make_rules(settings={"num.partitions": "5", "default.replication.factor": "2"})
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
        AlterConfigs(
            ConfigResourceType.TOPIC,
            "orders",
            [ConfigChange("retention.ms", "1")],
            validate_only=True,
        ),
        AlterConfigs(
            ConfigResourceType.BROKER,
            "",
            [ConfigChange("log.retention.ms", "1")],
            validate_only=True,
        ),
        AlterConfigs(
            ConfigResourceType.GROUP,
            "readers",
            [ConfigChange("consumer.session.timeout.ms", "50000")],
            validate_only=True,
        ),
        # Altering to what is so already changes nothing either.
        AlterConfigs(
            ConfigResourceType.TOPIC, "orders", [ConfigChange("retention.ms", None, DELETE)]
        ),
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
            [("segment.bytes", "2000000", SET)],
            False,
            {"retention.ms": "1", "segment.bytes": "2000000"},
        ),
        (
            {"retention.ms": "1"},
            [("segment.bytes", "2000000", SET)],
            True,
            {"segment.bytes": "2000000"},
        ),
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
        image = after(image, AlterConfigs(ConfigResourceType.TOPIC, "orders", alterations, replace))
        assert image.topics["orders"].configs == expected
        return
    start = [each._replace(name=f"log.{each.name}") for each in start]
    alterations = [each._replace(name=f"log.{each.name}") for each in alterations]
    expected = {f"log.{name}": value for name, value in expected.items()}
    image = after(image, AlterConfigs(ConfigResourceType.BROKER, resource, start))
    image = after(image, AlterConfigs(ConfigResourceType.BROKER, resource, alterations, replace))
    assert image.broker_configs.get(resource, {}) == expected


def test_the_settings_of_a_group_are_altered_whether_it_exists_or_not() -> None:
    name = "consumer.session.timeout.ms"
    image = after(
        image_with(), AlterConfigs(ConfigResourceType.GROUP, "a/b ☃", [ConfigChange(name, "50000")])
    )
    assert image.group_configs == {"a/b ☃": {name: "50000"}}
    image = after(image, AlterConfigs(ConfigResourceType.GROUP, "a/b ☃", [], replace=True))
    assert image.group_configs == {}


def test_two_spellings_of_a_broker_id_are_one_resource() -> None:
    change = ConfigChange("log.retention.ms", "1")
    image = after(image_with(), AlterConfigs(ConfigResourceType.BROKER, "00", [change]))
    assert image.broker_configs == {"0": {"log.retention.ms": "1"}}


def test_a_request_for_too_many_partitions_is_refused_as_a_whole() -> None:
    rules = make_rules(settings={"num.partitions": "4000"})
    both = [CreateTopic("a", 6_000), CreateTopic("b", 4_000)]
    assert refused_together(both, rules) is None
    for third in (CreateTopic("c", 1), CreateTopic("c"), CreateTopic("c", assignments={0: [0]})):
        refusal = refused_together([*both, third], rules)
        assert refusal is not None
        assert refusal.code is ErrorCode.POLICY_VIOLATION
        assert refusal.message == "Excessively large number of partitions per request."


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
    assert (alone.leader, alone.leader_epoch) == (NO_LEADER, 1)
    assert (alone.isr, alone.elr) == ((), (0,))
    image = after(image, RegisterBroker(BrokerRegistration(0, 200, None, ENDPOINTS)))
    alone = image.topics["alone"].partitions[0]
    assert (alone.leader, alone.leader_epoch, alone.partition_epoch) == (0, 2, 2)
    assert [each.leader for each in image.topics["orders"].partitions] == [1, 1]


def one_away() -> MetadataImage:
    """Brokers 0 and 1 live, broker 2 is away."""
    return after(image_with((0, 1, 2)), UnregisterBroker(2, 102))


def test_a_topic_created_while_a_broker_is_away_gets_its_replica_when_it_is_back() -> None:
    image = after(one_away(), CreateTopic("orders", 4, 3))
    for state in image.topics["orders"].partitions:
        assert sorted(state.replicas) == [0, 1, 2]
        assert state.replicas[-1] == 2 and state.leader == state.replicas[0]
        assert sorted(state.isr) == [0, 1]
    image = after(image, AddPartitions("orders", 5))
    assert sorted(image.topics["orders"].partitions[4].replicas) == [0, 1, 2]
    assert after(one_away(), CreateTopic("few", 2, 2)).topics["few"].partitions[0].isr in (
        (0, 1),
        (1, 0),
    )


def test_a_topic_is_assigned_to_brokers_of_which_one_lives() -> None:
    state = after(one_away(), CreateTopic("t", assignments={0: [2, 1]})).topics["t"].partitions[0]
    assert (state.leader, state.replicas, state.isr) == (1, (2, 1), (1,))
    for given in ([2], [2, 9], [1, 9]):
        with pytest.raises(KafkaError) as refused:
            after(one_away(), CreateTopic("t", assignments={0: given}))
        assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(KafkaError, match="only 3 broker"):
        after(one_away(), CreateTopic("t", 1, 4))
