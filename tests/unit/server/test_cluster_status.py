"""What the status pages say of a cluster that is well, and of one that is not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from tests.unit.server.clusters import (
    agree,
    controllers,
    image,
    parts,
    simulate,
    start_all,
    submit,
    until,
)
from tests.unit.server.test_membership_faults import session
from tidelog.client.aio import Producer
from tidelog.client.batching import ProducerRecord
from tidelog.cluster.commands import CreateTopic
from tidelog.server.cluster_status import ClusterStatus
from tidelog.testing.simulation.machines import PORT, SESSION_S, Machine, World

PARTITIONS = 3


def status(machine: Machine) -> ClusterStatus:
    its = parts(machine)
    return ClusterStatus(its.membership, its.metadata, its.replicas, its.fetchers, machine.clock)


def metrics(machine: Machine) -> dict[str, float]:
    lines = [line for line in status(machine).lines() if not line.startswith("#")]
    pairs = [line.rpartition(" ") for line in lines]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name.removeprefix("tidelog_"): float(value) for name, _, value in pairs}


def total(machines: Sequence[Machine], name: str) -> float:
    return sum(metrics(each)[name] for each in machines)


async def replicated(world: World, count: int = 3, factor: int = 3) -> list[Machine]:
    """Brokers with a topic that has a replica on each of them, all in sync."""
    machines = await start_all(world, count)
    node = machines[0].node
    assert node is not None
    command = CreateTopic("t", partitions=PARTITIONS, replication_factor=factor)
    await node.start(parts(machines[0]).submitter.submit(command))
    await until(lambda: agree(machines, range(count)))
    await until(lambda: total(machines, "leader_partitions") == PARTITIONS)
    return machines


async def produce(world: World, count: int, partition: int = 0) -> None:
    producer = Producer(f"b0:{PORT},b1:{PORT},b2:{PORT}", host=world.client_host())
    for number in range(count):
        record = ProducerRecord("t", b"%d" % number, None, partition=partition)
        await producer.wait(await producer.send(record))
    await producer.close()


def test_a_cluster_that_is_well() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world)
        await produce(world, 5)
        await until(lambda: all(status(each).not_ready() is None for each in machines))
        for name, value in (
            ("under_replicated_partitions", 0),
            ("under_min_isr_partitions", 0),
            ("leaderless_partitions", 0),
            ("absent_brokers", 0),
            ("brokers", 9),
            ("leader_partitions", PARTITIONS),
            ("active_controller", 1),
            ("unclean_elections_total", 0),
            ("metadata_lag_seconds", 0),
            ("store_silent_seconds", 0),
            ("store_connected", 3),
            ("out_of_touch", 0),
        ):
            assert total(machines, name) == value, name
        (controller,) = controllers(machines)
        assert metrics(controller)["active_controller"] == 1
        versions = {metrics(each)["metadata_version"] for each in machines}
        assert versions == {image(machines[0]).version}

    simulate(main)


def test_a_broker_that_is_dead_is_missed_by_the_leaders_until_it_is_back() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world)
        dead, *alive = machines
        dead.kill()
        await until(lambda: agree(alive, [1, 2]))
        await until(lambda: total(alive, "under_replicated_partitions") == PARTITIONS)
        for each in alive:
            told = metrics(each)
            assert (told["brokers"], told["absent_brokers"]) == (2, 1)
            assert told["leaderless_partitions"] == 0
            assert told["under_min_isr_partitions"] == 0
        await produce(world, 5)
        leader = next(each for each in alive if leads(each, 0))
        await until(lambda: metrics(leader)['follower_lag_records{broker="0"}'] == 5)
        lagged = metrics(leader)['follower_lag_seconds{broker="0"}']
        assert 0 < lagged < 60
        assert metrics(leader)[f'follower_lag_records{{broker="{3 - leader.broker_id}"}}'] == 0
        await dead.start()
        await until(lambda: total(machines, "under_replicated_partitions") == 0)
        assert total(machines, "isr_expansions_total") >= PARTITIONS
        assert total(machines, "isr_shrinks_total") > 0
        assert metrics(leader)['follower_lag_records{broker="0"}'] == 0
        await until(lambda: status(dead).not_ready() is None)

    simulate(main)


def leads(machine: Machine, partition: int) -> bool:
    state = image(machine).partition("t", partition)
    return state is not None and state.leader == machine.broker_id


def test_partitions_below_their_minimum_and_without_a_leader_are_counted() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world)
        last = machines[2]
        machines[0].kill()
        machines[1].kill()
        await until(lambda: agree([last], [2]))
        await until(lambda: metrics(last)["under_min_isr_partitions"] == PARTITIONS)
        assert metrics(last)["leaderless_partitions"] == 0

    simulate(main)


def test_a_topic_of_one_replica_loses_its_leader_with_its_broker() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world, factor=1)
        gone = next(each for each in machines if any(leads(each, n) for n in range(PARTITIONS)))
        others = [each for each in machines if each is not gone]
        gone.kill()
        await until(lambda: agree(others, [each.broker_id for each in others]))
        for each in others:
            await until(lambda: metrics(each)["leaderless_partitions"] > 0)  # noqa: B023

    simulate(main)


def test_every_metric_has_its_help_and_a_name_of_prometheus() -> None:
    async def main(world: World) -> None:
        (machine,) = await replicated(world, count=1, factor=1)
        lines = list(status(machine).lines())
        helps = [line.split()[2] for line in lines if line.startswith("# HELP")]
        samples = {line.split("{")[0].split()[0] for line in lines if line[0] != "#"}
        assert samples <= set(helps)
        assert all(re.fullmatch(r"tidelog_[a-z_]+", each) for each in helps)

    simulate(main)


def test_a_replica_that_does_not_hear_of_its_leader_says_since_when() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world)
        await produce(world, 5)
        leader = machines[image(machines[0]).topics["t"].partitions[0].leader]
        follower = next(each for each in machines if each is not leader)
        name = 'replica_lag_{}{{topic="t",partition="0"}}'
        await until(lambda: metrics(follower)[name.format("records")] == 0)
        assert metrics(follower)[name.format("seconds")] == 0
        world.network.cut(leader.name, follower.name)
        began = world.loop.time()
        await until(lambda: metrics(follower)[name.format("seconds")] > 3)
        assert world.loop.time() - began < 5
        world.network.heal_all()
        await until(lambda: metrics(follower)[name.format("seconds")] == 0)

    simulate(main)


def test_a_broker_without_the_store_says_since_when_and_the_others_do_not() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world)
        (controller,) = controllers(machines)
        cut = next(each for each in machines if each is not controller)
        session(cut).suspend()
        await until(lambda: metrics(cut)["store_connected"] == 0)
        assert metrics(cut)["out_of_touch"] == 0
        await until(lambda: metrics(cut)["out_of_touch"] == 1)
        assert SESSION_S / 2 < metrics(cut)["store_silent_seconds"] < SESSION_S
        for each in machines:
            if each is not cut:
                told = metrics(each)
                assert (told["store_connected"], told["out_of_touch"]) == (1, 0)
        session(cut).resume()
        await until(lambda: metrics(cut)["store_connected"] == 1)
        await until(lambda: metrics(cut)["out_of_touch"] == 0)
        assert metrics(cut)["store_silent_seconds"] == 0

    simulate(main)


def test_a_broker_that_does_not_reach_its_controller_has_old_metadata_and_says_so() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world)
        (controller,) = controllers(machines)
        cut = next(each for each in machines if each is not controller)
        world.network.cut(controller.name, cut.name)
        await until(lambda: metrics(cut)["metadata_lag_seconds"] > 1)
        world.network.heal_all()
        await until(lambda: metrics(cut)["metadata_lag_seconds"] == 0)

    simulate(main)


def test_unclean_elections_and_what_they_lose_are_counted() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        command = CreateTopic("t", assignments={0: [2, 1]}, configs=configs)
        await submit(machines[0], command)
        await until(lambda: agree(machines, range(3)))
        await produce(world, 3)
        await asyncio.sleep(6)
        machines[1].kill()
        await until(lambda: agree([machines[0], machines[2]], [0, 2]))
        await produce(world, 4)
        await asyncio.sleep(6)
        machines[2].kill()
        await machines[1].start()
        left = [machines[0], machines[1]]
        await until(lambda: agree(left, [0, 1]))
        await until(lambda: total(left, "unclean_elections_total") == 1)
        await machines[2].start()
        await until(lambda: metrics(machines[2])["lost_records_total"] == 4)

    simulate(main)


def test_a_broker_is_ready_when_it_is_registered_and_its_replicas_are_in_sync() -> None:
    async def main(world: World) -> None:
        machines = await replicated(world)
        slow = machines[2]
        slow.kill()
        await until(lambda: agree(machines[:2], [0, 1]))
        await produce(world, 5)
        world.network.cut(slow.name, machines[0].name)
        world.network.cut(slow.name, machines[1].name)
        starting = asyncio.ensure_future(slow.start())
        await asyncio.sleep(5)
        if slow.is_up:
            assert status(slow).not_ready() is not None
        world.network.heal_all()
        await starting
        await until(lambda: status(slow).not_ready() is None)
        assert all(2 in state.isr for state in image(machines[0]).topics["t"].partitions)

    simulate(main)
