"""What must come true once nothing goes wrong any more (L1 to L8), each a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tests.sim.footprint import Footprint, left_behind
from tests.sim.ghost import Violation
from tests.sim.observer import Observer
from tests.sim.peek import held, leads, parts_of
from tidelog.cluster.image import PartitionState
from tidelog.model import TopicPartition
from tidelog.testing.simulation.machines import SESSION_S, World

_LOOK_S: Final = 0.25
_LEADERS_S: Final = 2 * SESSION_S + 5.0
_IN_SYNC_S: Final = 60.0
_LET_GO_S: Final = 60.0


async def settle(world: World, observer: Observer) -> None:
    """Wait for what takes its time, up to the time that it may take."""
    await within(
        _LEADERS_S, "L1 leaders", lambda: _not_started(world) or _without_leader(world, observer)
    )
    await within(_IN_SYNC_S, "L2 in-sync replicas", lambda: _out_of_sync(world, observer))


async def check_all(world: World, observer: Observer, before: list[Footprint]) -> None:
    """The rest, when clients have ended."""
    await within(_LEADERS_S, "L8 one version", lambda: versions(world))
    await within(_IN_SYNC_S, "L6 replicas agree", lambda: disagreement(world, observer))
    await within(_LET_GO_S, "L7 nothing stays", lambda: left_behind(world, before))


async def within(seconds: float, name: str, problem: Callable[[], str]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while found := problem():
        if loop.time() > until:
            raise Violation(name, f"{seconds:.0f} s after the last fault: {found}")
        await asyncio.sleep(_LOOK_S)


def _not_started(world: World) -> str:
    return next((f"{each.name} is not up" for each in world.machines.values()
                 if not each.is_serving), "")  # fmt: skip


def _without_leader(world: World, observer: Observer) -> str:
    """L1: every partition with an electable replica has a leader, which serves."""
    for name, topic in observer.image.topics.items():
        for state in topic.partitions:
            machine = world.machines.get(state.leader)
            parts = None if machine is None else parts_of(machine.broker)
            if parts is None:
                return f"{name}-{state.partition} has no leader: {state}"
            found = [
                partition for partitions in held(parts) for partition in partitions.values()
                if partition.topic_id == topic.topic_id
                and partition.topic_partition.partition == state.partition
            ]  # fmt: skip
            if not found or not leads(found[0]):
                return f"b{state.leader} does not serve {name}-{state.partition}: {state}"
            if found[0].leader_epoch != state.leader_epoch:
                return f"b{state.leader} leads {name}-{state.partition} in another epoch"
    return ""


def _out_of_sync(world: World, observer: Observer) -> str:
    """L2: the in-sync replicas are the replicas, but those whose disk has failed; and all that
    was to be moved has been."""
    for name, topic in observer.image.topics.items():
        for state in topic.partitions:
            failed = _failed(world, name, state)
            if set(state.isr) | failed != set(state.replicas) or state.adding or state.removing:
                return f"{name}-{state.partition}: {state}"
    return ""


def _failed(world: World, topic: str, state: PartitionState) -> set[int]:
    """The replicas that are not served again before their broker is restarted."""
    found = set()
    for broker in state.replicas:
        parts = parts_of(world.machines[broker].broker)
        if parts is not None and TopicPartition(topic, state.partition) in parts.replicas.offline:
            found.add(broker)
    return found


def disagreement(world: World, observer: Observer) -> str:
    """L6: every replica that is served has what was committed, and the leader's log."""
    for name, topic in observer.image.topics.items():
        for state in topic.partitions:
            ghost = observer.ghosts.get((topic.topic_id, state.partition))
            if ghost is None:
                continue
            for broker in set(state.replicas) - _failed(world, name, state):
                replica = ghost.replicas.get(broker)
                if replica is None or (missing := ghost.lacks(replica)) is not None:
                    return f"b{broker} of {name}-{state.partition} lacks {missing}"
    return ""


def versions(world: World) -> str:
    """L8: all brokers are on the same version of the metadata."""
    versions = {}
    for machine in world.machines.values():
        parts = parts_of(machine.broker)
        versions[machine.name] = None if parts is None else parts.metadata.image.version
    return (
        "" if len(set(versions.values())) == 1 and None not in versions.values() else str(versions)
    )
