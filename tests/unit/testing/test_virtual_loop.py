"""The loop whose time is virtual."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidelog.testing.disk import PowerCut
from tidelog.testing.virtual_loop import (
    DeadlockError,
    VirtualClock,
    VirtualOffload,
    run_virtual,
    virtual_host,
    virtual_time,
)


def test_a_year_passes_at_once_and_to_the_instant() -> None:
    async def sleep() -> float:
        began = asyncio.get_running_loop().time()
        for _ in range(365):
            await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time() - began

    assert run_virtual(sleep(), limit_seconds=400 * 86_400) == 365 * 86_400


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def scenario() -> list[int]:
        fired: list[int] = []
        loop = asyncio.get_running_loop()
        for delay in (30, 10, 20):
            loop.call_later(delay, fired.append, delay)
        await asyncio.sleep(25)
        assert fired == [10, 20]
        await asyncio.sleep(25)
        return fired

    assert run_virtual(scenario()) == [10, 20, 30]


def test_a_wait_that_nothing_can_end_names_who_waits() -> None:
    async def waits_for_ever() -> None:
        asyncio.current_task().set_name("the test")  # type: ignore[union-attr]
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError, match=r"no timer is set.*the test at .*test_virtual_loop.py"):
        run_virtual(waits_for_ever())


def test_a_wait_beside_a_heartbeat_ends_at_the_limit() -> None:
    async def beat() -> None:
        while True:
            await asyncio.sleep(1)

    async def waits_for_ever() -> None:
        beating = asyncio.create_task(beat())
        await asyncio.get_running_loop().create_future()
        await beating

    with pytest.raises(DeadlockError, match="more than the limit"):
        run_virtual(waits_for_ever(), limit_seconds=60)


async def _course(seed: int) -> list[tuple[str, float]]:
    """Who ended when, of twenty pieces of work."""
    offload, seen = VirtualOffload(seed), []
    clock = VirtualClock(asyncio.get_running_loop())

    async def work(name: str) -> None:
        seen.append((await offload.run(str.upper, name), clock.monotonic()))

    await asyncio.gather(*(work(f"w{number}") for number in range(20)))
    return seen


def test_the_same_seed_gives_the_same_course_and_another_one_another() -> None:
    courses = {seed: run_virtual(_course(seed)) for seed in range(5)}
    assert all(run_virtual(_course(seed)) == course for seed, course in courses.items())
    orders = {tuple(name for name, _ in course) for course in courses.values()}
    assert len(orders) == 5
    assert all(sorted(order) == sorted(f"W{number}" for number in range(20)) for order in orders)


@virtual_time
async def test_one_thread_does_its_work_in_order() -> None:
    done: list[int] = []
    offload = VirtualOffload(3, threads=1)
    await asyncio.wait([offload.run(done.append, number) for number in range(20)])
    assert done == list(range(20))


@virtual_time
async def test_faults_reach_the_one_who_waits() -> None:
    def cut() -> None:
        raise PowerCut

    with pytest.raises(PowerCut):
        await VirtualOffload().run(cut)


@virtual_time
async def test_work_that_is_cancelled_before_its_turn_is_not_done() -> None:
    done: list[str] = []
    offload = VirtualOffload()
    offload.run(done.append, "cancelled").cancel()
    await offload.run(done.append, "kept")
    await asyncio.sleep(1)
    assert done == ["kept"]


@virtual_time
async def test_a_closed_offload_has_done_all_its_work_and_takes_no_more() -> None:
    offload = VirtualOffload(threads=2)
    futures = [offload.run(divmod, number, 2) for number in range(5)]
    offload.close()
    assert [future.result() for future in futures] == [divmod(number, 2) for number in range(5)]
    with pytest.raises(RuntimeError, match="closed"):
        offload.run(int)


@virtual_time
async def test_the_clocks_run_with_the_loop_and_the_wall_clock_can_jump() -> None:
    host = virtual_host()
    clock = host.clock
    assert isinstance(clock, VirtualClock)
    wall_ms, seconds = clock.wall_ms(), clock.monotonic()
    await asyncio.sleep(3600)
    assert (clock.wall_ms() - wall_ms, clock.monotonic() - seconds) == (3_600_000, 3600)
    clock.jump(-7_200_000)
    assert (clock.wall_ms() - wall_ms, clock.monotonic() - seconds) == (-3_600_000, 3600)


@virtual_time
async def test_fixtures_reach_a_test_in_virtual_time(tmp_path: Path) -> None:
    assert tmp_path.is_dir()


@virtual_time
async def test_there_are_no_threads() -> None:
    with pytest.raises(RuntimeError, match="VirtualOffload"):
        await asyncio.to_thread(int)
