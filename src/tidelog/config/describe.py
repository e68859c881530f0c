"""Settings as DescribeConfigs shows them: value, source, synonyms, type and documentation.

Follows Kafka, which calls a topic's value the default and names no synonym where it comes from
another form of the broker's setting (`retention.ms` from `log.retention.hours`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig, Source
from tidelog.config.overrides import effective_values, parse_group_overrides, parse_topic_overrides
from tidelog.config.setting import Setting, Update, Value, format_value
from tidelog.config.table import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    altered_broker_setting,
    group_setting,
)


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
    read_only: bool
    is_sensitive: bool
    type: int
    documentation: str
    synonyms: tuple[Synonym, ...]


def describe_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[DescribedSetting]:
    """The settings of a topic with these overrides."""
    own = parse_topic_overrides(overrides)
    return _describe_own(broker, Source.TOPIC, own, _visible(TOPIC_SETTINGS))


def describe_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[DescribedSetting]:
    """The settings of a group, which need not exist; those that nothing uses once they are set."""
    own = parse_group_overrides(overrides)
    unused = {name: row for name in own if (row := group_setting(name)) is not None}
    return _describe_own(broker, Source.GROUP, own, _visible({**GROUP_SETTINGS, **unused}))


def _describe_own(
    broker: BrokerConfig, source: Source, own: Mapping[str, Value], chosen: list[Setting]
) -> list[DescribedSetting]:
    """Settings that fall back on the broker's."""
    values = effective_values(broker, {each.name: each for each in chosen}, own)
    result = []
    for setting in chosen:
        synonyms: list[Synonym] = []
        if setting.name in own:
            synonyms.append(_synonym(setting, own[setting.name], source))
        if setting.broker_name is not None:
            synonyms += _broker_synonyms(broker, BROKER_SETTINGS[setting.broker_name])
        result.append(_described(setting, values[setting.name], synonyms, read_only=False))
    return result


def describe_broker(
    broker: BrokerConfig,
    *,
    dynamic_broker: Mapping[str, str] | None,
    dynamic_default: Mapping[str, str],
) -> list[DescribedSetting]:
    """The settings of a broker.

    `dynamic_broker` holds what was altered for this broker and `dynamic_default` what was altered
    for all; None for the first describes no certain broker, which shows the second and no more.
    """
    if dynamic_broker is None:
        broker = broker.with_dynamic({}, dynamic_default)
        shown = {name: altered_broker_setting(name) for name in dynamic_default}
    else:
        broker = broker.with_dynamic(dynamic_broker, dynamic_default)
        shown = {
            name: each
            for name, each in BROKER_SETTINGS.items()
            if each.shown_unset or broker.is_set(name)
        }
        others = (*broker.of_listeners(), *broker.unused())
        shown |= {name: altered_broker_setting(name) for name in others}
    result = []
    for setting in _visible(shown):
        synonyms = _broker_synonyms(broker, setting)
        if dynamic_broker is None:
            synonyms = synonyms[:1]
        read_only = setting.update is Update.READ_ONLY
        result.append(_described(setting, broker.own_value(setting.name), synonyms, read_only))
    return result


def _visible(settings: Mapping[str, Setting]) -> list[Setting]:
    return [settings[name] for name in sorted(settings) if not settings[name].internal]


def _described(
    setting: Setting, value: Value, synonyms: list[Synonym], read_only: bool
) -> DescribedSetting:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return DescribedSetting(
        name=setting.name,
        value=None if setting.is_sensitive else format_value(value),
        source=source,
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
        _synonym(form, form.default, Source.DEFAULT)
        for form in forms
        if form.default is not None and form.shown_unset
    ]
    # What other forms say counts only behind what this one says itself.
    while found and found[0].name != setting.name:
        found.pop(0)
    return found
