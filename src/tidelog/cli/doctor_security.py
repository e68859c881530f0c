"""The doctor's look at a secured listener: its certificate, its mechanisms, and the log-in."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.cli.common import client_settings
from tidelog.cli.faults import explain
from tidelog.cli.finding import Finding, fault, well
from tidelog.client.blocking import Client
from tidelog.client.connection import Call
from tidelog.client.faults import (
    AuthenticationError,
    MechanismError,
    SecurityError,
)
from tidelog.client.metadata import ANY
from tidelog.client.operation import ask, refresh
from tidelog.client.security import ClientSecurity, TlsOptions
from tidelog.errors import ConfigError, TidelogError
from tidelog.host.clock import Clock, SystemClock

if TYPE_CHECKING:
    import ssl

_DAY_S = 86_400
_EXPIRES_SOON_DAYS = 30


def examine(
    address: tuple[str, int], timeout_s: float, security: ClientSecurity
) -> Iterator[Finding]:
    """First the certificate, then the log-in, up to the first thing that is wrong."""
    if security.tls is not None:
        finding = check_certificate(address, timeout_s, security.tls)
        yield finding
        if not finding.ok:
            return
    if security.sasl is not None:
        yield check_login(address, timeout_s, security)


def check_certificate(
    address: tuple[str, int], timeout_s: float, tls: TlsOptions, clock: Clock | None = None
) -> Finding:
    """Does the client trust the broker's certificate, and for how long will it?"""
    from tidelog.client.tls import explain as explain_tls
    from tidelog.security.tls import client_context, tls_settings

    host, port = address
    now_s = (clock or SystemClock()).wall_ms() / 1000
    try:
        context = client_context(tls_settings(tls.get))
    except ConfigError as error:
        return fault(
            "certificate", f"The TLS settings cannot be used: {error}.", "correct the file"
        )
    try:
        with (
            socket.create_connection(address, timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as stream,
        ):
            return _trusted(stream, f"{host}:{port}", now_s)
    except OSError as error:
        said = explain_tls(error, f"{host}:{port}", host)
        sentence, hint = f"{_capital(said)}.", "`openssl s_client -connect` shows more"
        if isinstance(said, SecurityError):
            hint = explain(said).hint
        if "clock" in hint:
            sentence += f" This machine's clock shows {_moment(now_s)}."
        return fault("certificate", sentence, hint)


def _trusted(stream: ssl.SSLSocket, address: str, now_s: float) -> Finding:
    import ssl

    shown: dict[str, Any] = dict(stream.getpeercert() or {})
    ends = ssl.cert_time_to_seconds(shown["notAfter"])
    names = ", ".join(name for _, name in shown.get("subjectAltName", ())) or "no name"
    days = int((ends - now_s) // _DAY_S)
    sentence = (
        f"{address} has a certificate for {names} that is trusted here ({stream.version()});"
        f" it is valid until {_moment(ends)}"
    )
    if days < _EXPIRES_SOON_DAYS:
        sentence += f", {days} days from now: renew it soon"
    return well("certificate", f"{sentence}.")


def check_login(address: tuple[str, int], timeout_s: float, security: ClientSecurity) -> Finding:
    """Is the mechanism offered, and is the password right?"""
    assert security.sasl is not None
    mechanism = security.sasl.mechanism
    who = security.sasl.username or "the token's user"
    try:
        with _client(address, timeout_s) as client:
            client.run(refresh(client.cluster, ()))
    except MechanismError as error:
        return fault("mechanism", f"{_capital(error)}.", explain(error).hint)
    except AuthenticationError as error:
        return fault("password", f"{_capital(error)}.", explain(error).hint)
    except TidelogError as error:
        return fault("login", f"{_capital(error)}.", explain(error).hint)
    return well("login", f"{who} logs in by {mechanism}.")


def wanted_mechanisms(address: tuple[str, int], timeout_s: float) -> list[str]:
    """The mechanisms of a listener that closes connections without SASL; none where it does not."""
    from tidelog.protocol.messages.sasl import SaslHandshakeRequest

    try:
        with _client(address, timeout_s) as client:
            call = Call(ANY, "SaslHandshake", SaslHandshakeRequest("?"), min_version=1)
            offered: list[str] = client.run(ask(call)).mechanisms
            return sorted(offered)
    except TidelogError:
        return []


def _client(address: tuple[str, int], timeout_s: float) -> Client:
    host, port = address
    servers = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Client(servers, client_settings(timeout_s))


def _capital(error: TidelogError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
