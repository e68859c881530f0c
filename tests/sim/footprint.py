"""What brokers hold on to: tasks, waits, connections, open files. L7 compares it with the start."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.sim.peek import held, parked, parts_of
from tidelog.testing.simulation.machines import Machine, World

# A client that asks now, a round of housekeeping that runs.
_TASKS_SLACK: Final = 6
_CONNECTIONS_SLACK: Final = 8
# The files of deleted topics go after a minute: nobody waits for that here.
_DELETION: Final = "deletion"
# A log, two indexes, a snapshot and its windows; and the lock of the directory.
_FILES_PER_SEGMENT: Final = 5
# For markers and for verifications, to each other broker and from it.
_LINES_OF_TRANSACTIONS: Final = 4


class Footprint(NamedTuple):
    """One broker at one moment."""

    tasks: int
    # Calls that wait for something to be committed, synced or deleted.
    parked: int
    connections: int
    files: int
    segments: int

    def problem(self, before: list[Footprint]) -> bool:
        """Whether it is more than at the start."""
        return bool(
            self.parked
            or self.tasks > 1.1 * max(each.tasks for each in before) + _TASKS_SLACK
            or self.connections > max(each.connections for each in before) + _CONNECTIONS_SLACK
            or self.files > _FILES_PER_SEGMENT * (self.segments + 1)
        )


def footprint_of(world: World, machine: Machine) -> Footprint | None:
    parts = parts_of(machine.broker)
    if parts is None or machine.node is None:
        return None
    partitions = [each for some in held(parts) for each in some.values()]
    return Footprint(
        sum(each.get_name() != _DELETION for each in machine.node.tasks),
        sum(parked(each) for each in partitions),
        world.network.connections_of(machine.name),
        len(machine.disk.open_files),
        sum(len(each.log.segments) for each in partitions),
    )


def footprints(world: World) -> list[Footprint]:
    found = (footprint_of(world, each) for each in world.machines.values())
    return [each for each in found if each is not None]


def with_transactions(before: list[Footprint]) -> list[Footprint]:
    """As if every broker had written a marker to every other one, and asked it."""
    lines = _LINES_OF_TRANSACTIONS * (len(before) - 1)
    return [each._replace(connections=each.connections + lines) for each in before]


def left_behind(world: World, before: list[Footprint]) -> str:
    """L7: who holds on to more than it did, when nobody asks anything any more."""
    for machine in world.machines.values():
        now = footprint_of(world, machine)
        if now is None or now.problem(before):
            return f"{machine.name} has {now}, at the start there were {before}"
    return ""
