"""The controller's decisions on settings: what they are after a request, and whether they may be.

The one place that judges them, for whichever broker was asked. The rules and words are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.cluster.changes import (
    BrokerConfigsChanged,
    Change,
    GroupConfigsChanged,
    TopicConfigsChanged,
)
from tidelog.cluster.commands import AlterConfigs, ConfigChange
from tidelog.cluster.image import ImageView
from tidelog.cluster.names import check_topic_name, named_broker
from tidelog.config import (
    BrokerConfig,
    validate_broker_overrides,
    validate_group_overrides,
    validate_topic_overrides,
)
from tidelog.config.setting import Kind, Setting, format_value, split_list
from tidelog.config.table import TOPIC_SETTINGS, altered_broker_setting, group_setting
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.model import ConfigOperation, ConfigResourceType

# There are fewer settings than that.
CHANGES_MAX: Final = 1_000
# A group need not exist to have settings, so nothing else bounds their number.
CONFIGURED_GROUPS_MAX: Final = 10_000

Configs = Mapping[str, str]


def plan_configs(image: ImageView, command: AlterConfigs, broker: BrokerConfig) -> list[Change]:
    """What a request to alter settings changes; KafkaError where it cannot be done.

    `broker` is the controller's: the bounds of a group's settings, and what a broker's altered
    settings must fit together with.
    """
    match command.resource:
        case ConfigResourceType.TOPIC:
            change = _alter_topic(image, command)
        case ConfigResourceType.BROKER:
            change = _alter_broker(image, command, broker)
        case ConfigResourceType.GROUP:
            change = _alter_group(image, command, broker)
        case unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown}")
    return [] if change is None or command.validate_only else [change]


def _alter_topic(image: ImageView, command: AlterConfigs) -> Change | None:
    name = command.name
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    topic = image.topics.get(name)
    if topic is None:
        raise unknown_topic(name)
    configs = _altered(topic.configs, command, TOPIC_SETTINGS.get)
    validated(lambda: validate_topic_overrides(configs))
    return None if configs == topic.configs else TopicConfigsChanged(name, configs)


def _alter_broker(image: ImageView, command: AlterConfigs, broker: BrokerConfig) -> Change | None:
    name = _broker_name(image, command.name)
    current = image.broker_configs.get(name, {})
    configs = _altered(current, command, altered_broker_setting)
    validated(
        lambda: validate_broker_overrides(broker, configs, per_broker=bool(name)),
        ErrorCode.INVALID_REQUEST,
    )
    return None if configs == current else BrokerConfigsChanged(name, configs)


def _alter_group(image: ImageView, command: AlterConfigs, broker: BrokerConfig) -> Change | None:
    name = command.name
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    current = image.group_configs.get(name, {})
    configs = _altered(current, command, group_setting)
    validated(lambda: validate_group_overrides(broker, configs))
    if configs and not current and len(image.group_configs) >= CONFIGURED_GROUPS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{CONFIGURED_GROUPS_MAX} groups have settings of their own; delete some first.",
        )
    return None if configs == current else GroupConfigsChanged(name, configs)


def _broker_name(image: ImageView, name: str) -> str:
    """The plain spelling, so that "07" and "7" are not two resources; "" for every broker."""
    if not name:
        return name
    broker_id = named_broker(name)
    if broker_id not in image.brokers:
        expected = ", ".join(map(str, sorted(image.brokers)))
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {expected}, but received {name}",
        )
    return str(broker_id)


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def validated(validate: Callable[[], None], code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
    """Turn what the table of settings finds wrong into an answer."""
    try:
        validate()
    except ConfigError as error:
        raise KafkaError(code, str(error)) from error


def _altered(
    old: Configs, command: AlterConfigs, find: Callable[[str], Setting | None]
) -> dict[str, str]:
    """The settings after the changes; KafkaError where a change makes no sense."""
    changes = command.changes
    if len(changes) > CHANGES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(changes)} settings in one request; at most {CHANGES_MAX} are taken",
        )
    if len({change.name for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    configs = {} if command.replace else dict(old)
    for change in changes:
        if change.operation == ConfigOperation.DELETE:
            configs.pop(change.name, None)
        elif change.value is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}"
            )
        elif change.operation == ConfigOperation.SET:
            configs[change.name] = change.value
        elif change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            setting = _list_setting(change, command.resource, find)
            current = configs.get(change.name, format_value(setting.default) or "")
            configs[change.name] = _altered_list(current, change)
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown operation {change.operation} for config key: {change.name}",
            )
    return configs


def _list_setting(
    change: ConfigChange, resource: int, find: Callable[[str], Setting | None]
) -> Setting:
    """The setting to append to or subtract from; KafkaError where it is no list."""
    setting = find(change.name)
    if setting is not None and setting.kind is Kind.LIST:
        return setting
    operation = ConfigOperation(change.operation).name
    message = f"Can't {operation} to key {change.name} because its type is not LIST."
    if resource == ConfigResourceType.BROKER:
        message = (
            f"Config value {operation.lower()} is not allowed for config key: {change.name}"
            if setting is not None and setting.kind is not Kind.UNKNOWN
            else f"Unknown config name: {change.name}"
        )
    raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _altered_list(current: str, change: ConfigChange) -> str:
    members, given = _members(current), _members(change.value or "")
    if change.operation == ConfigOperation.APPEND:
        members += [each for each in dict.fromkeys(given) if each not in members]
    else:
        members = [each for each in members if each not in given]
    return ",".join(members)


def _members(text: str) -> list[str]:
    return [each for each in split_list(text) if each]
