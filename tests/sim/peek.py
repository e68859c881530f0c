"""Where the observer looks inside a broker, in one place: nothing of it is anybody's interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.replication.in_sync import InSyncReplicas
from tidelog.replication.partition import Partition
from tidelog.server.broker import Broker, Parts


def parts_of(broker: Broker | None) -> Parts | None:
    return None if broker is None else broker._parts


def epoch_of(broker: Broker) -> int:
    """The broker epoch; -1 until it is registered."""
    parts = broker._parts
    return -1 if parts is None else parts.membership.broker_epoch


def held(parts: Parts) -> Iterable[Mapping[int, Partition]]:
    """The partitions of a broker, by topic."""
    return parts.replicas._by_name.values()


def leads(partition: Partition) -> bool:
    return partition.leads


def in_sync_of(partition: Partition) -> InSyncReplicas | None:
    return partition.leading.in_sync
