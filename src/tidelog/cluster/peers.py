"""Connections to other brokers for one purpose, one to each, made when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.client.faults import ConnectError
from tidelog.cluster.image import Endpoint

if TYPE_CHECKING:
    from tidelog.cluster.peer import PeerConnection


class Peers:
    """The other brokers, as the metadata shows them."""

    def __init__(
        self,
        endpoint_of: Callable[[int], Endpoint | None],
        open_peer: Callable[[Endpoint], PeerConnection],
    ) -> None:
        self._endpoint_of = endpoint_of
        self._open_peer = open_peer
        self._peers: dict[int, PeerConnection] = {}

    async def request(
        self, broker_id: int, api_name: str, message: object, timeout_s: float
    ) -> Any:
        """The response of a broker; NetworkError where it does not come."""
        endpoint = self._endpoint_of(broker_id)
        if endpoint is None:
            self._forget(broker_id)
            raise ConnectError(f"broker {broker_id}", "it is not there")
        peer = self._peers.get(broker_id)
        if peer is None or peer.endpoint != endpoint:
            self._forget(broker_id)
            peer = self._peers[broker_id] = self._open_peer(endpoint)
        return await peer.request(api_name, message, timeout_s)

    def _forget(self, broker_id: int) -> None:
        peer = self._peers.pop(broker_id, None)
        if peer is not None:
            peer.close()

    def close(self) -> None:
        for broker_id in list(self._peers):
            self._forget(broker_id)
