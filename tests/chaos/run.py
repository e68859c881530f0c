"""Runs faults one after the other, and judges what clients saw and what the disks hold."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import NETWORK_FAULTS, POWER_FAULTS, Fault
from tests.chaos.replicas import differing_replicas
from tests.chaos.world import BROKERS, PARTITIONS, World
from tests.e2e.group_schedules.task import TOPIC, partition_name
from tests.history.checker import check
from tests.history.events import Acknowledged, LogRead, Record, read_history
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.offsets import Start
from tidelog.model import TopicPartition


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    faults: int = 0
    acknowledged: int = 0
    # For each fault, the longest time in which some partition had no acknowledged record.
    gaps_s: dict[str, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        lines = [f"faults={self.faults} acknowledged={self.acknowledged}"]
        for name, gaps in sorted(self.gaps_s.items()):
            ordered = sorted(gaps)
            middle = ordered[len(ordered) // 2]
            lines.append(
                f"{name}: {len(gaps)} times, not writable for {middle:.2f} s (median),"
                f" {ordered[-1]:.2f} s (longest)"
            )
        return "\n".join([*lines, *(self.problems or ["nothing lost, nothing out of order"])])


def run(
    directory: Path,
    faults: Sequence[tuple[str, Fault]],
    chance: random.Random,
    fsync: bool = False,
) -> Outcome:
    outcome = Outcome()
    power = any(fault in POWER_FAULTS.values() for _, fault in faults)
    topic_settings = {"durability": "fsync"} if fsync else {}
    spans: list[tuple[str, int, int]] = []
    network = any(fault in NETWORK_FAULTS.values() for _, fault in faults)
    with World(directory, power=power, network=network, topic_settings=topic_settings) as world:
        world.settle()
        for name, fault in faults:
            began = time.monotonic_ns()
            fault(world, chance)
            world.settle()
            spans.append((name, began, time.monotonic_ns()))
            outcome.faults += 1
            print(f"{outcome.faults} {name}", flush=True)
        world.finish()
        _read_all(world)
        world.cluster.stop()
        outcome.problems += differing_replicas(world.data, TOPIC, PARTITIONS, BROKERS)
    history = read_history(world.histories)
    outcome.problems += [str(each) for each in check(history).violations[:20]]
    acknowledged = [each for each in history if isinstance(each, Acknowledged)]
    outcome.acknowledged = len(acknowledged)
    for name, began, ended in spans:
        outcome.gaps_s.setdefault(name, []).append(_longest_gap_s(acknowledged, began, ended))
    return outcome


def _read_all(world: World) -> None:
    """Every partition from its beginning, into the history."""
    keys = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
    with Consumer(world.cluster.bootstrap_servers) as consumer:
        consumer.assign({key: Start("start") for key in keys})
        left = len(world.view.acknowledged)
        while left > 0:
            polled = consumer.poll(30.0)
            assert polled, f"{left} records could not be read"
            for key, records in polled:
                found = tuple(
                    Record(partition_name(key.partition), each.offset, int(each.value or b""))
                    for each in records
                )
                left -= len(found)
                world.writer.write(LogRead(time.monotonic_ns(), "chaos", found))


def _longest_gap_s(acknowledged: Sequence[Acknowledged], began: int, ended: int) -> float:
    last = dict.fromkeys((partition_name(each) for each in range(PARTITIONS)), began)
    longest = 0
    for event in acknowledged:
        if began <= event.time_ns <= ended:
            longest = max(longest, event.time_ns - last[event.partition])
            last[event.partition] = event.time_ns
    return longest / 1e9
