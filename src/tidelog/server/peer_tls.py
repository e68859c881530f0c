"""What this broker's connections to others are secured with.

All brokers use one listener among themselves, so this broker's own settings of it say what the
others want to see: TLS or not, and the certificate that this broker shows, if any. While a cluster
goes from one listener to another, broker by broker, some are still reached on the other one: then
that one's settings count.

Where `ssl.broker.principals` of the listener names the brokers, the two certificates are all the
proof that is needed, and this broker holds the other one to it: a client's certificate does not
make a leader, though the same authority has signed it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.errors import ErrorCode, KafkaError
from tidelog.security.certified import Certified, UnknownPrincipalError
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
        found = _listener(config, listener)
        if not found.is_tls:
            return None
        settings = tls_settings(lambda setting: config.for_listener(found.name, setting))
        stamp, made = stamp_of(settings), self._made.get(found.name)
        if made is None or stamp != made[0]:
            made = self._made[found.name] = (stamp, client_context(settings))
        return made[1]

    def proves(self, listener: str, tls: ssl.SSLObject | None) -> bool:
        """Whether the certificates of a new connection prove both brokers; KafkaError where they
        are to, and the other one is not a broker's."""
        config = self._config()
        found = _listener(config, listener)
        if tls is None or not found.is_tls or found.is_sasl:
            return False
        certified = Certified(partial(config.for_listener, found.name))
        if not certified.knows_brokers:
            return False
        certificate = tls.getpeercert(binary_form=True)
        assert certificate is not None, "a context for peers verifies them"
        try:
            other = certified.principal_of(certificate)
        except (UnknownPrincipalError, ValueError) as error:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(error)) from None
        if not other.is_broker:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"its certificate is of {other.name}, which ssl.broker.principals does not name",
            )
        return True


def _listener(config: BrokerConfig, name: str) -> Listener:
    opened = {each.name: each for each in config.listeners.opened}
    return opened.get(name) or opened[config.listeners.inter_broker]
