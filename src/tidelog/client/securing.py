"""What all connections of one client are secured with, made when the first one needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client.metadata import Cluster
from tidelog.host.random import Random, SystemRandom

if TYPE_CHECKING:
    import ssl

    from tidelog.client.login import Credentials, Login


class Securing:
    """A TLS context and credentials; neither `ssl` nor SASL is imported where there is none."""

    def __init__(self, cluster: Cluster, random: Random | None = None) -> None:
        self._settings = cluster.settings.security
        self._clock = cluster.clock
        self._random = random
        self._context: ssl.SSLContext | None = None
        self._credentials: Credentials | None = None

    def context(self) -> ssl.SSLContext | None:
        """For TLS; None where connections are plaintext. ConfigError for a file that is no use."""
        if self._context is None and self._settings.tls is not None:
            from tidelog.security.tls import client_context, tls_settings

            self._context = client_context(tls_settings(self._settings.tls.get))
        return self._context

    def login(self, address: str) -> Login | None:
        """How a new connection authenticates; None where it does not."""
        if self._settings.sasl is None:
            return None
        from tidelog.client.login import Credentials, Login

        if self._credentials is None:
            random = self._random or SystemRandom()
            self._credentials = Credentials(self._settings.sasl, self._clock, random)
        return Login(self._credentials, address)
