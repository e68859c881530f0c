"""Bits that flip on a broker's disk, under a broker that knows nothing of it."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.world import BROKERS, World

_REPAIRED = "tidelog_corruptions_repaired_total"
# A log without a batch has nothing to damage.
_BATCH_BYTES = 62


def flip(world: World, chance: random.Random) -> None:
    """A bit of any log of any broker; it is found and mended from another one."""
    _flip(world, chance.randrange(BROKERS), chance)


def flip_and_kill(world: World, chance: random.Random) -> None:
    """The same, and a broker is killed before it is found: the damaged one may lead then."""
    damaged, killed = chance.sample(range(BROKERS), 2)
    before = world.brokers.metric(damaged, _REPAIRED)
    flip_bit(world, damaged, chance)
    world.note("kill", killed)
    world.brokers.kill(killed)
    world.brokers.restart(killed)
    _wait_mended(world, damaged, before)


def _flip(world: World, broker: int, chance: random.Random) -> None:
    before = world.brokers.metric(broker, _REPAIRED)
    flip_bit(world, broker, chance)
    _wait_mended(world, broker, before)


def flip_bit(world: World, broker: int, chance: random.Random) -> None:
    logs = [
        each
        for each in sorted((world.data / str(broker)).glob("*-*/*.log"))
        if each.stat().st_size > _BATCH_BYTES
    ]
    path = chance.choice(logs)
    position = chance.randrange(path.stat().st_size)
    flip_bit_of(path, position, 1 << chance.randrange(8))
    world.note(f"bit flipped in {path.parent.name}/{path.name} at {position}", broker)


def flip_bit_of(path: Path, position: int, mask: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def _wait_mended(world: World, broker: int, before: float) -> None:
    world.wait(
        f"broker {broker} is mended",
        lambda: world.brokers.metric(broker, _REPAIRED) > before,
    )
