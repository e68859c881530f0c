"""Waiting for partitions that are being moved, and saying what keeps them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from tidelog.cli.common import listed, say
from tidelog.client import admin, replica_admin
from tidelog.client.blocking import Client
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.replica_admin import Move
from tidelog.model import TopicPartition

_LOOK_S = 0.5


def moving(client: Client, places: Collection[TopicPartition]) -> list[Move]:
    """Those of these partitions that are being moved."""
    moves = client.run(replica_admin.list_moves(client.cluster))
    return [move for move in moves if move.partition in places]


def wait_until_moved(
    client: Client,
    places: Collection[TopicPartition],
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """Return when none of these is being moved; say what they wait for, when that changes."""
    told: list[str] = []
    while moves := moving(client, places):
        kept = _look(client, moves)
        if kept != told:
            for line in kept or ["the copying goes on"]:
                say(line)
            told = kept
        rest(_LOOK_S)


def _look(client: Client, moves: Sequence[Move]) -> list[str]:
    topics = client.run(admin.list_topics(client.cluster))
    states = {
        TopicPartition(topic.name, number): state
        for topic in topics
        for number, state in topic.partitions.items()
    }
    brokers = client.run(admin.describe_cluster(client.cluster)).brokers
    return what_keeps(moves, states, {each.id for each in brokers})


def what_keeps(
    moves: Sequence[Move],
    states: Mapping[TopicPartition, PartitionMetadata],
    brokers: Collection[int],
) -> list[str]:
    """Why moves cannot go on, as lines: there is nobody to copy from, or to copy to."""
    without_source: dict[tuple[int, ...], list[str]] = {}
    without_target: dict[tuple[int, ...], list[str]] = {}
    for move in moves:
        state = states.get(move.partition)
        name = f"{move.partition.topic}-{move.partition.partition}"
        away = tuple(each for each in move.adding if each not in brokers)
        if state is not None and state.leader < 0:
            sources = {*move.replicas} - {*move.adding} - {*brokers}
            without_source.setdefault(tuple(sorted(sources)), []).append(name)
        elif away:
            without_target.setdefault(away, []).append(name)
    lines = []
    for sources_away, names in sorted(without_source.items()):
        whom = f"broker {_ids(sources_away)}" if sources_away else "a broker that has the records"
        lines.append(f"waiting: nobody leads {listed(names)}, to copy from; start {whom}")
    for away, names in sorted(without_target.items()):
        lines.append(f"waiting: {listed(names)} cannot be copied; start broker {_ids(away)}")
    return lines


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
