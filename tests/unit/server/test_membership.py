"""Brokers find each other, agree on a controller and follow what it decides."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.server.clusters import (
    add_machine,
    agree,
    controllers,
    image,
    parts,
    simulate,
    start_all,
    submit,
    until,
)
from tidelog.cluster import layout
from tidelog.cluster.commands import CreatedTopic, CreateTopic
from tidelog.protocol.apis import APIS
from tidelog.protocol.messages.api_versions import ApiVersion
from tidelog.storage.checkpoint import format_id
from tidelog.storage.data_dir import DataDir
from tidelog.store.port import Delete, Operation
from tidelog.testing.simulation.machines import PORT, World


@pytest.mark.parametrize("seed", range(3))
def test_three_brokers_that_start_at_once_form_one_cluster(seed: int) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        await until(lambda: agree(machines, [0, 1, 2]))
        assert len(controllers(machines)) == 1
        assert len({image(each).cluster_id for each in machines}) == 1
        assert len({image(each).controller_id for each in machines}) == 1

    simulate(main, seed)


def test_a_broker_joins_a_cluster_that_another_founded() -> None:
    async def main(world: World) -> None:
        machines = [add_machine(world, broker_id) for broker_id in range(3)]
        for count, machine in enumerate(machines, start=1):
            await machine.start()
            await until(lambda: agree(machines[:count], range(count)))  # noqa: B023
        assert controllers(machines) == machines[:1]

    simulate(main)


def test_a_topic_created_through_any_broker_is_known_to_it_at_once_and_to_all_soon() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        for machine in machines:
            assert machine.node is not None
            command = CreateTopic(f"by-{machine.name}", partitions=3, replication_factor=1)
            created = await machine.node.start(parts(machine).submitter.submit(command))
            assert isinstance(created, CreatedTopic)
            assert image(machine).topics[command.name].topic_id == created.topic_id
        await until(lambda: agree(machines, [0, 1, 2]))
        for machine in machines:
            assert sorted(image(machine).topics) == ["by-b0", "by-b1", "by-b2"]
            await until(lambda: len(parts(machine).replicas) == 3)  # noqa: B023

    simulate(main)


def test_a_broker_follows_a_controller_that_serves_newer_versions_of_the_private_apis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tidelog.server.handlers import api_versions

    def newer(*, private: bool) -> list[ApiVersion]:
        return [ApiVersion(each.key, each.advertised[0], each.advertised[1] + 5) for each in APIS]

    monkeypatch.setattr(api_versions, "_ranges", newer)

    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        await until(lambda: agree(machines, [0, 1, 2]))

    simulate(main)


def test_two_clusters_of_one_seed_run_the_same_way() -> None:
    def trace() -> str:
        async def main(world: World) -> str:
            machines = await start_all(world, 3)
            await until(lambda: agree(machines, [0, 1, 2]))
            await asyncio.sleep(5)
            return world.loop.trace

        return simulate(main, 7)

    assert trace() == trace()


def led_by(world: World, broker_id: int) -> list[str]:
    """The partitions that a broker leads, as the store has it."""
    held = layout.load(world.tree.nodes).image
    return [
        f"{topic.name}-{state.partition}"
        for topic in held.topics.values()
        for state in topic.partitions
        if state.leader == broker_id
    ]


@pytest.mark.parametrize("is_controller", [False, True])
def test_a_broker_that_stops_has_others_lead_before_it_goes(is_controller: bool) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        stopped = controller if is_controller else machines[controller.broker_id - 1]
        await submit(machines[0], CreateTopic("orders", partitions=6, replication_factor=3))
        everywhere = {0, 1, 2}
        await until(
            lambda: all(
                set(each.isr) == everywhere
                for each in image(controller).topics["orders"].partitions
            )
        )
        assert led_by(world, stopped.broker_id)
        led_at_the_end: list[list[str]] = []

        def note(operations: Sequence[Operation], session: int) -> None:
            if Delete(layout.broker_path(stopped.broker_id)) in operations:
                led_at_the_end.append(led_by(world, stopped.broker_id))

        world.tree.on_transaction = note
        await stopped.stop()
        assert led_at_the_end == [[]]
        left = [each for each in machines if each is not stopped]
        await until(lambda: agree(left, [each.broker_id for each in left]))

    simulate(main)


def test_a_broker_registers_what_a_controller_must_know_of_it() -> None:
    """Its rack is its machine unless one is named, for replicas must leave the machine."""

    async def main(world: World) -> None:
        machines = await start_all(world, 2)
        for machine in machines:
            own = parts(machine)
            node = world.tree.nodes[layout.broker_path(machine.broker_id)]
            entry = layout.decode("", node.value)
            identity = own.data_dir.identity
            assert identity is not None
            assert entry["endpoints"] == [["PLAINTEXT", machine.name, PORT]]
            assert entry["rack"] == machine.name
            assert entry["directory_id"] == format_id(identity.directory_id)
            assert entry["boot_id"] and entry["mount_id"]
            assert entry["metadata_version"] == layout.VALUE_VERSION
            assert node.created == own.membership.broker_epoch
        before = parts(machines[1]).membership.broker_epoch
        await machines[1].stop()
        await machines[1].start()
        node = world.tree.nodes[layout.broker_path(1)]
        assert layout.decode("", node.value)["clean_epoch"] == before
        await until(lambda: image(machines[0]).brokers[1].epoch == node.created)
        seen = world.tree.nodes[f"{layout.BROKERS_SEEN}/1"]
        assert layout.decode("", seen.value)["epoch"] == node.created

    simulate(main)


def test_a_broker_has_recovered_its_logs_when_it_registers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is registered leads, and one that leads must serve."""
    load_logs = DataDir.load_logs

    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        await submit(machines[0], CreateTopic("t", 1, 3))
        await until(lambda: all("t" in image(each).topics for each in machines))
        machines[2].kill()
        await until(lambda: 2 not in image(machines[0]).brokers)
        lives: list[bool] = []

        def load(self: DataDir, *args: Any, **named: Any) -> Any:
            loaded = load_logs(self, *args, **named)
            lives.append(layout.broker_path(2) in world.tree.nodes)
            return loaded

        monkeypatch.setattr(DataDir, "load_logs", load)
        await machines[2].start()
        assert lives == [False]
        assert layout.broker_path(2) in world.tree.nodes

    simulate(main)
