"""How a request changes settings: whole or one by one. What a setting may be is not known here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.cluster.commands import ConfigChange
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigOperation


def _accept(configs: Mapping[str, str]) -> None:
    """Take any settings."""


def _no_list(name: str) -> str | None:
    """Hold every setting for a single value."""
    return None


@dataclass(slots=True)
class ConfigRules:
    """What is asked of the table of settings.

    The `validate` functions raise ConfigError where the settings, as they would be afterwards,
    cannot be used: those of a topic, of one broker, of every broker (None: as of one broker).
    `list_default` gives the default of a setting that is a list, comma separated, and None for any
    other setting.
    """

    validate_topic: Callable[[Mapping[str, str]], None] = _accept
    validate_broker: Callable[[Mapping[str, str]], None] = _accept
    list_default: Callable[[str], str | None] = _no_list
    validate_every_broker: Callable[[Mapping[str, str]], None] | None = None


def altered_configs(
    old: Mapping[str, str], changes: Sequence[ConfigChange], rules: ConfigRules
) -> dict[str, str]:
    """The settings after the changes; KafkaError where a change makes no sense."""
    configs = dict(old)
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {twice}")
    for change in changes:
        if change.operation == ConfigOperation.DELETE:
            configs.pop(change.name, None)
            continue
        if change.value is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}"
            )
        if change.operation == ConfigOperation.SET:
            configs[change.name] = change.value
        else:
            configs[change.name] = _altered_list(configs.get(change.name), change, rules)
    return configs


def _altered_list(current: str | None, change: ConfigChange, rules: ConfigRules) -> str:
    default = rules.list_default(change.name)
    if default is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {change.operation.name} to key {change.name} because its type is not LIST.",
        )
    members = _members(default if current is None else current)
    given = _members(change.value or "")
    if change.operation == ConfigOperation.APPEND:
        members += [each for each in dict.fromkeys(given) if each not in members]
    else:
        members = [each for each in members if each not in given]
    return ",".join(members)


def _members(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
