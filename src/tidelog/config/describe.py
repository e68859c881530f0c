"""Settings as DescribeConfigs shows them: value, source, synonyms, type and documentation.

Follows Kafka, with one difference: where a topic's value comes from another form of the broker's
setting (`retention.ms` from `log.retention.hours`), Kafka says that it is the default and names no
synonym; here that form is named, and its source is the value's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig, Source
from tidelog.config.setting import Setting, Update, Value, format_value
from tidelog.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from tidelog.config.topic_config import effective_values, parse_topic_overrides


class Synonym(NamedTuple):
    """A setting that could say the value, what it says, and where that was set."""

    name: str
    value: str | None
    source: Source


class DescribedSetting(NamedTuple):
    """One setting as a client is told of it; numbers are those of the wire."""

    name: str
    value: str | None
    source: Source
    is_default: bool
    read_only: bool
    is_sensitive: bool
    type: int
    documentation: str
    synonyms: tuple[Synonym, ...]


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedSetting]:
    """The settings of a topic with these overrides: all, or those among `names` that exist."""
    own = parse_topic_overrides(overrides)
    values = effective_values(broker, own)
    result = []
    for setting in _chosen(TOPIC_SETTINGS, names):
        synonyms: list[Synonym] = []
        if setting.name in own:
            synonyms.append(_synonym(setting, own[setting.name], Source.TOPIC))
        if setting.broker_name is not None:
            synonyms += _broker_synonyms(broker, BROKER_SETTINGS[setting.broker_name])
        result.append(_described(setting, values[setting.name], synonyms, read_only=False))
    return result


def describe_broker(
    broker: BrokerConfig,
    *,
    dynamic_broker: Mapping[str, str] | None,
    dynamic_default: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[DescribedSetting]:
    """The settings of a broker: all, or those among `names` that exist.

    `dynamic_broker` holds what was altered for this broker and `dynamic_default` what was altered
    for all; None for the first describes no certain broker, which shows the second and no more.
    """
    if dynamic_broker is None:
        return _describe_cluster_default(dynamic_default, names)
    broker = broker.with_dynamic(dynamic_broker, dynamic_default)
    result = []
    for setting in _chosen(BROKER_SETTINGS, names):
        synonyms = _broker_synonyms(broker, setting)
        # What other forms say counts only behind what this one says itself.
        while synonyms and synonyms[0].name != setting.name:
            synonyms.pop(0)
        read_only = setting.update is Update.READ_ONLY
        result.append(_described(setting, broker.own_value(setting.name), synonyms, read_only))
    return result


def _describe_cluster_default(
    overrides: Mapping[str, str], names: Collection[str] | None
) -> list[DescribedSetting]:
    result = []
    for setting in _chosen(BROKER_SETTINGS, names):
        if setting.name in overrides:
            value = setting.parse(overrides[setting.name])
            synonyms = [_synonym(setting, value, Source.DYNAMIC_DEFAULT)]
            result.append(_described(setting, value, synonyms, read_only=False))
    return result


def _chosen(settings: Mapping[str, Setting], names: Collection[str] | None) -> list[Setting]:
    return [
        settings[name]
        for name in sorted(settings if names is None else set(names))
        if name in settings and not settings[name].internal
    ]


def _described(
    setting: Setting, value: Value, synonyms: list[Synonym], read_only: bool
) -> DescribedSetting:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return DescribedSetting(
        name=setting.name,
        value=None if setting.is_sensitive else format_value(value),
        source=source,
        is_default=source is Source.DEFAULT,
        read_only=read_only,
        is_sensitive=setting.is_sensitive,
        type=int(setting.kind),
        documentation=setting.help,
        synonyms=tuple(synonyms),
    )


def _synonym(setting: Setting, value: Value, source: Source) -> Synonym:
    return Synonym(setting.name, None if setting.is_sensitive else format_value(value), source)


def _broker_synonyms(broker: BrokerConfig, setting: Setting) -> list[Synonym]:
    forms = [setting, *(BROKER_SETTINGS[name] for name, _ in setting.fallbacks)]
    found = [
        _synonym(form, values[form.name], source)
        for source, values in broker.layers()
        for form in forms
        if form.name in values
    ]
    found += [
        _synonym(form, form.default, Source.DEFAULT) for form in forms if form.default is not None
    ]
    return found
