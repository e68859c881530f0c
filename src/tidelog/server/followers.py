"""What this broker's followers need: where their leaders are, and as whom to ask them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.image_feed import ImageFeed
from tidelog.config import BrokerConfig
from tidelog.host.host import Host
from tidelog.replication.fetchers import Fetchers, FetchLinks, FetchSettings
from tidelog.replication.standing import Standing
from tidelog.server.peering import Peering

if TYPE_CHECKING:
    from tidelog.cluster.peer import PeerConnection
    from tidelog.protocol.messages.fetch import ReplicaState


def make_fetchers(
    config: BrokerConfig,
    host: Host,
    standing: Standing,
    metadata: ImageFeed,
    peering: Peering,
) -> Fetchers:
    """The fetchers of one broker."""
    listener = config.listeners.inter_broker

    def open_peer(broker_id: int) -> PeerConnection | None:
        registration = metadata.image.brokers.get(broker_id)
        endpoint = None if registration is None else registration.endpoint(listener)
        return None if endpoint is None else peering.open(endpoint, reuses_memory=True)

    def replica() -> ReplicaState:
        from tidelog.protocol.messages.fetch import ReplicaState

        return ReplicaState(standing.broker_id, standing.entry.broker_epoch)

    return Fetchers(
        FetchLinks(host, FetchSettings.of(config), open_peer, replica, standing.follower_quota)
    )
