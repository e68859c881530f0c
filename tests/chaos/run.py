"""Runs faults one after the other, and judges what clients saw and what the replicas hold."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.chaos.budget import judge, reported_losses
from tests.chaos.faults import Fault
from tests.chaos.kinds import needs_disks, needs_network
from tests.chaos.reading import differing_replicas, read_replicas
from tests.chaos.world import PARTITIONS, SESSION_MS, Wishes, World
from tests.e2e.group_schedules.task import TOPIC, partition_name
from tests.history.checker import check
from tests.history.events import Acknowledged, AcknowledgedSomewhere, Event, read_history

BUSY_METRIC = "tidelog_loop_busy_max_seconds"


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    faults: int = 0
    acknowledged: int = 0
    # For each fault, the longest time in which some partition had no acknowledged record.
    gaps_s: dict[str, list[float]] = field(default_factory=dict)
    # Of the lives of brokers that the run's end was told of.
    loop_busy_s: float = 0.0
    budget_exceeded: bool = False
    losses_reported: int = 0
    rows: int | None = None
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        lines = [f"faults={self.faults} acknowledged={self.acknowledged}"
                 f" longest_callback_cpu_s<={self.loop_busy_s:.3f}"]  # fmt: skip
        if self.rows is not None:
            lines.append(f"the pipeline's table has {self.rows} rows")
        for name, gaps in sorted(self.gaps_s.items()):
            ordered = sorted(gaps)
            middle = ordered[len(ordered) // 2]
            lines.append(
                f"{name}: {len(gaps)} times, not writable for {middle:.2f} s (median),"
                f" {ordered[-1]:.2f} s (longest)"
            )
        if self.budget_exceeded:
            lines.append(
                "more disks were lost than may be:"
                f" {self.losses_reported} losses, each reported by a broker"
            )
        return "\n".join([*lines, *(self.problems or ["nothing lost, nothing out of order"])])


def run(
    directory: Path,
    faults: Sequence[tuple[str, Fault]],
    chance: random.Random,
    wishes: Wishes | None = None,
) -> Outcome:
    names = {name for name, _ in faults}
    wishes = wishes or Wishes()
    wishes = replace(
        wishes,
        disks=wishes.disks or needs_disks(names),
        network=wishes.network or needs_network(names),
    )
    outcome = Outcome()
    spans: list[tuple[str, int, int]] = []
    with World(directory, wishes) as world:
        world.settle()
        for name, fault in faults:
            began = time.monotonic_ns()
            fault(world, chance)
            world.settle()
            spans.append((name, began, time.monotonic_ns()))
            outcome.faults += 1
            print(f"{outcome.faults} {name}", flush=True)
        world.finish()
        _look_at(world, outcome)
    history = read_history(world.histories)
    _judge(history, world, outcome)
    acknowledged = [each for each in history if isinstance(each, Acknowledged)]
    outcome.acknowledged = len(acknowledged)
    for name, began, ended in spans:
        outcome.gaps_s.setdefault(name, []).append(longest_gap_s(acknowledged, began, ended))
    return outcome


def _look_at(world: World, outcome: Outcome) -> None:
    """What brokers, disks and the table hold in the end."""
    brokers, exceeded = world.brokers, world.budget.exceeded
    wanted = _ends(world) if exceeded else world.view.acknowledged
    lacking, _ = read_replicas(brokers, brokers.ids, wanted, world.writer)
    outcome.loop_busy_s = max(brokers.metric(each, BUSY_METRIC) for each in brokers.ids)
    brokers.stop()
    outcome.problems += [] if exceeded else lacking
    outcome.problems += differing_replicas(world.data, TOPIC, PARTITIONS, brokers.ids)
    if world.pipeline is not None and not exceeded:
        values = {
            each.value
            for each in read_history(world.histories)
            if isinstance(each, Acknowledged | AcknowledgedSomewhere)
        }
        outcome.rows = world.pipeline.rows()
        outcome.problems += world.pipeline.problems(values)


def _ends(world: World) -> set[tuple[str, int]]:
    """The last offset of each partition as it is now, where some of what was promised is gone."""
    found = set()
    for partition in range(PARTITIONS):
        end = world.end_offset(partition)
        if end:
            found.add((partition_name(partition), end - 1))
    return found


def _judge(history: Sequence[Event], world: World, outcome: Outcome) -> None:
    violations = check(history, 2 * SESSION_MS * 1_000_000).violations
    reported = reported_losses(map(world.brokers.log_of, world.brokers.ids))
    wrong, outcome.losses_reported = judge(violations, world.budget, reported)
    outcome.budget_exceeded = world.budget.exceeded
    outcome.problems += [str(each) for each in wrong[:20]]


def longest_gap_s(acknowledged: Sequence[Acknowledged], began: int, ended: int) -> float:
    """Of all partitions, the longest time without an acknowledged record."""
    last = dict.fromkeys((partition_name(each) for each in range(PARTITIONS)), began)
    longest = 0
    for event in acknowledged:
        if began <= event.time_ns <= ended:
            longest = max(longest, event.time_ns - last[event.partition])
            last[event.partition] = event.time_ns
    return longest / 1e9
