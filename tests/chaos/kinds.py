"""The faults by name, and what a world must have for them."""

from __future__ import annotations

from typing import Final

from tests.chaos import damage, faults, surroundings
from tests.chaos.faults import Fault
from tests.chaos.network import can_isolate
from tests.chaos.power import can_cut_power

FAULTS: Final[dict[str, Fault]] = {
    "kill": faults.kill,
    "kill leader": faults.kill_leader,
    "kill controller": faults.kill_controller,
    "kill coordinator": faults.kill_coordinator,
    "kill all": faults.kill_all,
    "restart": faults.restart,
    "roll": faults.roll,
    "pause": faults.pause,
    "pause and kill": faults.pause_and_kill,
    "wipe": faults.wipe,
    "store leader": surroundings.kill_store_leader,
    "no quorum": surroundings.store_without_quorum,
    "flip": damage.flip,
    "flip and kill": damage.flip_and_kill,
}
NETWORK_FAULTS: Final[dict[str, Fault]] = {
    "isolate": surroundings.isolate,
    "cut from store": surroundings.cut_from_store,
    "cut from peers": surroundings.cut_from_peers,
    "cut from peer": surroundings.cut_from_peer,
    "deafen": surroundings.deafen,
    "cut and kill": surroundings.cut_and_kill,
}
DISK_FAULTS: Final[dict[str, Fault]] = {
    "power cut": surroundings.cut_power,
    "failing disk": surroundings.fail_disk,
    "full disk": surroundings.fill_disk,
}
# More than may be survived without a loss; only where it is asked for.
BEYOND_BUDGET: Final[dict[str, Fault]] = {"power cut of all": surroundings.cut_all_power}


def possible_faults() -> dict[str, Fault]:
    """What this user may do on this machine."""
    found = dict(FAULTS)
    if can_isolate():
        found |= NETWORK_FAULTS
    if can_cut_power():
        found |= DISK_FAULTS
    return found


def needs_network(names: set[str]) -> bool:
    return not names.isdisjoint(NETWORK_FAULTS)


def needs_disks(names: set[str]) -> bool:
    return not names.isdisjoint(DISK_FAULTS.keys() | BEYOND_BUDGET.keys())
