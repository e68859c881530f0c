"""How one listener knows who connects to it; here, one that is open to all.

`secured_listener` has what TLS and SASL need. It is imported with the first listener that asks for
them.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.errors import ConfigError
from tidelog.host.clock import Clock
from tidelog.host.offload import Offload
from tidelog.security.authorizer import ANONYMOUS, Principal

if TYPE_CHECKING:
    from tidelog.server.tokens import Tokens


class ListenerSecurity:
    """The security of one listener, as the settings in force say; here there is none."""

    def __init__(
        self, listener: Listener | None = None, config: BrokerConfig | None = None
    ) -> None:
        self._listener = listener
        self._config = config
        self.is_sasl = listener is not None and listener.is_sasl
        # The mechanisms that clients are offered.
        self.mechanisms: tuple[str, ...] = ()
        # The passwords of PLAIN by user.
        self.plain_users: Mapping[str, str] = {}
        # Where OAUTHBEARER is offered.
        self.tokens: Tokens | None = None

    def session_ms(self, mechanism: str) -> int:
        """How long a login by this mechanism lasts; 0 where it does not end."""
        if self._listener is None or self._config is None:
            return 0
        name = "connections.max.reauth.ms"
        value = self._config.for_listener(self._listener.name, name, mechanism)
        assert isinstance(value, int)
        return value

    def refresh(self, config: BrokerConfig) -> None:
        """Take what has changed since: the settings in force, or the files that they name."""
        self._config = config

    def tls(self) -> ssl.SSLContext | None:
        """What a new connection is secured with."""
        return None

    def principal_of(self, tls: ssl.SSLObject | None) -> Principal:
        """Who a certificate says that this is; anonymous without one, and where SASL decides."""
        return ANONYMOUS

    def close(self) -> None:
        """Nothing is refreshed any more."""


OPEN: Final = ListenerSecurity()


def security_of(
    listener: Listener, config: BrokerConfig, clock: Clock, offload: Offload
) -> ListenerSecurity:
    """What the settings ask for; ConfigError where it does not work."""
    if listener.is_tls or listener.is_sasl:
        from tidelog.server.secured_listener import SecuredListener
        from tidelog.server.tokens import Surroundings

        return SecuredListener(listener, config, Surroundings(clock, offload))
    try:
        refuse_broker_principals(listener, config)
    except ConfigError as error:
        raise ConfigError(f"listener {listener.name}: {error}") from error
    return ListenerSecurity(listener, config)


def refuse_broker_principals(listener: Listener, config: BrokerConfig) -> None:
    """ConfigError where they are set for a listener on which no certificate says who this is."""
    if config.is_own_of_listener(listener.name, "ssl.broker.principals"):
        raise ConfigError(
            f"ssl.broker.principals is for SSL listeners, and this one is {listener.protocol}"
        )
