"""Reading a broker's settings: files, environment and flags, each stronger than the one before.

A name that Kafka knows and nothing here uses is warned about, so that Kafka's own
`server.properties` starts a broker. Any other unknown name and every bad value is an error. All
problems are found before one error reports them, each with its place and the nearest valid name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.properties_file import Entry, read_properties
from tidelog.config.table import (
    BROKER_SETTINGS,
    SYNONYM_GROUPS,
    TOPIC_SETTINGS,
    broker_setting,
    group_setting,
    hint,
    is_kafka_name,
    kafka_names,
    nearest,
)
from tidelog.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "TIDELOG_"
# Variables with our prefix that other parts read.
NOT_SETTINGS: Final = frozenset(
    {
        "TIDELOG_BOOTSTRAP_PASSWORD",
        "TIDELOG_BOOTSTRAP_SERVERS",
        "TIDELOG_CLIENT_CONFIG",
        "TIDELOG_LONG",
        "TIDELOG_REQUIRE_KERNELS",
    }
)
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


def load(
    *,
    files: Sequence[str | PathLike[str]] = (),
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """The settings of a broker from its sources, the later ones stronger.

    `files` are YAML when named .yaml or .yml and properties otherwise; `overrides` are the flags,
    `defaults` a command's own, weaker than all else.
    """
    problems: list[str] = []
    warnings: list[str] = []
    layers = [[Entry(name, text, "default") for name, text in (defaults or {}).items()]]
    layers += [_read_file(fspath(file), problems) for file in files]
    layers.append(_read_environment(environment or {}, warnings, problems))
    layers.append([Entry(name, text, f"--set {name}") for name, text in (overrides or {}).items()])
    merged: dict[str, Entry] = {}
    for layer in layers:
        _merge(merged, _accept(layer, warnings, problems))
    if problems:
        raise ConfigError("\n".join(problems))
    texts = {name: entry.text for name, entry in merged.items()}
    return BrokerConfig(texts, warnings=warnings)


def environment_name(name: str) -> str:
    """The environment variable that sets a setting."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def _read_file(path: str, problems: list[str]) -> list[Entry]:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
        return []
    if len(data) > FILE_BYTES_MAX:
        problems.append(f"{path}: larger than {FILE_BYTES_MAX} bytes, this is no settings file")
        return []
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        if path.lower().endswith((".yaml", ".yml")):
            from tidelog.config.yaml_file import read_yaml

            return read_yaml(text, path)
        return read_properties(text, path)
    except ConfigError as error:
        problems.append(str(error))
        return []


def _read_environment(
    environment: Mapping[str, str], warnings: list[str], problems: list[str]
) -> list[Entry]:
    found = [
        name
        for name in environment
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS
    ]
    if not found:
        return []
    known = {environment_name(name): name for name in BROKER_SETTINGS}
    entries = []
    for variable in sorted(found):
        place = f"environment variable {variable}"
        if variable in known:
            entries.append(Entry(known[variable], environment[variable], place))
        elif variable in (environment_name(name) for name in kafka_names()):
            warnings.append(f"{place} sets what Kafka knows and this broker does not use")
        elif near := nearest(variable, known):
            problems.append(f"{place} sets no setting; did you mean {near}?")
        else:
            # Other programs make such variables too: Kubernetes one for each service.
            warnings.append(f"{place} sets no setting and is left alone")
    return entries


def _accept(entries: Sequence[Entry], warnings: list[str], problems: list[str]) -> dict[str, Entry]:
    """The entries of one source that are settings and have values that fit."""
    accepted: dict[str, Entry] = {}
    warned: set[str] = set()
    for entry in entries:
        setting = broker_setting(entry.name)
        if setting is None and not is_kafka_name(entry.name):
            problems.append(f"{entry.place}: {_unknown(entry.name)}")
            continue
        if (setting is None or setting.unused) and entry.name not in warned:
            warned.add(entry.name)
            warnings.append(
                f"{entry.place}: {entry.name} is known to Kafka and not used by this broker"
            )
        if setting is None:
            continue
        try:
            setting.parse(entry.text)
        except ConfigError as error:
            problems.append(f"{entry.place}: {error}")
            continue
        if entry.name in accepted:
            first = accepted[entry.name].place
            warnings.append(f"{entry.place}: {entry.name} was set before at {first}; the last wins")
        accepted[entry.name] = entry
    return accepted


def _unknown(name: str) -> str:
    if group_setting(name) is not None:
        return f"{name} is a setting of groups, not of brokers"
    topic = TOPIC_SETTINGS.get(name)
    if topic is not None and topic.broker_name is not None:
        return f"{name} is a setting of topics; the broker's default is {topic.broker_name}"
    return f"unknown setting {name}{hint(name, (*BROKER_SETTINGS, *kafka_names()))}"


def _merge(merged: dict[str, Entry], stronger: Mapping[str, Entry]) -> None:
    for group in SYNONYM_GROUPS:
        if any(name in stronger for name in group):
            for name in group:
                merged.pop(name, None)
    merged.update(stronger)
