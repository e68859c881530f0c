"""Dangers to replicated records by name, each made to happen with real processes.

Three brokers and three ZooKeepers serve all tests of a kind; each has a topic of its own, with one
partition, three replicas and a minimum of two in sync unless it says otherwise.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.budget import reported_losses
from tests.chaos.faults import SESSION_S
from tests.chaos.network import can_isolate
from tests.chaos.power import can_cut_power
from tests.chaos.topics import Promises
from tests.chaos.world import Wishes, World
from tidelog.storage.life import CLEAN_SHUTDOWN

A, B, C = 0, 1, 2


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    wishes = Wishes(producers=0, members=0)
    with World(tmp_path_factory.mktemp("plain") / "world", wishes) as world:
        yield world


@pytest.fixture(scope="module")
def rooted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """With disks that lose their power, and cables that can be pulled."""
    assert can_isolate() and can_cut_power(), "no namespaces or no loop devices, though root"
    wishes = Wishes(producers=0, members=0, disks=True, network=True)
    with World(tmp_path_factory.mktemp("rooted") / "world", wishes) as world:
        yield world


@pytest.fixture(autouse=True)
def _whole_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in ("plain", "rooted"):
        if name in request.fixturenames:
            world: World = request.getfixturevalue(name)
            world.wait("every replica is in sync", world.whole)


# ---- brokers that are killed ----------------------------------------------------------------


def test_r1_a_replica_that_restarts_and_leads_at_once_keeps_what_it_does_not_know_committed(
    plain: World,
) -> None:
    """Both replicas die right after the acknowledgement; the follower alone comes back."""
    promises = Promises(plain, [A, B], min_insync_replicas="2")
    promises.send()
    plain.brokers.kill(B)
    plain.brokers.kill(A)
    plain.brokers.restart(B)
    promises.wait_leader(B)
    plain.brokers.restart(A)
    promises.wait_isr(A, B)
    promises.send()
    promises.assert_kept_by(A, B)


def test_r10_a_fetch_of_a_brokers_last_life_does_not_make_its_emptied_disk_count(
    plain: World,
) -> None:
    """The leader hangs with the fetch in its socket while the follower loses its disk."""
    promises = Promises(plain, [A, B, C])
    promises.send()
    plain.brokers.pause(A)
    plain.wipe(B)
    plain.brokers.launch(B)
    time.sleep(SESSION_S / 3)
    plain.brokers.resume(A)
    promises.send(20)
    plain.brokers.kill(A)
    promises.wait_leader(C, B)
    plain.brokers.restart(A)
    plain.brokers.wait_serving(B)
    promises.wait_isr(A, B, C)
    promises.assert_kept()


def test_c5_a_broker_that_is_back_before_its_session_is_over_serves_again(plain: World) -> None:
    promises = Promises(plain, [A, B, C])
    promises.send(20)
    for broker in (A, B):
        plain.brokers.kill(broker)
        plain.brokers.restart(broker)
        promises.wait_isr(A, B, C)
        promises.send(20)
    promises.assert_kept()


# ---- brokers that hang ----------------------------------------------------------------------


@pytest.mark.long
def test_c1_a_controller_that_slept_through_three_sessions_decides_nothing_any_more(
    plain: World,
) -> None:
    promises = Promises(plain, [A, B, C])
    promises.send()
    asleep = plain.controller()
    others = [each for each in plain.brokers.ids if each != asleep]
    plain.brokers.pause(asleep)
    slept_at = time.monotonic()
    plain.wait("another one controls", lambda: _controller(plain, others[0]) in others)
    promises.wait_leader(*others)
    meanwhile = Promises(plain, others, min_insync_replicas="1")
    meanwhile.send()
    promises.send()
    time.sleep(max(0.0, slept_at + 3 * SESSION_S - time.monotonic()))
    plain.brokers.resume(asleep)
    plain.wait(
        "all know who controls",
        lambda: all(_controller(plain, each) in others for each in plain.brokers.ids),
    )
    promises.wait_isr(A, B, C)
    assert meanwhile.state() == (meanwhile.leader(), set(others))
    # It asks the one that controls now.
    later = Promises(plain, [asleep, *others])
    later.send()
    for each in (promises, later):
        each.assert_kept()
    meanwhile.assert_kept_by(*others)


def _controller(world: World, broker: int) -> int:
    """Who controls, as one broker says; -1 where it does not say."""
    try:
        return world.metadata(broker).controller_id
    except Exception:
        return -1


@pytest.mark.long
@pytest.mark.root
def test_pause_kill_a_leader_that_slept_does_not_lead_again_without_what_others_took(
    rooted: World,
) -> None:
    """The leader hangs, the others go on, the next leader loses its power, the first wakes up."""
    promises = Promises(rooted, [A, B, C])
    promises.send()
    rooted.brokers.pause(A)
    promises.wait_isr(B, C)
    promises.send()
    rooted.cut_power(promises.leader())
    rooted.brokers.resume(A)
    promises.wait_leader(B, C)
    _start_missing(rooted)
    promises.wait_isr(A, B, C)
    promises.send()
    promises.assert_kept()


@pytest.mark.long
@pytest.mark.root
def test_part_kill_a_leader_that_was_cut_off_does_not_lead_again_without_what_others_took(
    rooted: World,
) -> None:
    promises = Promises(rooted, [A, B, C])
    promises.send()
    assert rooted.network is not None
    for peer in ("store", B, C):
        rooted.network.cut(A, peer)
    promises.wait_isr(B, C)
    promises.send()
    rooted.cut_power(promises.leader())
    rooted.network.heal()
    promises.wait_leader(B, C)
    _start_missing(rooted)
    promises.wait_isr(A, B, C)
    promises.send()
    promises.assert_kept()


# ---- brokers that lose records --------------------------------------------------------------


def _power_cut(world: World) -> None:
    world.cut_power(A)


def _empty_disk(world: World) -> None:
    world.wipe(A)


def _power_cut_with_a_lying_marker(world: World) -> None:
    """The marker of an older clean stop is back in its place."""
    marker, kept = world.data / str(A) / CLEAN_SHUTDOWN, world.directory / "marker"
    assert kept.exists()
    world.cut_power(A)
    shutil.copy(kept, marker)


def _keep_marker(world: World) -> None:
    """Of a clean stop, for a later life of the same broker."""
    world.brokers.stop(A)
    shutil.copy(world.data / str(A) / CLEAN_SHUTDOWN, world.directory / "marker")
    world.brokers.restart(A)


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(_power_cut, id="r13 power cut"),
        pytest.param(_empty_disk, id="r21 empty disk"),
        pytest.param(_power_cut_with_a_lying_marker, id="s8 lying marker"),
    ],
)
def test_the_last_replica_standing_does_not_lead_when_it_has_lost_records(
    rooted: World, lose: Callable[[World], None]
) -> None:
    """It was alone in sync; another one has everything and comes back later."""
    _keep_marker(rooted)
    promises = Promises(rooted, [A, B, C])
    promises.send()
    rooted.brokers.kill(C)
    promises.wait_isr(A, B)
    promises.send()
    rooted.brokers.kill(B)
    promises.wait_isr(A)
    lose(rooted)
    rooted.brokers.restart(A)
    time.sleep(SESSION_S)
    assert promises.leader() != A
    rooted.brokers.restart(B)
    promises.wait_leader(B)
    rooted.brokers.restart(C)
    promises.wait_isr(A, B, C)
    promises.send()
    promises.assert_kept()


@pytest.mark.long
@pytest.mark.root
def test_s8_a_start_on_a_full_disk_after_a_crash_is_no_clean_start(rooted: World) -> None:
    """It stops in order without having been able to write; what it says then must not be taken."""
    promises = Promises(rooted, [A, B, C])
    promises.send()
    rooted.disks[A].fill(0)
    try:
        rooted.brokers.kill(A)
        rooted.brokers.restart(A)
        rooted.brokers.stop(A)
    finally:
        rooted.disks[A].free()
    rooted.brokers.restart(A)
    promises.wait_isr(A, B, C)
    promises.send()
    promises.assert_kept()


@pytest.mark.long
@pytest.mark.root
def test_records_that_three_power_cuts_at_once_took_are_reported(rooted: World) -> None:
    """More than is promised without durability=fsync; whatever is gone, a broker says so."""
    promises = Promises(rooted, [A, B, C])
    safe = Promises(rooted, [A, B, C], durability="fsync")
    safe.send()
    promises.send()
    rooted.cut_power(A, B, C)
    _start_missing(rooted)
    promises.wait_isr(A, B, C)
    safe.wait_isr(A, B, C)
    safe.assert_kept()
    reported = reported_losses(map(rooted.brokers.log_of, rooted.brokers.ids))
    assert promises.lost() == 0 or f"{promises.topic}-0" in reported


def _start_missing(world: World) -> None:
    missing = [each for each in world.brokers.ids if not world.brokers.is_running(each)]
    for broker in missing:
        world.brokers.launch(broker)
    for broker in missing:
        world.brokers.wait_serving(broker)
