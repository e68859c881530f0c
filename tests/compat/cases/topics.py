"""Topics, partitions and the cluster, through the clients' admin calls."""

from __future__ import annotations

from tests.compat.cases.registry import (
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    INVALID_TOPIC_EXCEPTION,
    OFFSET_OUT_OF_RANGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Trial,
    case,
    refused,
)
from tests.compat.wire import Record
from tests.waiting import eventually

SECTION = "Topics and cluster"


@case(SECTION, "create a topic of three partitions")
def create_topic(trial: Trial) -> None:
    topic = trial.unused_name()
    trial.driver.create_topic(topic, partitions=3)
    eventually(lambda: sorted(trial.wire.leaders(topic)) == [0, 1, 2])


@case(SECTION, "create a topic with settings and see them")
def create_topic_with_configs(trial: Trial) -> None:
    topic = trial.unused_name()
    wanted = {"cleanup.policy": "compact", "retention.ms": "123456"}
    trial.driver.create_topic(topic, configs=wanted)
    trial.wire.wait_for_leaders(topic, 1)
    described = trial.driver.describe_configs("topic", topic)
    for name, value in wanted.items():
        assert described[name] == {"value": value, "default": False}


@case(SECTION, "create a topic that exists: refused")
def create_existing_topic(trial: Trial) -> None:
    topic = trial.topic()
    with refused(TOPIC_ALREADY_EXISTS):
        trial.driver.create_topic(topic)


@case(SECTION, "create a topic with an illegal name: refused")
def create_topic_bad_name(trial: Trial) -> None:
    with refused(INVALID_TOPIC_EXCEPTION):
        trial.driver.create_topic("compat not/a name")


@case(SECTION, "create a topic with more replicas than brokers: refused")
def create_topic_bad_replication(trial: Trial) -> None:
    with refused(INVALID_REPLICATION_FACTOR):
        trial.driver.create_topic(trial.unused_name(), replicas=30)


@case(SECTION, "list topics")
def list_topics(trial: Trial) -> None:
    topics = {trial.topic(), trial.topic(partitions=2)}
    listed = trial.driver.list_topics()
    assert topics <= set(listed)
    assert len(listed) == len(set(listed))


@case(SECTION, "describe a topic: partitions, leader, replicas, in-sync replicas")
def describe_topic(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    layout = trial.wire.layout(topic)
    described = trial.driver.describe_topic(topic)
    assert [partition["partition"] for partition in described] == [0, 1]
    for partition in described:
        known = layout[partition["partition"]]
        assert partition["leader"] == known.leader
        assert tuple(partition["replicas"]) == known.replicas
        assert sorted(partition["isr"]) == sorted(known.in_sync) == sorted(known.replicas)
        assert len(known.replicas) == trial.wire.replicas


@case(SECTION, "describe an unknown topic: refused")
def describe_unknown_topic(trial: Trial) -> None:
    with refused(UNKNOWN_TOPIC_OR_PARTITION):
        trial.driver.describe_topic(trial.unused_name())


@case(SECTION, "describe the cluster: id, controller, brokers")
def describe_cluster(trial: Trial) -> None:
    cluster = trial.driver.describe_cluster()
    brokers = {broker[0]: tuple(broker[1:]) for broker in cluster["brokers"]}
    assert trial.wire.address in brokers.values()
    assert len(brokers) == trial.wire.replicas
    assert cluster["controller_id"] in brokers
    # kcat shows no cluster id.
    assert cluster["cluster_id"] is None or len(cluster["cluster_id"]) >= 1


@case(SECTION, "add partitions and produce to a new one")
def create_partitions(trial: Trial) -> None:
    topic = trial.topic()
    trial.driver.create_partitions(topic, 4)
    eventually(lambda: sorted(trial.wire.leaders(topic)) == [0, 1, 2, 3])
    (delivery,) = trial.driver.deliver(topic, [Record(b"value", partition=3)])
    assert (delivery.partition, delivery.offset) == (3, 0)


@case(SECTION, "take partitions away: refused")
def create_partitions_fewer(trial: Trial) -> None:
    topic = trial.topic(partitions=3)
    with refused(INVALID_PARTITIONS):
        trial.driver.create_partitions(topic, 2)
    assert sorted(trial.wire.leaders(topic)) == [0, 1, 2]


@case(SECTION, "delete a topic")
def delete_topic(trial: Trial) -> None:
    topic = trial.topic()
    trial.driver.delete_topic(topic)
    eventually(lambda: trial.wire.leaders(topic) == {})
    assert topic not in trial.driver.list_topics()


@case(SECTION, "delete a topic and create it again: it is empty")
def recreate_topic(trial: Trial) -> None:
    topic = trial.topic()
    trial.wire.produce(topic, [Record(b"old", key=b"k")] * 3)
    trial.driver.delete_topic(topic)
    eventually(lambda: trial.wire.leaders(topic) == {})
    trial.driver.create_topic(topic, partitions=2)
    trial.wire.wait_for_leaders(topic, 2)
    (delivery,) = trial.driver.deliver(topic, [Record(b"new", key=b"k", partition=0)])
    assert delivery.offset == 0
    assert [record.value for record in trial.wire.fetch_records(topic)] == [b"new"]


@case(SECTION, "delete an unknown topic: refused")
def delete_unknown_topic(trial: Trial) -> None:
    with refused(UNKNOWN_TOPIC_OR_PARTITION):
        trial.driver.delete_topic(trial.unused_name())


@case(SECTION, "delete the records before an offset")
def delete_records(trial: Trial) -> None:
    topic = trial.topic()
    for _ in range(2):
        trial.wire.produce(topic, [Record(b"value") for _ in range(5)])
    # kafkajs does not tell the low watermark.
    assert trial.driver.delete_records(topic, 0, 4) in (4, None)
    assert trial.driver.list_offset(topic, 0, "earliest") == 4
    assert trial.driver.list_offset(topic, 0, "latest") == 10
    assert trial.driver.delete_records(topic, 0, 10) in (10, None)
    assert trial.driver.list_offset(topic, 0, "earliest") == 10
    assert trial.wire.produce(topic, [Record(b"next")]) == 10


@case(SECTION, "delete records beyond the end: refused")
def delete_records_beyond_end(trial: Trial) -> None:
    topic = trial.topic()
    trial.wire.produce(topic, [Record(b"value")])
    with refused(OFFSET_OUT_OF_RANGE):
        trial.driver.delete_records(topic, 0, 2)
    assert trial.driver.list_offset(topic, 0, "earliest") == 0
