"""What is done to the brokers and to the store; each fault is over when its function returns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from tests.chaos.namespaces import IsolatedCluster
from tests.chaos.world import BROKERS, SESSION_MS, World
from tests.e2e.group_schedules.task import TOPIC

Fault = Callable[[World, random.Random], None]


def kill(world: World, chance: random.Random) -> None:
    """SIGKILL of any broker, back after a while."""
    _kill(world, chance.randrange(BROKERS), chance)


def kill_leader(world: World, chance: random.Random) -> None:
    """SIGKILL of a broker that leads a partition."""
    leader = world.cluster.leader_of(TOPIC, chance.randrange(6))
    _kill(world, leader if leader >= 0 else 0, chance)


def _kill(world: World, broker: int, chance: random.Random) -> None:
    world.note("kill", broker)
    world.cluster.kill(broker)
    time.sleep(chance.choice((0.0, 0.5, 1.5 * SESSION_MS / 1000)))
    world.cluster.restart(broker)


def kill_all(world: World, chance: random.Random) -> None:
    """SIGKILL of every broker, one after the other."""
    order = chance.sample(range(BROKERS), BROKERS)
    for broker in order:
        world.note("kill", broker)
        world.cluster.kill(broker)
    for broker in chance.sample(order, BROKERS):
        world.cluster.restart(broker)


def restart(world: World, chance: random.Random) -> None:
    """A clean stop and start."""
    broker = chance.randrange(BROKERS)
    world.note("restart", broker)
    world.cluster.restart(broker)


def roll(world: World, chance: random.Random) -> None:
    """A rolling restart, each broker when the others are whole."""
    for broker in range(BROKERS):
        world.note("restart", broker)
        world.cluster.restart(broker)
        world.wait("every replica is in sync", world.whole)


def pause(world: World, chance: random.Random) -> None:
    """SIGSTOP past the session: a leader that does not know that it was replaced."""
    broker = chance.randrange(BROKERS)
    world.note("pause", broker)
    world.cluster.pause(broker)
    time.sleep(2 * SESSION_MS / 1000)
    world.cluster.resume(broker)


def wipe(world: World, chance: random.Random) -> None:
    """A broker comes back with an empty disk."""
    broker = chance.randrange(BROKERS)
    world.note("wipe", broker)
    world.wipe(broker)
    world.cluster.restart(broker)


def cut_power(world: World, chance: random.Random) -> None:
    """A broker loses what it had not synced."""
    broker = chance.randrange(BROKERS)
    world.note("power cut", broker)
    world.cut_power(broker)
    world.cluster.restart(broker)


def kill_store_leader(world: World, chance: random.Random) -> None:
    """SIGKILL of ZooKeeper's leader."""
    node = world.zookeeper.leader()
    if node is not None:
        world.note("kill of the store's leader", node)
        world.zookeeper.kill_node(node)
        time.sleep(1)
        world.zookeeper.start_node(node)
        world.zookeeper.wait_serving()


def store_without_quorum(world: World, chance: random.Random) -> None:
    """Two of three ZooKeepers are gone for longer than a session; acks=all goes on meanwhile."""
    world.note("no quorum", "store")
    for node in (0, 1):
        world.zookeeper.kill_node(node)
    world.view.look()
    before = len(world.view.acknowledged)
    time.sleep(2 * SESSION_MS / 1000)
    world.view.look()
    assert len(world.view.acknowledged) > before, "nothing was acknowledged without the store"
    for node in (0, 1):
        world.zookeeper.start_node(node)
    world.zookeeper.wait_serving()


def isolate(world: World, chance: random.Random) -> None:
    """A broker is cut from everybody for longer than a session, and may have led."""
    broker = chance.randrange(BROKERS)
    _cut(world, broker, [None, *(each for each in range(BROKERS) if each != broker)], chance)


def cut_from_store(world: World, chance: random.Random) -> None:
    """A broker hears its peers, and neither the store nor clients."""
    _cut(world, chance.randrange(BROKERS), [None], chance)


def cut_from_peer(world: World, chance: random.Random) -> None:
    """Two brokers do not hear each other; both have the store."""
    one, other = chance.sample(range(BROKERS), 2)
    _cut(world, one, [other], chance)


def _cut(world: World, broker: int, peers: list[int | None], chance: random.Random) -> None:
    assert isinstance(world.cluster, IsolatedCluster), "needs brokers in namespaces"
    world.note(f"cut from {peers}", broker)
    for peer in peers:
        world.cluster.cut(broker, peer)
    time.sleep(chance.choice((0.5, 2.5)) * SESSION_MS / 1000)
    world.cluster.heal()


FAULTS: Final[dict[str, Fault]] = {
    "kill": kill,
    "kill leader": kill_leader,
    "kill all": kill_all,
    "restart": restart,
    "roll": roll,
    "pause": pause,
    "wipe": wipe,
    "store leader": kill_store_leader,
    "no quorum": store_without_quorum,
}
NETWORK_FAULTS: Final[dict[str, Fault]] = {
    "isolate": isolate,
    "cut from store": cut_from_store,
    "cut from peer": cut_from_peer,
}
POWER_FAULTS: Final[dict[str, Fault]] = {"power cut": cut_power}
