"""The one table of settings, and how a name is looked up in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.config.broker_settings import BROKER_SECTIONS
from tidelog.config.group_settings import SETTINGS_OF_A_GROUP
from tidelog.config.security_settings import LISTENER_PREFIX, listener_setting
from tidelog.config.setting import Kind, Setting
from tidelog.config.topic_settings import TOPIC_SECTIONS

BROKER_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for _, settings in BROKER_SECTIONS for setting in settings
}
TOPIC_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for _, settings in TOPIC_SECTIONS for setting in settings
}
GROUP_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for setting in SETTINGS_OF_A_GROUP
}
SETTINGS: Final[tuple[Setting, ...]] = (
    *BROKER_SETTINGS.values(),
    *TOPIC_SETTINGS.values(),
    *GROUP_SETTINGS.values(),
)

# Names of one thing: when a later source of settings gives one of them, what earlier sources said
# under any of the names no longer counts.
SYNONYM_GROUPS: Final[tuple[tuple[str, ...], ...]] = (
    ("node.id", "broker.id"),
    ("log.dirs", "log.dir"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like `name`, or None when none is like it."""
    # difflib is needed for a mistake only.
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def hint(name: str, names: Iterable[str]) -> str:
    """A clause for an error message that names the nearest valid name, or nothing."""
    found = nearest(name, names)
    return f"; did you mean {found}?" if found else ""


def kafka_names() -> frozenset[str]:
    """The broker settings that Kafka knows and nothing here uses; read when first needed."""
    from tidelog.config.kafka_names import BROKER_NAMES

    return BROKER_NAMES


def is_kafka_name(name: str) -> bool:
    """Whether Kafka knows this broker setting although nothing here uses it."""
    return name in kafka_names() or name.startswith(LISTENER_PREFIX)


def broker_setting(name: str) -> Setting | None:
    """The row of a broker's setting that is used here, with or without a listener's prefix."""
    return BROKER_SETTINGS.get(name) or listener_setting(name)


def altered_broker_setting(name: str) -> Setting:
    """The row of a broker setting that was altered, used here or not.

    One that nobody knows is taken, as Kafka takes it, and its value is shown to no one.
    """
    if (used := broker_setting(name)) is not None:
        return used
    from tidelog.config.kafka_names import UNUSED_DYNAMIC_SETTINGS

    return UNUSED_DYNAMIC_SETTINGS.get(name) or Setting(name, None, "", Kind.UNKNOWN)


def group_setting(name: str) -> Setting | None:
    """The row of a group's setting, used here or not; None where Kafka knows none."""
    if name in GROUP_SETTINGS:
        return GROUP_SETTINGS[name]
    from tidelog.config.kafka_names import UNUSED_GROUP_SETTINGS

    return UNUSED_GROUP_SETTINGS.get(name)
