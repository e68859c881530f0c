"""What topics, groups and running brokers may set for themselves; the words are Kafka's.

`validate` functions take all that is set afterwards and raise ConfigError, with a sentence for the
client, where one of it may not be so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.config.broker_config import BrokerConfig, parse_settings
from tidelog.config.group_settings import check_group
from tidelog.config.security_settings import LISTENER_PREFIX
from tidelog.config.setting import Setting, Update, Value
from tidelog.config.table import (
    TOPIC_SETTINGS,
    altered_broker_setting,
    broker_setting,
    group_setting,
    hint,
)
from tidelog.errors import ConfigError


def parse_topic_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a topic's overrides; ConfigError for a name or value that is not valid."""
    for name in overrides:
        if name not in TOPIC_SETTINGS:
            raise ConfigError(f"Unknown topic config name: {name}{hint(name, TOPIC_SETTINGS)}")
    values = parse_settings(overrides, TOPIC_SETTINGS)
    shortest, longest = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) >"
            f" max.compaction.lag.ms ({longest})"
        )
    if values.get("remote.storage.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
            " with remote log storage."
        )
    return values


def parse_group_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a group's own settings; ConfigError for a name or value that is not valid."""
    values = {}
    for name, text in overrides.items():
        setting = group_setting(name)
        if setting is None:
            raise ConfigError(f"Unknown group config name: {name}")
        values[name] = setting.parse(text)
    return values


def validate_group_overrides(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """For what a group sets, within the bounds that the broker has."""
    check_group(parse_group_overrides(overrides), broker.get_int)


def validate_broker_overrides(
    broker: BrokerConfig, overrides: Mapping[str, str], *, per_broker: bool
) -> None:
    """For what is altered while brokers run; `per_broker` False is for all of them at once."""
    from tidelog.config.kafka_names import PER_LISTENER_NAMES

    _refuse("Cannot update these configs dynamically", _is_fixed, overrides)
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener"
        " prefix",
        PER_LISTENER_NAMES.__contains__,
        overrides,
    )
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            _is_of_one_broker,
            overrides,
        )
    broker.with_dynamic(*((overrides, {}) if per_broker else ({}, overrides)))


def _refuse(reason: str, test: Callable[[str], bool], names: Iterable[str]) -> None:
    found = [name for name in names if test(name)]
    if found:
        raise ConfigError(f"{reason}: [{', '.join(found)}]")


def _is_fixed(name: str) -> bool:
    """Whether a setting is known and only read at a start."""
    from tidelog.config.kafka_names import FIXED_NAMES

    setting = broker_setting(name)
    return name in FIXED_NAMES if setting is None else setting.update is Update.READ_ONLY


def _is_of_one_broker(name: str) -> bool:
    return (
        name.startswith(LISTENER_PREFIX) or altered_broker_setting(name).update is Update.PER_BROKER
    )


def effective_values(
    broker: BrokerConfig, settings: Mapping[str, Setting], overrides: Mapping[str, Value]
) -> dict[str, Value]:
    """The value of each setting: the owner's, else the broker's, else the default."""
    values: dict[str, Value] = {}
    for name, setting in settings.items():
        if name in overrides:
            values[name] = overrides[name]
        elif setting.broker_name is not None:
            values[name] = broker.get(setting.broker_name)
        else:
            values[name] = setting.default
    return values
