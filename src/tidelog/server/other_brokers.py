"""Questions that only another broker can answer, each over a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.client.faults import ConnectError
from tidelog.cluster.image import Endpoint
from tidelog.cluster.image_feed import ImageFeed

if TYPE_CHECKING:
    from tidelog.cluster.peer import PeerConnection


class OtherBrokers:
    """The other brokers, on the listener that brokers use among themselves."""

    def __init__(
        self, metadata: ImageFeed, listener: str, open_peer: Callable[[Endpoint], PeerConnection]
    ) -> None:
        self._metadata = metadata
        self._listener = listener
        self._open_peer = open_peer

    async def ask(self, broker_id: int, api_name: str, message: object, timeout_s: float) -> Any:
        """The response of a broker; NetworkError where it does not come."""
        known = self._metadata.image.brokers.get(broker_id)
        endpoint = None if known is None else known.endpoint(self._listener)
        if endpoint is None:
            raise ConnectError(f"broker {broker_id}", "it is not there")
        peer = self._open_peer(endpoint)
        try:
            return await peer.request(api_name, message, timeout_s)
        finally:
            peer.close()
