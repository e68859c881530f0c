"""Reading options: names without regard to case, values checked, errors that say what to write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from tidelog.client.security import ClientSecurity, is_security_name, read_security
from tidelog.client.settings import ClientSettings
from tidelog.durations import parse_duration_ms
from tidelog.errors import ConfigError
from tidelog.spark.option_row import OptionRow

_PREFIX: Final = "kafka."
_ENVIRONMENT: Final = "env:"
_SERVERS_VARIABLE: Final = "TIDELOG_BOOTSTRAP_SERVERS"


class OptionError(ConfigError):
    """An option that is unknown, refused, missing or malformed."""


class Options:
    """The options of one query, checked against the table of those that there are."""

    def __init__(self, given: Mapping[str, str], rows: Iterable[OptionRow]) -> None:
        self._rows = {row.name.lower(): row for row in rows}
        self._given = {name.lower(): str(value) for name, value in given.items()}
        for name in given:
            self._check(name)

    def _check(self, name: str) -> None:
        row = self._rows.get(name.lower())
        if row is not None and row.status != "refused":
            return
        family = next(
            (
                each
                for each in self._rows.values()
                if each.name.endswith("*") and name.lower().startswith(each.name[:-1].lower())
            ),
            None,
        )
        refused = row or family
        if refused is not None and refused.status != "refused":
            return
        if refused is not None:
            raise OptionError(f"option '{name}' is refused: {refused.help}")
        known = [each.name for each in self._rows.values() if each.status != "refused"]
        lowered = {each.lower(): each for each in known}
        near = get_close_matches(name.lower(), lowered, n=1)
        hint = f"; did you mean '{lowered[near[0]]}'?" if near else ""
        raise OptionError(f"option '{name}' is unknown{hint} (docs/spark-options.md lists them)")

    def bootstrap_servers(self) -> str:
        """The brokers to ask first."""
        servers = self.text("kafka.bootstrap.servers") or os.environ.get(_SERVERS_VARIABLE)
        if not servers:
            raise OptionError(
                f"option 'kafka.bootstrap.servers' is missing; give HOST:PORT, or set"
                f" {_SERVERS_VARIABLE} in the environment of the driver"
            )
        return servers

    def security(self) -> ClientSecurity:
        """How connections are secured; a value `env:NAME` is in the environment."""
        names = {name: name.removeprefix(_PREFIX) for name in self._given}
        given = {
            bare: _resolved(name, self._given[name])
            for name, bare in names.items()
            if bare != name and is_security_name(bare)
        }
        try:
            return read_security(given)
        except ConfigError as error:
            raise OptionError(f"options 'kafka.*' of the connection: {error}") from None

    def client(self, timeout: str, metadata_max_age_ms: int) -> ClientSettings:
        """The settings of a client; the option `timeout` says how long an operation may take."""
        defaults = ClientSettings()
        return ClientSettings(
            client_id=self.text("kafka.client.id", "tidelog-spark"),
            request_timeout_ms=self.number("kafka.request.timeout.ms", 30_000, least=1),
            operation_timeout_ms=self.number(timeout, 60_000, least=1),
            connect_timeout_ms=self.number(
                "kafka.socket.connection.setup.timeout.ms", defaults.connect_timeout_ms, least=1
            ),
            retry_backoff_ms=self.number("kafka.retry.backoff.ms", defaults.retry_backoff_ms),
            retry_backoff_max_ms=self.number(
                "kafka.retry.backoff.max.ms", defaults.retry_backoff_max_ms
            ),
            metadata_max_age_ms=metadata_max_age_ms,
            security=self.security(),
        )

    def text(self, name: str, default: str = "") -> str:
        """The option as it is, without blanks around it."""
        return self._given.get(name.lower(), default).strip()

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def integer(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        """A whole number of at least `least`."""
        if not self.has(name):
            return default
        text = self.text(name)
        if not re.fullmatch(r"-?\d+", text) or int(text) < least:
            raise OptionError(f"option '{name}' is '{text}'; give a whole number from {least} on")
        return int(text)

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        """As `integer`, where there is a default."""
        found = self.integer(name, default, least=least)
        return default if found is None else found

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        if not self.has(name):
            return default
        text = self.text(name).lower()
        if text not in ("true", "false"):
            raise OptionError(f"option '{name}' is '{text}'; give true or false")
        return text == "true"

    def choice(self, name: str, default: str, choices: Iterable[str]) -> str:
        """One of some words, in any case."""
        text = self.text(name, default).lower()
        if text not in choices:
            raise OptionError(f"option '{name}' is '{text}'; give {' or '.join(choices)}")
        return text

    def duration_ms(self, name: str, default: int) -> int:
        """`15m`, `200ms`, `30s`, or milliseconds."""
        if not self.has(name):
            return default
        text = self.text(name).lower()
        found = int(text) if text.isdecimal() else parse_duration_ms(text)
        if found is None:
            raise OptionError(f"option '{name}' is '{text}'; give a duration like 15m or 200ms")
        return found

    def byte_count(self, name: str) -> int | None:
        """`256m`, `1g`, or bytes."""
        if not self.has(name):
            return None
        text = self.text(name).lower()
        match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text)
        if match is None or int(match[1]) < 1:
            raise OptionError(f"option '{name}' is '{text}'; give bytes, like 64m or 1g")
        return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def _resolved(name: str, value: str) -> str:
    if not value.startswith(_ENVIRONMENT):
        return value
    variable = value.removeprefix(_ENVIRONMENT)
    found = os.environ.get(variable)
    if found is None:
        raise OptionError(
            f"option '{name}' is {value}, but the environment has no {variable}; export it before"
            " the driver starts"
        )
    return found
