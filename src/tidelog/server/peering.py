"""Connections to other brokers, in this broker's name.

What they are made of is imported with the first one: a broker that is alone never needs it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

from tidelog.cluster.image import Endpoint
from tidelog.config import BrokerConfig
from tidelog.host.network import Network

if TYPE_CHECKING:
    from tidelog.cluster.peer import PeerConnection, PeerOptions, Send


class Peering:
    """How this broker connects to others; `config` gives the settings in force."""

    def __init__(
        self,
        network: Network,
        config: Callable[[], BrokerConfig],
        authenticate: Callable[[Send], Awaitable[None]],
    ) -> None:
        self._network = network
        self._config = config
        self._authenticate = authenticate

    def open(self, endpoint: Endpoint, *, reuses_memory: bool = False) -> PeerConnection:
        """A connection that is made with its first request; see `cluster/peer`."""
        from tidelog.cluster.peer import PeerConnection

        options = self._options._replace(reuses_memory=reuses_memory)
        return PeerConnection(self._network, endpoint, options)

    @cached_property
    def _options(self) -> PeerOptions:
        from tidelog.cluster.peer import PeerOptions
        from tidelog.server.peer_tls import PeerTls

        tls = PeerTls(self._config)
        return PeerOptions(authenticate=self._authenticate, tls=tls, proves=tls.proves)
