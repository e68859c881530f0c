"""`tidelog cluster elect --unclean`: of the replicas that are there, the one that has most leads.

The controller takes the first replica that lives, as Kafka's does. That may be one whose disk was
replaced, and the others would drop what they have to be like it. So the replica with the largest
log is put first, for as long as the election takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.cli.common import say
from tidelog.client import admin, replica_admin
from tidelog.client.blocking import Client
from tidelog.client.replica_admin import Outcomes
from tidelog.model import TopicPartition

_SHOWN_MAX = 20
Sizes = Mapping[int, Mapping[TopicPartition, int]]


def elect_unclean(client: Client, places: Sequence[TopicPartition]) -> Outcomes:
    """Elect for these partitions, where nobody leads; what became of each."""
    orders = _orders(client, places)
    brokers = [each.id for each in client.run(admin.describe_cluster(client.cluster)).brokers]
    sizes = {
        broker: client.run(replica_admin.log_sizes(client.cluster, broker, list(orders)))
        for broker in (brokers if orders else ())
    }
    changed = {}
    for place, replicas in orders.items():
        best = largest(place, replicas, sizes)
        if best is not None and best != replicas[0]:
            changed[place] = [best, *(each for each in replicas if each != best)]
    for place, (best, *_) in list(changed.items())[:_SHOWN_MAX]:
        held = sizes[best].get(place, 0)
        say(f"{place.topic}-{place.partition}: broker {best} has most, {held} bytes")
    if changed:
        client.run(replica_admin.reassign(client.cluster, changed))
    try:
        return client.run(replica_admin.elect_leaders(client.cluster, places, unclean=True))
    finally:
        if changed:
            before = {place: orders[place] for place in changed}
            client.run(replica_admin.reassign(client.cluster, before))


def _orders(client: Client, places: Sequence[TopicPartition]) -> dict[TopicPartition, list[int]]:
    """The replicas of those partitions that nobody leads."""
    found = {}
    for name in sorted({place.topic for place in places}):
        states = client.run(admin.describe_topic(client.cluster, name)).partitions
        for place in places:
            if place.topic == name and states[place.partition].leader < 0:
                found[place] = list(states[place.partition].replicas)
    return found


def largest(place: TopicPartition, replicas: Sequence[int], sizes: Sizes) -> int | None:
    """The replica with the largest log of those that are there, the earlier of two; or None."""
    there = [each for each in replicas if each in sizes]
    return max(there, key=lambda each: sizes[each].get(place, 0), default=None)
