"""Images are values: old ones stay, new ones share what did not change."""

from __future__ import annotations

from tests.unit.cluster.helpers import image_with, make_rules
from tidelog.cluster.changes import TopicDeleted, changes_between
from tidelog.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Command,
    ConfigChange,
    CreateTopic,
    DeleteTopic,
    UnregisterBroker,
)
from tidelog.cluster.image import Endpoint, MetadataImage
from tidelog.cluster.planner import plan
from tidelog.model import ConfigResourceType


def apply(image: MetadataImage, *commands: Command) -> MetadataImage:
    rules = make_rules(seed=image.version)
    for command in commands:
        image = image.apply_all(plan(image, command, rules).changes, image.version + 1)
    return image


def test_applying_a_change_leaves_the_old_image_as_it_was() -> None:
    old = image_with((0,), [CreateTopic("a"), CreateTopic("b.c")])
    topics, names = dict(old.topics), dict(old.topic_names)
    new = apply(old, CreateTopic("d"), DeleteTopic("a"), AddPartitions("b.c", 3))
    assert (old.topics, old.topic_names, old.partition_count) == (topics, names, 2)
    assert set(new.topics) == {"b.c", "d"}
    assert new.partition_count == 4
    assert new.brokers is old.brokers
    assert new.broker_configs is old.broker_configs


def test_a_topic_is_found_by_name_by_id_and_by_partition() -> None:
    image = image_with((0,), [CreateTopic("a", 2)])
    topic = image.topics["a"]
    assert image.topic_names[topic.topic_id] == "a"
    assert image.partition("a", 1) is topic.partitions[1]
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None
    image = image.apply_all([TopicDeleted("a", topic.topic_id, 2)], 99)
    assert topic.topic_id not in image.topic_names


def test_a_broker_has_one_address_per_listener() -> None:
    broker = image_with((0,)).brokers[0]
    assert broker.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "localhost", 9092)
    assert broker.endpoint("SSL") is None


def test_images_of_different_versions_may_say_the_same() -> None:
    image = image_with((0,), [CreateTopic("a")])
    later = image.apply_all((), 99)
    assert later != image
    assert later.same_content(image)
    assert not apply(image, CreateTopic("b")).same_content(image)


def test_the_changes_between_two_images_lead_from_one_to_the_other() -> None:
    old = image_with((0, 1), [CreateTopic("kept", 2), CreateTopic("gone"), CreateTopic("again")])
    new = apply(
        old,
        DeleteTopic("gone"),
        DeleteTopic("again"),
        CreateTopic("again", 3),
        CreateTopic("new.one"),
        AddPartitions("kept", 4),
        AlterConfigs(ConfigResourceType.TOPIC, "kept", [ConfigChange("retention.ms", "5")]),
        AlterConfigs(ConfigResourceType.BROKER, "", [ConfigChange("log.retention.ms", "6")]),
        AlterConfigs(
            ConfigResourceType.GROUP, "g", [ConfigChange("consumer.session.timeout.ms", "50000")]
        ),
        AllocateProducerIds(0, 100),
        UnregisterBroker(1, 101),
    )
    assert old.apply_all(changes_between(old, new), new.version) == new
    assert changes_between(new, new) == ()
