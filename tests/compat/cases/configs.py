"""Settings of topics and brokers: described, altered in both ways, refused."""

from __future__ import annotations

from tests.compat.cases.registry import (
    INVALID_CONFIG,
    UNKNOWN_TOPIC_OR_PARTITION,
    Trial,
    case,
    refused,
)
from tests.waiting import eventually

SECTION = "Settings"


def _setting(trial: Trial, topic: str, name: str) -> tuple[str, bool]:
    described = trial.driver.describe_configs("topic", topic)[name]
    return described["value"], described["default"]


@case(SECTION, "describe a topic's settings with their defaults")
def describe_topic_configs(trial: Trial) -> None:
    described = trial.driver.describe_configs("topic", trial.topic())
    assert described["cleanup.policy"] == {"value": "delete", "default": True}
    assert described["retention.ms"] == {"value": "604800000", "default": True}
    assert described["compression.type"] == {"value": "producer", "default": True}
    assert len(described) >= 20


@case(SECTION, "describe a broker's settings")
def describe_broker_configs(trial: Trial) -> None:
    (broker, *_) = trial.wire.leaders(trial.topic()).values()
    described = trial.driver.describe_configs("broker", str(broker))
    assert described["log.segment.bytes"]["value"] == "1073741824"
    assert described["num.partitions"]["value"].isdecimal()
    assert described["auto.create.topics.enable"] == {"value": "false", "default": False}


@case(SECTION, "describe the settings of an unknown topic: refused")
def describe_unknown_topic_configs(trial: Trial) -> None:
    with refused(UNKNOWN_TOPIC_OR_PARTITION):
        trial.driver.describe_configs("topic", trial.unused_name())


@case(SECTION, "alter settings as a whole: what is not named falls back")
def alter_configs(trial: Trial) -> None:
    topic = trial.topic()
    trial.driver.alter_configs(topic, {"retention.ms": "111111"})
    eventually(lambda: _setting(trial, topic, "retention.ms") == ("111111", False))
    trial.driver.alter_configs(topic, {"segment.ms": "222222"})
    eventually(lambda: _setting(trial, topic, "segment.ms") == ("222222", False))
    left = ("111111", False) if trial.client.keeps_other_configs else ("604800000", True)
    assert _setting(trial, topic, "retention.ms") == left


@case(SECTION, "alter settings one by one: set and delete")
def incremental_alter_configs(trial: Trial) -> None:
    topic = trial.topic(configs={"retention.ms": "111111", "segment.ms": "222222"})
    trial.driver.incremental_alter_configs(
        topic, {"max.message.bytes": "54321"}, delete_configs=["retention.ms"]
    )
    eventually(lambda: _setting(trial, topic, "max.message.bytes") == ("54321", False))
    assert _setting(trial, topic, "retention.ms") == ("604800000", True)
    assert _setting(trial, topic, "segment.ms") == ("222222", False)


@case(SECTION, "create a topic with an unknown setting: refused")
def create_topic_bad_config_name(trial: Trial) -> None:
    topic = trial.unused_name()
    with refused(INVALID_CONFIG):
        trial.driver.create_topic(topic, configs={"retention.mss": "1"})
    assert trial.wire.leaders(topic) == {}


@case(SECTION, "create a topic with a bad value: refused")
def create_topic_bad_config_value(trial: Trial) -> None:
    topic = trial.unused_name()
    with refused(INVALID_CONFIG):
        trial.driver.create_topic(topic, configs={"retention.ms": "soon"})
    assert trial.wire.leaders(topic) == {}


@case(SECTION, "alter a setting to a bad value: refused, nothing changes")
def alter_bad_config(trial: Trial) -> None:
    topic = trial.topic()
    bad = {"cleanup.policy": "shred"}
    with refused(INVALID_CONFIG):
        if trial.can("incremental_alter_configs"):
            trial.driver.incremental_alter_configs(topic, bad)
        else:
            trial.driver.alter_configs(topic, bad)
    assert _setting(trial, topic, "cleanup.policy") == ("delete", True)
