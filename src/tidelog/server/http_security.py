"""Who may read the status pages: TLS, and names with passwords by basic authentication (RFC 7617).

A password is compared in constant time, also where the name is unknown. A wrong one is answered
late, ten times a second for each address, and is a line of the audit log.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import ssl
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener, is_loopback
from tidelog.errors import ConfigError
from tidelog.security.failure_delays import FailureDelays
from tidelog.server.audit_log import AUTHENTICATION, AuditEvent, AuditLog
from tidelog.server.listener_security import OPEN, ListenerSecurity
from tidelog.server.secured_listener import SecuredListener

LISTENER_NAME: Final = "metrics"
_HEALTH: Final = frozenset(("/healthz", "/readyz"))
# What a name is compared with that nobody has.
_NOBODY: Final = hashlib.sha256(b"").digest()


class PageSecurity:
    """How the pages of one broker are secured."""

    def __init__(
        self, current: Callable[[], BrokerConfig], audit: AuditLog, delays: FailureDelays
    ) -> None:
        """`current` gives the settings in force."""
        config = current()
        self._current = current
        self._audit = audit
        self._delays = delays
        host, port = config.metrics_listener or ("127.0.0.1", 0)
        self._is_tls = config.get_str("metrics.security.protocol") == "SSL"
        self._tls: ListenerSecurity = OPEN
        if self._is_tls:
            self._tls = SecuredListener(Listener(LISTENER_NAME, "SSL", host, port), config)
        self._users = _users_of(config.get_str("metrics.users"))
        if self._users and not self._is_tls and not is_loopback(host):
            raise ConfigError(
                f"metrics.users: passwords would be sent over {host} in the clear; set"
                " metrics.security.protocol=SSL, or open metrics.listener on 127.0.0.1"
            )
        self._open_pages = _HEALTH if config.get_bool("metrics.health.open") else frozenset()

    def tls(self) -> ssl.SSLContext | None:
        """What a new connection is secured with; certificates that were replaced count."""
        self._tls.refresh(self._current())
        return self._tls.tls()

    def is_open(self, path: str) -> bool:
        return not self._users or path in self._open_pages

    def admits(self, authorization: bytes, host: str) -> bool:
        """Whether the value of an Authorization header names a user, with the right password."""
        name, password = _credentials(authorization)
        wanted = self._users.get(name, _NOBODY)
        given = hashlib.sha256(password).digest()
        is_right = hmac.compare_digest(given, wanted) and name in self._users
        if authorization:
            event = AuditEvent(
                "PageLogin",
                f"User:{name}" if is_right else "",
                host,
                outcome="ok" if is_right else "failed",
                kind=AUTHENTICATION,
                details={"listener": LISTENER_NAME},
            )
            self._audit.record_at_rate(event, ("PageLogin", event.principal, host))
        return is_right

    def delay_of_refusal(self, host: str) -> float:
        """How long a wrong password waits for its answer."""
        return self._delays.next_delay(host)


def _users_of(text: str) -> Mapping[str, bytes]:
    users = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, colon, password = each.partition(":")
        if not name or not colon or not password:
            raise ConfigError("metrics.users: an entry is not NAME:PASSWORD")
        if name in users:
            raise ConfigError(f"metrics.users: {name} is there twice")
        users[name] = hashlib.sha256(password.encode()).digest()
    return users


def _credentials(authorization: bytes) -> tuple[str, bytes]:
    """The name and the password of a header; empty where it is none of basic authentication."""
    scheme, _, encoded = authorization.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return "", b""
    try:
        name, _, password = b64decode(encoded.strip(), validate=True).partition(b":")
        return name.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        return "", b""
