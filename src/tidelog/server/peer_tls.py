"""What this broker's connections to others are secured with.

All brokers use one listener among themselves, so this broker's own settings of it say what the
others want to see: TLS or not, and the certificate that this broker shows, if any.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tidelog.config.broker_config import BrokerConfig
from tidelog.security.tls import client_context, stamp_of, tls_settings


class PeerTls:
    """Gives the context that goes with the settings, and with the files that they name."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._stamp: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def __call__(self) -> ssl.SSLContext | None:
        """For a new connection; None without TLS, ConfigError where the settings do not work."""
        config = self._config()
        listeners = config.listeners
        name = listeners.inter_broker
        if not next(each for each in listeners.opened if each.name == name).is_tls:
            return None
        settings = tls_settings(lambda setting: config.for_listener(name, setting))
        stamp = stamp_of(settings)
        if self._context is None or stamp != self._stamp:
            self._context, self._stamp = client_context(settings), stamp
        return self._context
