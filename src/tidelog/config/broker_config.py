"""The effective settings of one broker: what its files say, and what was altered at run time.

A value is looked for among the settings altered for this broker, those altered for all brokers,
those of its files, environment and flags, and at last the default. Where a setting has other forms
(`log.retention.ms`, `.minutes`, `.hours`) each of these is asked for all forms before the next.
Values are parsed when the object is built; reading one is a look-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from tidelog.config.broker_settings import DEFAULT_REQUEST_POOL_BYTES
from tidelog.config.checks import parse_connection_overrides, parse_host_port
from tidelog.config.group_settings import check_consumer_groups
from tidelog.config.listeners import (
    InterBroker,
    Listeners,
    refuse_open_listeners,
    resolve_listeners,
)
from tidelog.config.security_settings import LISTENER_PREFIX
from tidelog.config.setting import Setting, Value
from tidelog.config.store_settings import (
    ZOOKEEPER,
    ZOOKEEPER_PREFIX,
    StoreAddress,
    check_reachable,
    keeps_secrets,
    parse_store,
)
from tidelog.config.table import BROKER_SETTINGS, altered_broker_setting, broker_setting, hint
from tidelog.errors import ConfigError


class Source(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class BrokerConfig:
    """The settings of a broker, parsed and checked against each other.

    >>> BrokerConfig({"log.segment.bytes": "1048576"}).get_int("log.segment.bytes")
    1048576
    """

    __slots__ = ("_layers", "_sources", "_static", "_values", "listeners", "warnings")

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        *,
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self._static = dict(static or {})
        self._layers: tuple[tuple[Source, dict[str, Value]], ...] = (
            (Source.DYNAMIC_BROKER, _parse_altered(dynamic or {})),
            (Source.DYNAMIC_DEFAULT, _parse_altered(dynamic_default or {})),
            (Source.STATIC_BROKER, _parse_static(self._static)),
        )
        self._values: dict[str, Value] = {}
        self._sources: dict[str, Source] = {}
        for name, setting in BROKER_SETTINGS.items():
            self._values[name], self._sources[name] = self._resolve(setting)
        self._settle_node_id()
        self._check()
        self.listeners: Listeners = self._resolve_listeners()
        check_reachable(self.store, self.listeners)
        self.warnings = (*warnings, *self.listeners.warnings, *self._idle_settings())

    def with_dynamic(
        self, broker: Mapping[str, str], cluster_default: Mapping[str, str]
    ) -> BrokerConfig:
        """The same files with settings altered for this broker and for all brokers."""
        if not any((broker, cluster_default, *(altered for _, altered in self._layers[:2]))):
            # As at every start of a broker whose settings nobody has altered.
            return self
        return BrokerConfig(self._static, dynamic=broker, dynamic_default=cluster_default)

    def get(self, name: str) -> Value:
        """The effective value; KeyError for a name that is not in the table."""
        return self._values[name]

    def get_int(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), f"{name} is no integer: {value!r}"
        return value

    def get_bool(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), f"{name} is no boolean: {value!r}"
        return value

    def get_str(self, name: str) -> str:
        """The text of a string setting; empty when it is not set."""
        value = self._values[name]
        assert value is None or isinstance(value, str), f"{name} is no string: {value!r}"
        return value or ""

    def get_list(self, name: str) -> list[str]:
        """The items of a list setting; empty when it is not set."""
        value = self._values[name]
        assert value is None or isinstance(value, list), f"{name} is no list: {value!r}"
        return list(value or ())

    def own_value(self, name: str) -> Value:
        """What was set under this very name, or its default, without asking other forms."""
        if name in ("node.id", "broker.id"):
            return self._values[name]
        for _, values in self._layers:
            if name in values:
                return values[name]
        return altered_broker_setting(name).default

    def source(self, name: str) -> Source:
        """Where the effective value comes from."""
        return self._sources[name]

    def unused(self) -> list[str]:
        """The names that were altered although nothing here uses them."""
        altered = (name for _, values in self._layers for name in values)
        return sorted({name for name in altered if broker_setting(name) is None})

    def of_listeners(self) -> list[str]:
        """The settings, by their whole names, that single listeners have for themselves."""
        names = {name for _, values in self._layers for name in values}
        return sorted(name for name in names if name.startswith(LISTENER_PREFIX))

    def for_listener(self, listener: str, name: str, mechanism: str = "") -> Value:
        """The value that counts on one listener: its own, or else that of all."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        owned = [f"{prefix}{mechanism.lower()}.{name}", prefix + name]
        for own in owned if mechanism else owned[1:]:
            for _, values in self._layers:
                if own in values:
                    return values[own]
        return self._values[name]

    def is_own_of_listener(self, listener: str, name: str) -> bool:
        """Whether a listener has a setting for itself."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return any(own in values for _, values in self._layers)

    def is_set(self, name: str) -> bool:
        """Whether the setting, or another form of it, was given by anything but its default."""
        return self._sources[name] is not Source.DEFAULT

    def layers(self) -> tuple[tuple[Source, dict[str, Value]], ...]:
        """What was set, by source, the strongest first."""
        return self._layers

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    @property
    def connections_per_host(self) -> dict[str, int]:
        """The limits of `max.connections.per.ip.overrides`."""
        return parse_connection_overrides(self.get_str("max.connections.per.ip.overrides"))

    @property
    def data_dirs(self) -> list[str]:
        """The directories that hold the data, as they are set."""
        return self.get_list("log.dirs") or [self.get_str("log.dir")]

    @property
    def metrics_listener(self) -> tuple[str, int] | None:
        """Host and port of the metrics, or None when they are off."""
        text = self.get_str("metrics.listener")
        if not text:
            return None
        host, port = parse_host_port(text)
        return host or "127.0.0.1", port

    @property
    def store(self) -> StoreAddress | None:
        """The store that this broker shares with others, None where it has its own."""
        return parse_store(self.get_str("store"))

    @property
    def store_keeps_secrets(self) -> bool:
        """Whether none but the brokers can read the store: ZooKeeper needs a user for that."""
        return keeps_secrets(self.store, self.get_str("zookeeper.digest"))

    def _idle_settings(self) -> list[str]:
        """Warnings about settings of ZooKeeper where it is not the store."""
        if self.store is not None and self.store.kind == ZOOKEEPER:
            return []
        return [
            f"{name} is known to Kafka and not used by this broker, whose store is not ZooKeeper"
            for name in self._static
            if name.startswith(ZOOKEEPER_PREFIX)
        ]

    def _resolve(self, setting: Setting) -> tuple[Value, Source]:
        for source, values in self._layers:
            if setting.name in values:
                return values[setting.name], source
            for name, factor in setting.fallbacks:
                if name in values:
                    return _scaled(values[name], factor), source
        if setting.default is not None:
            return setting.default, Source.DEFAULT
        for name, factor in setting.fallbacks:
            default = BROKER_SETTINGS[name].default
            if default is not None:
                return _scaled(default, factor), Source.DEFAULT
        return None, Source.DEFAULT

    def _settle_node_id(self) -> None:
        """One id under its two names, as clients look for either."""
        values, sources = self._values, self._sources
        if values["broker.id"] == -1:
            values["broker.id"] = values["node.id"]
        elif not self.is_set("node.id"):
            values["node.id"], sources["node.id"] = values["broker.id"], sources["broker.id"]
        elif values["node.id"] != values["broker.id"]:
            raise ConfigError(
                f"node.id is {values['node.id']} and broker.id is {values['broker.id']}: "
                "they must be the same"
            )

    def _check(self) -> None:
        values = self._values
        if values["queued.max.request.bytes"] == -1:
            values["queued.max.request.bytes"] = DEFAULT_REQUEST_POOL_BYTES
        pool = self.get_int("queued.max.request.bytes")
        largest = self.get_int("socket.request.max.bytes")
        if pool < largest:
            raise ConfigError(
                f"queued.max.request.bytes ({pool}) must not be smaller than "
                f"socket.request.max.bytes ({largest}): the largest request would never be read"
            )
        check_consumer_groups(self.get_int)

    def _resolve_listeners(self) -> Listeners:
        resolved = resolve_listeners(
            self.get_list("listeners"),
            self.get_list("advertised.listeners"),
            self.get_str("listener.security.protocol.map"),
            InterBroker(
                self.get_str("inter.broker.listener.name"),
                self.get_str("security.inter.broker.protocol"),
            ),
            self.get_list("controller.listener.names"),
        )
        if not self.get_bool("allow.plaintext.listeners"):
            refuse_open_listeners(resolved.opened)
        return resolved


def parse_settings(texts: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, Value]:
    """The values of `texts`; ConfigError for the first unknown name or bad value."""
    result = {}
    for name, text in texts.items():
        setting = settings.get(name)
        if setting is None:
            raise ConfigError(f"unknown setting {name}{hint(name, settings)}")
        result[name] = setting.parse(text)
    return result


def _parse_static(texts: Mapping[str, str]) -> dict[str, Value]:
    own = {name: text for name, text in texts.items() if name.startswith(LISTENER_PREFIX)}
    others = {name: text for name, text in texts.items() if name not in own}
    return parse_settings(others, BROKER_SETTINGS) | _parse_altered(own)


def _parse_altered(texts: Mapping[str, str]) -> dict[str, Value]:
    return {name: altered_broker_setting(name).parse(text) for name, text in texts.items()}


def _scaled(value: Value, factor: int) -> Value:
    if factor == 1 or not isinstance(value, int):
        return value
    return value * factor if value >= 0 else -1
