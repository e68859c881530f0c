"""The table agrees with what Apache Kafka prints of its own settings: names, types, defaults."""

import html
import re
from functools import cache

import pytest

from bench.peers.kafka import run_tool
from tidelog.config.kafka_names import (
    BROKER_NAMES,
    PER_LISTENER_NAMES,
    UNUSED_DYNAMIC_SETTINGS,
    UNUSED_GROUP_SETTINGS,
)
from tidelog.config.setting import Setting, format_value
from tidelog.config.table import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS

pytestmark = pytest.mark.java

TOPIC_CLASS = "org.apache.kafka.storage.internals.log.LogConfig"
BROKER_CLASS = "kafka.server.KafkaConfig"
GROUP_CLASS = "org.apache.kafka.coordinator.group.GroupConfig"


@cache
def printed(class_name: str) -> dict[str, dict[str, str]]:
    """What Kafka prints of each setting, by name: Type, Default, Valid Values and others."""
    done = run_tool(class_name)
    assert done.returncode == 0, done.stderr
    result = {}
    for block in done.stdout.split("<h4>")[1:]:
        name = re.sub("<[^>]+>", "", block.split("</h4>")[0]).strip()
        cells = re.findall(r"<tr><th>(.*?):?</th><td>(.*?)</td></tr>", block, re.S)
        result[name] = {key.rstrip(":"): html.unescape(value) for key, value in cells}
    return result


def kafka_default(text: str) -> str | None:
    """The default without its reading in other units; None where there is none."""
    if text == "null":
        return None
    return "" if text == '""' else re.sub(r" \(.*\)$", "", text)


def our_default(setting: Setting) -> str | None:
    if setting.kafka_default is not None:
        return setting.kafka_default
    return format_value(setting.default)


def differences(
    settings: dict[str, Setting], known: dict[str, dict[str, str]]
) -> list[tuple[str, object, object]]:
    found: list[tuple[str, object, object]] = []
    for name, setting in settings.items():
        if not setting.kafka or setting.internal:
            continue
        ours = (setting.kind.name.lower(), our_default(setting))
        kafkas = (known[name]["Type"], kafka_default(known[name]["Default"]))
        if ours != kafkas:
            found.append((name, ours, kafkas))
    return found


def test_topic_settings_are_kafkas() -> None:
    known = printed(TOPIC_CLASS)
    ours = {name for name, each in TOPIC_SETTINGS.items() if each.kafka and not each.internal}
    assert ours == set(known)
    assert differences(TOPIC_SETTINGS, known) == []


def test_topic_settings_fall_back_on_the_broker_settings_that_kafka_says() -> None:
    said = {
        name: None if each["Server Default Property"] == "null" else each["Server Default Property"]
        for name, each in printed(TOPIC_CLASS).items()
    }
    assert {name: TOPIC_SETTINGS[name].broker_name for name in said} == said


def test_broker_settings_and_unused_names_together_are_all_of_kafkas() -> None:
    known = printed(BROKER_CLASS)
    ours = {name for name, each in BROKER_SETTINGS.items() if each.kafka and not each.internal}
    assert ours <= set(known)
    assert set(known) - ours <= BROKER_NAMES
    # Kafka has it off for any client; here only our own are told that there is such a thing.
    on = ("transaction.two.phase.commit.enable", ("boolean", "true"), ("boolean", "false"))
    assert differences(BROKER_SETTINGS, known) == [on]


def test_names_marked_as_ours_are_unknown_to_kafka() -> None:
    ours = {each.name for each in BROKER_SETTINGS.values() if not each.kafka}
    assert not ours & (set(printed(BROKER_CLASS)) | BROKER_NAMES)
    assert not {n for n, each in TOPIC_SETTINGS.items() if not each.kafka} & set(
        printed(TOPIC_CLASS)
    )


def test_group_settings_are_kafkas() -> None:
    known = printed(GROUP_CLASS)
    ours = {**GROUP_SETTINGS, **UNUSED_GROUP_SETTINGS}
    kinds = {name: setting.kind.name.lower() for name, setting in ours.items()}
    assert kinds == {name: each["Type"] for name, each in known.items()}


def test_what_kafka_keeps_read_only_is_not_altered_here_either() -> None:
    known = printed(BROKER_CLASS)
    altered = {name for name, each in BROKER_SETTINGS.items() if each.kafka and each.update}
    read_only = {name for name, each in known.items() if each["Update Mode"] == "read-only"}
    assert not altered & read_only


def test_what_kafka_takes_while_it_runs_is_taken_here_too_for_as_many_brokers() -> None:
    known = {
        name: (each["Update Mode"], each["Type"])
        for name, each in printed(BROKER_CLASS).items()
        if each["Update Mode"] != "read-only" and name not in BROKER_SETTINGS
    }
    ours = {
        name: (setting.update.name.lower().replace("_", "-"), setting.kind.name.lower())
        for name, setting in UNUSED_DYNAMIC_SETTINGS.items()
    }
    assert {name: each for name, each in known.items() if name not in PER_LISTENER_NAMES} == ours
