"""The one table of settings, and how a name is looked up in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.config.broker_settings import BROKER_SECTIONS
from tidelog.config.setting import Kind, Setting, format_value
from tidelog.config.topic_settings import TOPIC_SECTIONS

BROKER_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for _, settings in BROKER_SECTIONS for setting in settings
}
TOPIC_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for _, settings in TOPIC_SECTIONS for setting in settings
}
SETTINGS: Final[tuple[Setting, ...]] = (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values())

# Names of one thing: when a later source of settings gives one of them, what earlier sources said
# under any of the names no longer counts.
SYNONYM_GROUPS: Final[tuple[tuple[str, ...], ...]] = (
    ("node.id", "broker.id"),
    ("log.dirs", "log.dir"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)


def list_default(name: str) -> str | None:
    """The default of a setting that is a list, parted by commas; None for any other name."""
    setting = TOPIC_SETTINGS.get(name) or BROKER_SETTINGS.get(name)
    if setting is None or setting.kind is not Kind.LIST:
        return None
    return format_value(setting.default) or ""


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
    return name in kafka_names() or name.startswith("listener.name.")


def is_group_name(name: str) -> bool:
    """Whether Kafka knows this as a setting of groups."""
    from tidelog.config.kafka_names import GROUP_NAMES

    return name in GROUP_NAMES
