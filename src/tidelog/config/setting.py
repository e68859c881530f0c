"""What a setting is: its type, its range, and how its text becomes a value and back.

Values are text everywhere outside (files, environment, flags, the wire) and are parsed once, with
the rules of Kafka's own types: integers of 16, 32 and 64 bits in ASCII digits, booleans as `true`
or `false`, lists parted by commas. A value that does not fit raises `ConfigError` in Kafka's words,
which say what would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final, TypeAlias

from tidelog.errors import ConfigError

Value: TypeAlias = bool | int | float | str | list[str] | None

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1


class Kind(IntEnum):
    """The type of a setting; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(IntEnum):
    """When a broker's setting may change: at a start, on one running broker, or on all of them."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


@dataclass(slots=True, eq=False)
class Setting:
    """One row of the table of settings.

    `default` None means that nothing is set; `fallbacks` then say which other settings of the
    broker are asked, in order, each with the factor that turns its unit into this one's.
    `broker_name` names the broker's setting that a topic or group without its own value takes.
    `shown_unset` False keeps a broker's setting from clients until it is set, as Kafka does it.
    `kafka_default` is Kafka's default as text where ours differs, and `help` says why.
    """

    name: str
    default: Value
    help: str
    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Value], None] | None = None
    update: Update = Update.READ_ONLY
    fallbacks: tuple[tuple[str, int], ...] = ()
    broker_name: str | None = None
    kafka: bool = True
    kafka_default: str | None = None
    unused: bool = False
    internal: bool = False
    shown_unset: bool = True

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is kept from clients, as is that of a setting that nobody knows."""
        return self.kind in (Kind.PASSWORD, Kind.UNKNOWN)

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; ConfigError when it is not one of this setting."""
        try:
            value = _parse(self.kind, text)
        except ConfigError as error:
            raise self._invalid(text, str(error)) from None
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            self._check_range(value)
        if self.choices:
            self._check_choices(value)
        if self.check is not None:
            try:
                self.check(value)
            except ConfigError as error:
                shown = f"[{', '.join(value)}]" if isinstance(value, list) else value
                raise self._invalid(shown, str(error)) from None
        return value

    def _invalid(self, shown: object, reason: str) -> ConfigError:
        text = "[hidden]" if self.is_sensitive else shown
        return ConfigError(f"Invalid value {text} for configuration {self.name}: {reason}")

    def _check_range(self, value: float) -> None:
        if self.minimum is not None and value < self.minimum:
            raise self._invalid(value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise self._invalid(value, f"Value must be no more than {self.maximum}")

    def _check_choices(self, value: Value) -> None:
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(value, list) and not item:
                raise ConfigError(f"Configuration '{self.name}' values must not be empty.")
            if item not in self.choices:
                raise self._invalid(item, f"String must be one of: {', '.join(self.choices)}")

    def valid_values(self) -> str:
        """The range in words, for the documentation."""
        if self.choices:
            return ", ".join(self.choices)
        low = None if self.minimum is None else format_value(self.minimum)
        high = None if self.maximum is None else format_value(self.maximum)
        if low is not None and high is not None:
            return f"{low} to {high}"
        if low is not None:
            return f"at least {low}"
        return "" if high is None else f"at most {high}"


# A row of the table begins with one of these.
boolean: Final = partial(Setting, kind=Kind.BOOLEAN)
text: Final = partial(Setting, kind=Kind.STRING)
integer: Final = partial(Setting, kind=Kind.INT)
short: Final = partial(Setting, kind=Kind.SHORT)
long: Final = partial(Setting, kind=Kind.LONG)
double: Final = partial(Setting, kind=Kind.DOUBLE)
items: Final = partial(Setting, kind=Kind.LIST)
password: Final = partial(Setting, kind=Kind.PASSWORD)


def format_value(value: Value) -> str | None:
    """The text of a value, as DescribeConfigs shows it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def split_list(text: str) -> list[str]:
    """The items of a list parted by commas; an empty text is an empty list."""
    if not text.strip():
        return []
    return [item.strip() for item in text.split(",")]


_INTEGER_BITS: Final = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


def _parse(kind: Kind, text: str) -> Value:
    if kind in _INTEGER_BITS:
        return _parse_integer(kind, text.strip())
    if kind is Kind.BOOLEAN:
        lowered = text.strip().lower()
        if lowered not in ("true", "false"):
            raise ConfigError("Expected value to be either true or false")
        return lowered == "true"
    if kind is Kind.LIST:
        return split_list(text)
    if kind is Kind.DOUBLE:
        return _parse_double(text.strip())
    return text if kind in (Kind.PASSWORD, Kind.UNKNOWN) else text.strip()


def _parse_integer(kind: Kind, text: str) -> int:
    # int() alone takes underscores, inner spaces and digits of other scripts; Kafka's parser
    # takes none of them.
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
        raise ConfigError(f"Not a number of type {kind.name}")
    number = int(text)
    limit = 1 << (_INTEGER_BITS[kind] - 1)
    if not -limit <= number < limit:
        raise ConfigError(f"Not a number of type {kind.name}")
    return number


def _parse_double(text: str) -> float:
    if "_" in text or not text.isascii():
        raise ConfigError("Not a number of type DOUBLE")
    try:
        number = float(text)
    except ValueError:
        raise ConfigError("Not a number of type DOUBLE") from None
    if number != number:
        raise ConfigError("Not a number of type DOUBLE")
    return number
