"""What is done to the store, the disks and the network of the brokers."""

from __future__ import annotations

import random
import time

from tests.chaos.faults import SESSION_S
from tests.chaos.network import Network, Peer
from tests.chaos.world import BROKERS, PARTITIONS, World
from tests.e2e.group_schedules.task import TOPIC
from tests.e2e.produce_requests import fetch
from tests.e2e.raw_client import RawClient

_NO_QUORUM_S = 60.0
# The disk is looked at once in a second.
_DISK_S = 3.0


# ---- the store ------------------------------------------------------------------------------


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
    ends = time.monotonic() + (_NO_QUORUM_S if world.wishes.long else 2 * SESSION_S)
    while time.monotonic() < ends:
        world.goes_on()
        time.sleep(SESSION_S / 3)
    for node in (0, 1):
        world.zookeeper.start_node(node)
    world.zookeeper.wait_serving()


# ---- disks ----------------------------------------------------------------------------------


def cut_power(world: World, chance: random.Random) -> None:
    """A broker loses what it had not synced."""
    broker = chance.randrange(BROKERS)
    world.note("power cut", broker)
    world.cut_power(broker)
    time.sleep(chance.choice((0.0, 1.5)) * SESSION_S)
    world.brokers.restart(broker)


def fail_disk(world: World, chance: random.Random) -> None:
    """A broker's disk gives errors from now on; others lead what it led though the broker lives."""
    broker = chance.randrange(BROKERS)
    world.note("failing disk", broker)
    world.fail_disk(broker)
    world.goes_on()
    time.sleep(chance.choice((0.0, 1.5)) * SESSION_S)
    world.replace_disk(broker)
    world.brokers.restart(broker)


def cut_all_power(world: World, chance: random.Random) -> None:
    """All brokers lose it at one moment: more than `durability=replicated` promises to survive."""
    world.note("power cut", "all")
    world.cut_power(*range(BROKERS))
    for broker in chance.sample(range(BROKERS), BROKERS):
        world.brokers.launch(broker)
    for broker in range(BROKERS):
        world.brokers.wait_serving(broker)


def fill_disk(world: World, chance: random.Random) -> None:
    """A broker's disk is full: it refuses writes, is read from, and goes on when there is room."""
    broker = chance.randrange(BROKERS)
    world.note("full disk", broker)
    disk = world.disks[broker]
    # To the last byte, or below the mark from which on it takes nothing.
    disk.fill(chance.choice((0, 48 << 20)))
    try:
        time.sleep(_DISK_S)
        with RawClient(world.brokers.server(broker)) as client:
            for partition in range(PARTITIONS):
                request = fetch(TOPIC, 0, partition=partition)
                answer = client.call("Fetch", 12, request).responses[0].partitions[0]
                assert answer.error_code == 0 and answer.records, f"error {answer.error_code}"
        if chance.random() < 0.3:
            world.brokers.kill(broker)
            world.brokers.restart(broker)
    finally:
        disk.free()


# ---- the network ----------------------------------------------------------------------------


def isolate(world: World, chance: random.Random) -> None:
    """A broker is cut from everybody for longer than a session, and may have led."""
    broker = chance.randrange(BROKERS)
    _cut(world, broker, ["store", "clients", *_others(broker)], chance)


def cut_from_store(world: World, chance: random.Random) -> None:
    """A broker hears its peers and clients, and not the store."""
    _cut(world, chance.randrange(BROKERS), ["store"], chance)


def cut_from_peers(world: World, chance: random.Random) -> None:
    """A broker has the store and its clients, and hears no other broker."""
    broker = chance.randrange(BROKERS)
    _cut(world, broker, _others(broker), chance)


def cut_from_peer(world: World, chance: random.Random) -> None:
    """Two brokers do not hear each other; both have the store."""
    one, other = chance.sample(range(BROKERS), 2)
    _cut(world, one, [other], chance)


def deafen(world: World, chance: random.Random) -> None:
    """A broker is heard by all and hears nobody, or one peer or the store no more."""
    broker = chance.randrange(BROKERS)
    other = chance.choice(_others(broker))
    everybody: list[Peer] = ["store", "clients", *_others(broker)]
    peers = chance.choice((everybody, [other], ["store"], _others(broker)))
    network = _network(world)
    world.note(f"deaf to {peers}", broker)
    for peer in peers:
        network.deafen(broker, peer)
    time.sleep(chance.choice((0.5, 2.5)) * SESSION_S)
    network.heal()


def cut_and_kill(world: World, chance: random.Random) -> None:
    """A broker is cut from its peers, and another one is killed meanwhile."""
    cut, killed = chance.sample(range(BROKERS), 2)
    network = _network(world)
    world.note("cut from its peers", cut)
    for peer in _others(cut):
        network.cut(cut, peer)
    time.sleep(chance.choice((0.2, 1.5)) * SESSION_S)
    world.note("kill", killed)
    world.brokers.kill(killed)
    time.sleep(chance.choice((0.0, 1.5)) * SESSION_S)
    network.heal()
    world.brokers.restart(killed)


def _others(broker: int) -> list[Peer]:
    return [each for each in range(BROKERS) if each != broker]


def _network(world: World) -> Network:
    assert world.network is not None, "needs brokers in namespaces"
    return world.network


def _cut(world: World, broker: int, peers: list[Peer], chance: random.Random) -> None:
    network = _network(world)
    world.note(f"cut from {peers}", broker)
    for peer in peers:
        network.cut(broker, peer)
    time.sleep(chance.choice((0.5, 2.5)) * SESSION_S)
    network.heal()
