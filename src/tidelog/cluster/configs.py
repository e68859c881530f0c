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
from tidelog.cluster.layout import encode
from tidelog.cluster.min_isr import MIN_ISR
from tidelog.cluster.names import check_topic_name, named_broker
from tidelog.config import (
    BrokerConfig,
    validate_broker_overrides,
    validate_group_overrides,
)
from tidelog.config.overrides import parse_topic_overrides
from tidelog.config.setting import Kind, Setting, format_value, split_list
from tidelog.config.table import TOPIC_SETTINGS, altered_broker_setting, group_setting
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.model import ConfigOperation, ConfigResourceType

# There are fewer settings than that. A broker takes names that nobody knows, so what one resource
# has is bounded, too: it is read, checked and written as a whole whenever one of them changes.
CHANGES_MAX: Final = 1_000
SETTINGS_MAX: Final = 1_000
NAME_CHARACTERS_MAX: Final = 255
# Kafka's bound, and its words.
VALUE_CHARACTERS_MAX: Final = 32_767
# As they are stored; a transaction of the store holds twice that.
STORED_BYTES_MAX: Final = 256 * 1024
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
    validated(lambda: parse_topic_overrides(configs))
    if configs.get(MIN_ISR) != topic.configs.get(MIN_ISR):
        check_min_isr(configs, max(len(state.target) for state in topic.partitions))
    return None if configs == topic.configs else TopicConfigsChanged(name, configs)


def altered_broker(image: ImageView, command: AlterConfigs) -> dict[str, str]:
    """What a broker's own settings would be; KafkaError where a change makes no sense."""
    name = _broker_name(image, command.name)
    return _altered(image.broker_configs.get(name, {}), command, altered_broker_setting)


def _alter_broker(image: ImageView, command: AlterConfigs, broker: BrokerConfig) -> Change | None:
    name = _broker_name(image, command.name)
    current = image.broker_configs.get(name, {})
    configs = _altered(current, command, altered_broker_setting)
    if name and configs.get(MIN_ISR) != current.get(MIN_ISR):
        # The controller counts on every leader going by the same minimum. The words are Kafka's.
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.",
        )
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


def check_min_isr(configs: Configs, replication_factor: int) -> None:
    """KafkaError INVALID_CONFIG where a topic asks for more in-sync replicas than it has."""
    wanted = int(configs.get(MIN_ISR, "1"))
    if wanted > replication_factor:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_ISR} is {wanted}, but the topic has {replication_factor} replica(s) of each"
            " partition. Lower it, or raise the replication factor.",
        )


def check_given(given: Mapping[str, str | None]) -> None:
    """KafkaError INVALID_CONFIG where a name or a value is too long."""
    for name, value in given.items():
        if not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The name of a setting has {len(name)} characters; it must have between 1 and"
                f" {NAME_CHARACTERS_MAX}.",
            )
        if value is not None and _is_too_long(value):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size"
                f" of {VALUE_CHARACTERS_MAX} bytes.",
            )


def check_together(configs: Configs, old: Configs) -> None:
    """KafkaError INVALID_CONFIG where one resource has too many settings, or too large ones.

    One that had even more before can be brought down in steps.
    """
    if len(configs) > max(SETTINGS_MAX, len(old)):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"There would be {len(configs)} settings; at most {SETTINGS_MAX} are taken. Delete some"
            " first.",
        )
    size = _stored_bytes(configs)
    if size > STORED_BYTES_MAX and size > _stored_bytes(old):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The settings would take more than {STORED_BYTES_MAX} bytes together. Delete some or"
            " shorten their values.",
        )


def _is_too_long(value: str) -> bool:
    """Counted as Java counts characters."""
    if value.isascii() or len(value) > VALUE_CHARACTERS_MAX:
        return len(value) > VALUE_CHARACTERS_MAX
    return len(value.encode("utf-16-le", "surrogatepass")) > 2 * VALUE_CHARACTERS_MAX


def _stored_bytes(configs: Configs) -> int:
    """What the settings take in the store; less where even their characters are too many."""
    characters = sum(len(name) + len(value) for name, value in configs.items())
    return characters if characters > STORED_BYTES_MAX else len(encode(configs=dict(configs)))


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def validated(validate: Callable[[], object], code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
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
    # A name or value that is too long may be there from before, and is deleted like any other.
    check_given(
        {each.name: each.value for each in changes if each.operation != ConfigOperation.DELETE}
    )
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
            check_given({change.name: configs[change.name]})
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown operation {change.operation} for config key: {change.name}",
            )
    check_together(configs, old)
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
        known = set(members)
        members += [each for each in dict.fromkeys(given) if each not in known]
    else:
        removed = set(given)
        members = [each for each in members if each not in removed]
    return ",".join(members)


def _members(text: str) -> list[str]:
    return [each for each in split_list(text) if each]
