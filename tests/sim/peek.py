"""Where the observer looks inside a broker, in one place: nothing of it is anybody's interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from tidelog.coordinators.slot import Slot
from tidelog.replication.in_sync import InSyncReplicas
from tidelog.replication.partition import Partition
from tidelog.server.broker import Broker
from tidelog.server.parts import Parts


def parts_of(broker: Broker | None) -> Parts | None:
    return None if broker is None else broker._parts


def epoch_of(broker: Broker) -> int:
    """The broker epoch; -1 until it is registered."""
    parts = broker._parts
    return -1 if parts is None else parts.membership.broker_epoch


def held(parts: Parts) -> Iterable[Mapping[int, Partition]]:
    """The partitions of a broker, by topic."""
    return parts.replicas._by_name.values()


def find(parts: Parts, topic: str, key: tuple[UUID, int]) -> Partition | None:
    """A partition of a broker, where it is of that topic id."""
    partition = parts.replicas._by_name.get(topic, {}).get(key[1])
    return partition if partition is not None and partition.topic_id == key[0] else None


def group_slots(parts: Parts) -> Iterable[Slot[Any]]:
    """The shards of groups that a broker has taken up."""
    return parts.groups._slots.values()


def leads(partition: Partition) -> bool:
    return partition.leads


def in_sync_of(partition: Partition) -> InSyncReplicas | None:
    return partition.leading.in_sync


def parked(partition: Partition) -> int:
    """Calls that wait for something of a partition."""
    waiters = (
        partition.watermark.waiters, partition._disk_waiters, partition.leading.deletion_waiters,
    )  # fmt: skip
    return sum(map(len, waiters))
