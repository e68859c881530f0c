"""What this broker's connections to others are secured with.

All brokers use one listener among themselves, so this broker's own settings of it say what the
others want to see: TLS or not, and the certificate that this broker shows, if any. While a cluster
goes from one listener to another, broker by broker, some are still reached on the other one: then
that one's settings count.
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
        # By listener: what the context was made of, and the context.
        self._made: dict[str, tuple[tuple[object, ...], ssl.SSLContext]] = {}

    def __call__(self, listener: str) -> ssl.SSLContext | None:
        """For a new connection to another broker's listener of that name; None without TLS.

        ConfigError where the settings do not work.
        """
        config = self._config()
        opened = {each.name: each for each in config.listeners.opened}
        found = opened.get(listener) or opened[config.listeners.inter_broker]
        if not found.is_tls:
            return None
        settings = tls_settings(lambda setting: config.for_listener(found.name, setting))
        stamp, made = stamp_of(settings), self._made.get(found.name)
        if made is None or stamp != made[0]:
            made = self._made[found.name] = (stamp, client_context(settings))
        return made[1]
