"""Checks of single settings that a range or a list of choices cannot express."""

from __future__ import annotations

from tidelog.config.setting import Value, split_list
from tidelog.errors import ConfigError


def check_host_port(value: Value) -> None:
    """Empty, or HOST:PORT."""
    if value:
        parse_host_port(str(value))


def check_roles(value: Value) -> None:
    """A node that is only a controller cannot be started from its file."""
    roles = value if isinstance(value, list) else []
    for role in roles:
        if role not in ("broker", "controller"):
            raise ConfigError(f"{role} is not one of broker, controller")
    if roles and "broker" not in roles:
        raise ConfigError("this file is for a node that is no broker")


def check_connection_overrides(value: Value) -> None:
    """Pairs host:count."""
    parse_connection_overrides(str(value))


def check_not_empty(value: Value) -> None:
    """A list with at least one item, none of them empty."""
    if not isinstance(value, list) or not value or not all(value):
        raise ConfigError("at least one is needed, and none may be empty")


def check_retention(value: Value) -> None:
    """Zero would delete everything at once; negative means no limit."""
    if value == 0:
        raise ConfigError("value must be -1 (no limit) or at least 1")


def parse_connection_overrides(text: str) -> dict[str, int]:
    """Connections allowed per host, from `host:count,host:count`."""
    result = {}
    for pair in split_list(text):
        host, separator, count = pair.rpartition(":")
        if not separator or not host or not (count.isascii() and count.isdigit()):
            raise ConfigError(f"{pair} is not host:count")
        result[host.strip("[]")] = int(count)
    return result


def parse_host_port(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6 address]:port`."""
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{text} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{text} is not host:port (write an IPv6 address in brackets)")
    return host, int(port)


def check_gzip_level(value: Value) -> None:
    """1 to 9, or -1 for the library's own default."""
    if not isinstance(value, int) or not (value == -1 or 1 <= value <= 9):
        raise ConfigError("Value must be between 1 and 9 or equal to -1")


def check_throttled_replicas(value: Value) -> None:
    """`*`, nothing, or pairs partition:broker."""
    if not isinstance(value, list) or value == ["*"]:
        return
    for pair in value:
        parts = pair.split(":")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ConfigError(
                "must be the literal '*' or a list of replicas in the following format:"
                " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
