"""What this broker's followers need: where their leaders are, and as whom to ask them."""

from __future__ import annotations

from dataclasses import replace

from tidelog.cluster.image_feed import ImageFeed
from tidelog.cluster.peer import PeerConnection, PeerOptions
from tidelog.config import BrokerConfig
from tidelog.host.host import Host
from tidelog.protocol.messages.fetch import ReplicaState
from tidelog.replication.fetch_core import FetchSettings
from tidelog.replication.fetching import Fetchers, FetchLinks
from tidelog.replication.standing import Standing


def make_fetchers(
    config: BrokerConfig,
    host: Host,
    standing: Standing,
    metadata: ImageFeed,
    options: PeerOptions,
) -> Fetchers:
    """The fetchers of one broker."""
    listener = config.listeners.inter_broker
    own = replace(options, reuses_memory=True)

    def open_peer(broker_id: int) -> PeerConnection | None:
        registration = metadata.image.brokers.get(broker_id)
        endpoint = None if registration is None else registration.endpoint(listener)
        return None if endpoint is None else PeerConnection(host.network, endpoint, own)

    def replica() -> ReplicaState:
        return ReplicaState(standing.broker_id, standing.entry.broker_epoch)

    return Fetchers(
        FetchLinks(host, FetchSettings.of(config), open_peer, replica, standing.follower_quota)
    )
