"""Limit how fast replicas are copied while they move (KIP-73), by the settings that Kafka uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.client import admin
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Operation
from tidelog.model import ConfigOperation, ConfigResourceType, TopicPartition

_SIDES: Final = ("leader", "follower")

Replicas = Mapping[TopicPartition, Sequence[int]]


def throttle(cluster: Cluster, now: Replicas, wanted: Replicas, rate: int) -> Operation[None]:
    """Before a move: list who gives and who takes, and what brokers may copy in a second."""
    takers = {
        place: [broker for broker in replicas if broker not in now[place]]
        for place, replicas in wanted.items()
    }
    givers = {place: now[place] for place in wanted}
    yield from _list_replicas(cluster, (givers, takers), ConfigOperation.APPEND)
    yield from _set_rates(cluster, (now, wanted), str(rate))


def end_throttle(cluster: Cluster, now: Replicas, wanted: Replicas) -> Operation[None]:
    """After it: take back what `throttle` set. What is listed of other partitions stays."""
    both = {place: sorted({*now[place], *replicas}) for place, replicas in wanted.items()}
    yield from _list_replicas(cluster, (both, both), ConfigOperation.SUBTRACT)
    for topic in sorted({place.topic for place in wanted}):
        yield from _drop_empty_lists(cluster, topic)
    yield from _set_rates(cluster, (now, wanted), None)


def _drop_empty_lists(cluster: Cluster, topic: str) -> Operation[None]:
    """A topic is left as it was before anything was listed."""
    entries = yield from admin.describe_configs(cluster, ConfigResourceType.TOPIC, topic)
    own = {each.name: each.value for each in entries if each.source == "topic"}
    names = [f"{side}.replication.throttled.replicas" for side in _SIDES]
    changes = [(name, ConfigOperation.DELETE, None) for name in names if own.get(name) == ""]
    if changes:
        yield from admin.alter_configs(cluster, ConfigResourceType.TOPIC, topic, changes)


def _list_replicas(
    cluster: Cluster, sides: tuple[Replicas, Replicas], operation: ConfigOperation
) -> Operation[None]:
    changes: dict[str, list[tuple[str, ConfigOperation, str | None]]] = {}
    for side, replicas in zip(_SIDES, sides, strict=True):
        listed: dict[str, list[str]] = {}
        for place, brokers in replicas.items():
            pairs = [f"{place.partition}:{broker}" for broker in brokers]
            listed.setdefault(place.topic, []).extend(pairs)
        for topic, pairs in listed.items():
            name = f"{side}.replication.throttled.replicas"
            if pairs:
                changes.setdefault(topic, []).append((name, operation, ",".join(pairs)))
    for topic, of_topic in changes.items():
        yield from admin.alter_configs(cluster, ConfigResourceType.TOPIC, topic, of_topic)


def _set_rates(
    cluster: Cluster, held: tuple[Replicas, Replicas], rate: str | None
) -> Operation[None]:
    now, wanted = held
    taking_part = {broker for place in wanted for broker in (*now[place], *wanted[place])}
    operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
    changes = [(f"{side}.replication.throttled.rate", operation, rate) for side in _SIDES]
    described = yield from admin.describe_cluster(cluster)
    for broker in sorted(taking_part & {each.id for each in described.brokers}):
        yield from admin.alter_configs(cluster, ConfigResourceType.BROKER, str(broker), changes)
