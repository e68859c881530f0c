"""Listeners: the addresses a broker opens and the addresses it tells clients.

Listeners named in `controller.listener.names` belong to Kafka's controllers and are left out. A
listener without a host is opened on 127.0.0.1 and a warning says so: Kafka would open it on every
interface, which must be asked for here. A PLAINTEXT listener beyond this machine is refused unless
`allow.plaintext.listeners` is set; a host name counts as beyond, as it may stand for any address.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from tidelog.config.checks import parse_host_port
from tidelog.config.setting import split_list
from tidelog.errors import ConfigError

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOOPBACK: Final = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Listener(NamedTuple):
    """One address to open: its name, the security protocol the name stands for, host and port."""

    name: str
    protocol: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines reach it and nobody is asked for a name."""
        return not (self.is_tls or self.is_sasl or is_loopback(self.host))


class InterBroker(NamedTuple):
    """Which listener brokers use among themselves: by its name, or by its protocol."""

    name: str = ""
    protocol: str = "PLAINTEXT"


class Listeners(NamedTuple):
    """What a broker opens, which of it is for other brokers, and what clients are told.

    `advertised` holds only what was configured: a listener that is missing there is advertised
    at the address that the client connected to.
    """

    opened: tuple[Listener, ...]
    inter_broker: str
    advertised: dict[str, tuple[str, int]]
    warnings: tuple[str, ...]


def resolve_listeners(
    listeners: Sequence[str],
    advertised: Sequence[str],
    protocol_map: str,
    inter_broker: InterBroker,
    controller_names: Sequence[str],
) -> Listeners:
    """The listeners that the settings describe; ConfigError says which of them contradict."""
    protocols = _protocols(protocol_map)
    controllers = {name.upper() for name in controller_names}
    warnings: list[str] = []
    opened = []
    for text in listeners:
        name, host, port = _parse(text, "listeners")
        if name in controllers:
            warnings.append(f"listener {name} is for Kafka's controllers and is not opened")
            continue
        if not host:
            host = LOOPBACK
            warnings.append(
                f"listener {name} names no host and is opened on {LOOPBACK} only; "
                f"write {name}://0.0.0.0:{port} to open it on every interface"
            )
        listener = Listener(name, _protocol(name, protocols), host, port)
        if listener.is_open_to_others:
            warnings.append(
                f"listener {name} is open to others at {host}, and everybody there may do"
                " everything and read along; SASL_SSL asks who they are"
            )
        opened.append(listener)
    _check_distinct(opened)
    names = [listener.name for listener in opened]
    return Listeners(
        opened=tuple(opened),
        inter_broker=_inter_broker(inter_broker, opened),
        advertised=_advertised(advertised, names, controllers),
        warnings=tuple(warnings),
    )


def refuse_open_listeners(listeners: Sequence[Listener]) -> None:
    """ConfigError for the first listener that is open to others."""
    for listener in listeners:
        if listener.is_open_to_others:
            raise ConfigError(
                f"listeners: {listener.name}://{listener.host}:{listener.port} speaks PLAINTEXT"
                " beyond this machine, where everybody may do everything and read along; use"
                " SASL_SSL, or 127.0.0.1 as its host, or set allow.plaintext.listeners=true if"
                " you trust that network"
            )


def _parse(text: str, setting: str) -> tuple[str, str, int]:
    name, separator, address = text.partition("://")
    if not separator or not name:
        raise ConfigError(f"{setting}: {text} is not NAME://HOST:PORT")
    try:
        host, port = parse_host_port(address)
    except ConfigError:
        raise ConfigError(f"{setting}: {text} is not NAME://HOST:PORT") from None
    return name.upper(), host, port


def _protocols(text: str) -> dict[str, str]:
    result = {}
    for pair in split_list(text):
        name, separator, protocol = pair.partition(":")
        protocol = protocol.strip().upper()
        if not separator or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {pair} is not NAME:PROTOCOL with one of "
                + ", ".join(SECURITY_PROTOCOLS)
            )
        result[name.strip().upper()] = protocol
    return result


def _protocol(name: str, protocols: dict[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"listeners: no security protocol is known for {name}; "
            f"add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return protocol


def _check_distinct(listeners: Sequence[Listener]) -> None:
    if not listeners:
        raise ConfigError("listeners: none is left to open for clients")
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ConfigError("listeners: each listener must have a different name")
    addresses = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(addresses)) != len(addresses):
        raise ConfigError("listeners: each listener must have a different address")


def _advertised(
    texts: Sequence[str], names: Sequence[str], controllers: set[str]
) -> dict[str, tuple[str, int]]:
    result: dict[str, tuple[str, int]] = {}
    for text in texts:
        name, host, port = _parse(text, "advertised.listeners")
        if name in controllers:
            continue
        if name not in names:
            raise ConfigError(f"advertised.listeners: {name} is not among the listeners")
        if name in result:
            raise ConfigError(f"advertised.listeners: {name} is given twice")
        # Compared with, not bound to.
        if host in ("0.0.0.0", "::"):  # nosec B104
            raise ConfigError(
                f"advertised.listeners: {host} is no address that a client can connect to"
            )
        if host:
            result[name] = (host, port)
    return result


def _inter_broker(wanted: InterBroker, opened: Sequence[Listener]) -> str:
    names = [listener.name for listener in opened]
    if wanted.name:
        if wanted.name.upper() not in names:
            raise ConfigError(
                f"inter.broker.listener.name: {wanted.name} is not among the listeners"
            )
        return wanted.name.upper()
    if wanted.protocol in names:
        return wanted.protocol
    fitting = [each.name for each in opened if each.protocol == wanted.protocol]
    return (fitting or names)[0]
