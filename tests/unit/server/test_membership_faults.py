"""What brokers do when they lose the store, their controller or each other."""

from __future__ import annotations

import asyncio

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
from tidelog.cluster.controller_link import COMMAND_TIMEOUT_S
from tidelog.errors import ErrorCode, KafkaError
from tidelog.server.submitter import seconds_for
from tidelog.store.port import Create, SessionState, Set
from tidelog.testing.memory_store import Loss, MemoryStore
from tidelog.testing.simulation.machines import SESSION_S, Machine, World


def session(machine: Machine) -> MemoryStore:
    assert machine.session is not None
    return machine.session


def others(machines: list[Machine], *but: Machine) -> list[Machine]:
    return [each for each in machines if each not in but]


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_lost_its_session_goes_on_and_registers_in_a_new_epoch(seed: int) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        lost = others(machines, controller)[0]
        before = image(controller).brokers[lost.broker_id].epoch
        served = parts(lost)
        session(lost).expire()
        await until(lambda: parts(lost).membership.broker_epoch > before)
        await until(lambda: agree(machines, [0, 1, 2]))
        assert parts(lost) is served
        epoch = image(controller).brokers[lost.broker_id].epoch
        assert epoch == served.membership.broker_epoch
        assert not served.membership.out_of_touch
        assert isinstance(await submit(lost, CreateTopic("after")), CreatedTopic)

    simulate(main, seed)


def test_a_broker_is_out_of_touch_until_it_has_seen_what_was_decided_in_its_absence() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        lost = others(machines, controller)[0]
        membership = parts(lost).membership
        before = membership.broker_epoch
        world.network.cut(controller.name, lost.name)
        world.network.cut(lost.name, controller.name)
        session(lost).expire()
        await until(lambda: membership.broker_epoch > before)
        # It is in the store again; that another was elected to lead it has yet to hear.
        await until(lambda: image(controller).brokers[lost.broker_id].epoch > before)
        assert membership.out_of_touch
        world.network.heal_all()
        await until(lambda: agree(machines, [0, 1, 2]))
        assert not membership.out_of_touch

    simulate(main)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_that_lost_its_session_loses_the_office_and_nothing_else(seed: int) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        epoch = image(controller).controller_epoch
        session(controller).expire()
        await until(lambda: all(image(each).controller_epoch > epoch for each in machines))
        await until(lambda: agree(machines, [0, 1, 2]))
        assert {image(each).controller_epoch for each in machines} == {epoch + 1}
        assert len(controllers(machines)) == 1
        for machine in machines:
            assert isinstance(await submit(machine, CreateTopic(machine.name)), CreatedTopic)

    simulate(main, seed)


@pytest.mark.parametrize("seed", range(3))
def test_another_broker_controls_soon_after_the_controller_was_killed(seed: int) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        left = others(machines, controller)
        controller.kill()
        began = world.loop.time()
        await until(lambda: agree(left, [each.broker_id for each in left]))
        assert world.loop.time() - began < SESSION_S + 1
        assert len(controllers(left)) == 1
        assert isinstance(await submit(left[0], CreateTopic("after")), CreatedTopic)
        await controller.start()
        await until(lambda: agree(machines, [0, 1, 2]))

    simulate(main, seed)


def test_commands_that_are_submitted_while_the_controller_dies_wait_for_the_next() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        left = others(machines, controller)
        controller.kill()
        created = await asyncio.gather(
            *(submit(left[n % 2], CreateTopic(f"t{n}")) for n in range(10))
        )
        assert all(isinstance(each, CreatedTopic) for each in created)
        await until(lambda: agree(left, [each.broker_id for each in left]))
        assert len(image(left[0]).topics) == 10

    simulate(main)


def test_c9_without_a_controller_a_command_is_refused_in_time_and_in_words() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        for machine in machines:
            session(machine).suspend()
        await asyncio.sleep(SESSION_S)
        assert not controllers(machines)
        assert not any(parts(each).membership.is_controlled for each in machines)
        began = world.loop.time()
        submitting = [submit(each, CreateTopic("never")) for each in machines]
        for refused in await asyncio.gather(*submitting, return_exceptions=True):
            assert isinstance(refused, KafkaError)
            assert refused.code is ErrorCode.NOT_CONTROLLER
            assert "no controller at the moment" in refused.message
        assert world.loop.time() - began < COMMAND_TIMEOUT_S + 1
        for machine in machines:
            session(machine).resume()
        await until(lambda: len(controllers(machines)) == 1)
        await until(lambda: agree(machines, [0, 1, 2]))
        assert "never" not in image(machines[0]).topics
        assert all(parts(each).membership.is_controlled for each in machines)

    simulate(main)


@pytest.mark.parametrize(
    ("timeout_ms", "seconds"), [(0, 20.0), (-1, 20.0), (1, 2.0), (10_000, 8.0), (60_000, 20.0)]
)
def test_the_words_come_before_a_client_stops_waiting(timeout_ms: int, seconds: float) -> None:
    assert seconds_for(timeout_ms) == seconds


def test_c4_a_controller_out_of_touch_stops_controlling_before_its_session_ends() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        session(controller).suspend()
        await asyncio.sleep(SESSION_S * 2 / 3 - 0.1)
        assert controllers(machines) == [controller]
        assert not parts(controller).membership.out_of_touch
        await asyncio.sleep(0.2)
        assert not controllers(machines)
        assert parts(controller).membership.out_of_touch
        session(controller).resume()
        await until(lambda: len(controllers(machines)) == 1)
        assert not parts(controller).membership.out_of_touch
        await until(lambda: agree(machines, [0, 1, 2]))

    simulate(main)


def test_c4_what_a_store_was_silent_before_it_was_noticed_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        monkeypatch.setattr(MemoryStore, "silent_s", SESSION_S / 3)
        session(controller).suspend()
        await asyncio.sleep(SESSION_S / 3 - 0.1)
        assert controllers(machines) == [controller]
        assert not parts(controller).membership.out_of_touch
        await asyncio.sleep(0.2)
        assert not controllers(machines)
        assert parts(controller).membership.out_of_touch

    simulate(main)


def test_r17_a_process_that_was_stopped_is_out_of_touch_before_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 2)
        monkeypatch.setattr(MemoryStore, "silent_s", SESSION_S)
        assert session(machines[0]).session_state is SessionState.CONNECTED
        assert parts(machines[0]).membership.out_of_touch
        monkeypatch.undo()
        assert not parts(machines[0]).membership.out_of_touch

    simulate(main)


def test_a_short_loss_of_the_store_costs_nobody_the_office() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        epoch = image(controller).controller_epoch
        for machine in machines:
            session(machine).suspend()
        creating = asyncio.ensure_future(submit(machines[0], CreateTopic("meanwhile")))
        await asyncio.sleep(3)
        assert not creating.done()
        for machine in machines:
            session(machine).resume()
        assert isinstance(await creating, CreatedTopic)
        assert controllers(machines) == [controller]
        assert image(controller).controller_epoch == epoch

    simulate(main)


@pytest.mark.parametrize("loss", Loss)
def test_a_claim_whose_answer_is_lost_is_read_back(loss: Loss) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 2)
        (controller,) = controllers(machines)
        (other,) = others(machines, controller)
        epoch = image(controller).controller_epoch
        session(other).losses = [loss]
        session(controller).expire()
        await until(lambda: all(image(each).controller_epoch > epoch for each in machines))
        await until(lambda: agree(machines, [0, 1]))
        assert isinstance(await submit(controller, CreateTopic("after")), CreatedTopic)

    simulate(main)


def test_c5_a_restarted_broker_waits_until_its_old_session_is_over() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 2)
        (controller,) = controllers(machines)
        (other,) = others(machines, controller)
        old = await world.tree.connect()
        session(other).expire()
        path = layout.broker_path(other.broker_id)
        await until(lambda: path in world.tree.nodes)
        await other.stop()
        await register_in(old, other.broker_id)
        world.loop.call_later(5, old.expire)
        began = world.loop.time()
        await other.start()
        assert 4.9 < world.loop.time() - began < 6
        await until(lambda: agree(machines, [0, 1]))

    simulate(main)


def test_a_broker_id_in_use_is_refused_and_the_holder_named() -> None:
    async def main(world: World) -> None:
        await start_all(world, 2)
        held = await world.tree.connect()
        await register_in(held, 2)
        with pytest.raises(Exception, match=r"id 2 is in use by another live broker at b2:9092"):
            await add_machine(world, 2).start()

    simulate(main)


async def register_in(store: MemoryStore, broker_id: int) -> None:
    from tidelog.cluster.image import BrokerRegistration, Endpoint
    from tidelog.cluster.registration import register_broker

    endpoints = (Endpoint("PLAINTEXT", f"b{broker_id}", 9092),)
    await register_broker(store, BrokerRegistration(broker_id, -1, None, endpoints))


def test_a_store_that_a_newer_version_wrote_is_refused_by_a_broker_that_would_control() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 1)
        await machines[0].stop()
        store = await world.tree.connect()
        await store.multi([Set(layout.PRODUCER_IDS, b'{"v":99,"next":0,"broker":0}')])
        with pytest.raises(Exception, match=r"/producer_ids/next has version 99"):
            await machines[0].start()

    simulate(main)


def forget_all(world: World) -> None:
    world.tree.nodes = {}
    world.tree.states = [{}]


def test_a_directory_of_a_cluster_founds_no_other_one() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 1)
        await machines[0].stop()
        forget_all(world)
        with pytest.raises(Exception, match="the data directory belongs to a cluster"):
            await machines[0].start()

    simulate(main)


def test_a_store_that_holds_something_else_is_refused_by_name() -> None:
    async def main(world: World) -> None:
        store = await world.tree.connect()
        await store.multi([Create("/hbase", b"")])
        with pytest.raises(Exception, match=r"holds /hbase and has no .*; choose a chroot of its"):
            await add_machine(world, 0).start()
        assert list(world.tree.nodes) == ["/hbase"]

    simulate(main)


def test_a_directory_of_another_cluster_is_refused() -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 1)
        first = image(machines[0]).cluster_id
        await machines[0].stop()
        forget_all(world)
        await add_machine(world, 1).start()
        with pytest.raises(Exception, match=first):
            await machines[0].start()

    simulate(main)


@pytest.mark.parametrize("lag", [1, 3, 30])
def test_c7_a_claim_rests_on_no_outdated_answer_of_the_store(lag: int) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        await submit(machines[0], CreateTopic("before"))
        (controller,) = controllers(machines)
        epoch = image(controller).controller_epoch
        for machine in others(machines, controller):
            session(machine).lag = lag
        session(controller).expire()
        await until(lambda: all(image(each).controller_epoch > epoch for each in machines))
        await until(lambda: agree(machines, [0, 1, 2]))
        assert all("before" in image(each).topics for each in machines)
        assert len(controllers(machines)) == 1

    simulate(main)


def test_c7_brokers_that_all_see_an_outdated_store_still_find_the_office_vacant() -> None:
    """Nothing is written while nobody controls, so what they see would never become newer."""

    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        (controller,) = controllers(machines)
        left = others(machines, controller)
        for machine in left:
            session(machine).lag = 1
        controller.kill()
        await until(lambda: agree(left, [each.broker_id for each in left]))
        assert len(controllers(left)) == 1

    simulate(main)
