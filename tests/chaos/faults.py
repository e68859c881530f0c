"""What is done to brokers; each fault is over when its function returns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.chaos.world import BROKERS, PARTITIONS, SESSION_MS, World

Fault = Callable[[World, random.Random], None]
SESSION_S = SESSION_MS / 1000


def kill(world: World, chance: random.Random) -> None:
    """SIGKILL of any broker, back after a while."""
    _kill(world, chance.randrange(BROKERS), chance)


def kill_leader(world: World, chance: random.Random) -> None:
    """SIGKILL of a broker that leads a partition."""
    _kill(world, world.leader(chance.randrange(PARTITIONS)), chance)


def kill_controller(world: World, chance: random.Random) -> None:
    """SIGKILL of the broker that controls."""
    _kill(world, world.controller(), chance)


def kill_coordinator(world: World, chance: random.Random) -> None:
    """SIGKILL of the broker that keeps the group."""
    _kill(world, world.coordinator(), chance)


def _kill(world: World, broker: int, chance: random.Random) -> None:
    world.note("kill", broker)
    world.brokers.kill(broker)
    time.sleep(chance.choice((0.0, 0.5, 1.5 * SESSION_S)))
    world.brokers.restart(broker)


def kill_all(world: World, chance: random.Random) -> None:
    """SIGKILL of every broker, one after the other."""
    order = chance.sample(range(BROKERS), BROKERS)
    for broker in order:
        world.note("kill", broker)
        world.brokers.kill(broker)
    for broker in chance.sample(order, BROKERS):
        world.brokers.restart(broker)


def restart(world: World, chance: random.Random) -> None:
    """A clean stop and start."""
    broker = chance.randrange(BROKERS)
    world.note("restart", broker)
    world.brokers.restart(broker)


def roll(world: World, chance: random.Random) -> None:
    """A rolling restart, each broker when the others are whole."""
    for broker in range(BROKERS):
        world.note("restart", broker)
        world.brokers.restart(broker)
        world.wait("every replica is in sync", world.whole)


def pause(world: World, chance: random.Random) -> None:
    """SIGSTOP past the session: a leader that does not know that it was replaced."""
    broker = chance.randrange(BROKERS)
    world.note("pause", broker)
    world.brokers.pause(broker)
    time.sleep(chance.choice((0.8, 2, 3)) * SESSION_S)
    world.brokers.resume(broker)


def pause_and_kill(world: World, chance: random.Random) -> None:
    """One broker hangs, another one dies, and the first wakes up before or after its return."""
    paused, killed = chance.sample(range(BROKERS), 2)
    world.note("pause", paused)
    world.brokers.pause(paused)
    time.sleep(chance.choice((0.2, 1.5)) * SESSION_S)
    world.note("kill", killed)
    world.brokers.kill(killed)
    time.sleep(chance.choice((0.0, 1.5)) * SESSION_S)
    if chance.random() < 0.5:
        world.brokers.resume(paused)
        world.brokers.restart(killed)
    else:
        world.brokers.launch(killed)
        time.sleep(SESSION_S)
        world.brokers.resume(paused)
        world.brokers.wait_serving(killed)


def wipe(world: World, chance: random.Random) -> None:
    """A broker comes back with an empty disk."""
    broker = chance.randrange(BROKERS)
    world.note("wipe", broker)
    world.wipe(broker)
    world.brokers.restart(broker)
