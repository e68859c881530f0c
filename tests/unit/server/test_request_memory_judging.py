"""Who is dropped while others wait for request memory: those that do not fill what they hold."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.server.request_memory import (
    BLOCKED_SECONDS_MAX,
    FILL_SECONDS_MAX,
    PERIOD_SECONDS,
    RequestMemory,
)

FRAME_BYTES_MAX = 1000
LIMIT_BYTES = 2000


class Holder:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.bytes_received = 0
        self.held_bytes = 0
        self.is_receiving = True
        self.unused = 0
        self.granted = 0
        self.dropped = False

    def reserve(self, growth_bytes: int, frame_bytes: int) -> bool:
        given = self.pool.memory.reserve(self, growth_bytes, frame_bytes)
        if given:
            self.held_bytes += growth_bytes
        return given

    def memory_granted(self) -> None:
        self.granted += 1

    def return_unused_memory(self) -> None:
        unused, self.unused = self.unused, 0
        if unused:
            self.pool.memory.release(self, unused)

    def drop(self) -> None:
        self.dropped = True
        self.pool.memory.forget(self)


class Pool:
    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []
        self.memory = RequestMemory(
            LIMIT_BYTES, FRAME_BYTES_MAX, lambda _, function: self.timers.append(function)
        )

    def holder(self, growth_bytes: int) -> Holder:
        holder = Holder(self)
        assert holder.reserve(growth_bytes, growth_bytes)
        return holder

    def waiter(self, growth_bytes: int) -> Holder:
        waiter = Holder(self)
        assert not waiter.reserve(growth_bytes, growth_bytes)
        return waiter

    def period(self) -> None:
        (timer,) = self.timers
        self.timers.clear()
        timer()


def test_nobody_is_judged_while_there_is_memory() -> None:
    pool = Pool()
    for _ in range(10):
        pool.holder(100)
    assert pool.timers == []


def test_the_slowest_for_its_memory_goes_first_and_no_more_than_need_be() -> None:
    pool = Pool()
    stalled, slow, steady = pool.holder(400), pool.holder(300), pool.holder(300)
    lane = pool.holder(1)
    waiter = pool.waiter(350)
    for holder, share in ((stalled, 0.01), (slow, 0.05), (steady, 0.2), (lane, 1.0)):
        holder.bytes_received += round(holder.held_bytes * share)
    pool.period()
    assert [each.dropped for each in (stalled, slow, steady, lane)] == [True, False, False, False]
    assert waiter.granted == 1
    assert pool.timers == []


def test_a_byte_now_and_then_does_not_save_a_frame_and_a_steady_stream_does() -> None:
    pool = Pool()
    trickling, steady = pool.holder(500), pool.holder(500)
    lane = pool.holder(1)
    waiter = pool.waiter(600)
    needed = round(500 * PERIOD_SECONDS / FILL_SECONDS_MAX)
    for _ in range(5):
        trickling.bytes_received += 1
        steady.bytes_received += needed
        lane.bytes_received += 1
        pool.period()
    assert (trickling.dropped, steady.dropped, lane.dropped) == (True, False, False)
    assert waiter.granted == 0


def test_a_stalled_lane_is_freed_and_passes_on() -> None:
    pool = Pool()
    busy = pool.holder(1000)
    lane = pool.holder(50)
    waiter = pool.waiter(60)
    busy.bytes_received += 1000
    pool.period()
    assert lane.dropped and not busy.dropped
    assert waiter.granted == 1


def test_a_lane_that_just_keeps_up_is_ended_after_all() -> None:
    pool = Pool()
    busy = pool.holder(1000)
    lane = pool.holder(50)
    pool.waiter(60)
    periods = 0
    while not lane.dropped:
        busy.bytes_received += 1000
        lane.bytes_received += 50
        pool.period()
        periods += 1
    assert periods == round(FILL_SECONDS_MAX / PERIOD_SECONDS) + 1


def test_memory_that_no_frame_needs_is_given_back_before_anybody_is_dropped() -> None:
    pool = Pool()
    idle, stalled = pool.holder(500), pool.holder(500)
    idle.unused = 500
    lane = pool.holder(1)
    lane.bytes_received += 1
    waiter = pool.waiter(400)
    pool.period()
    assert waiter.granted == 1
    assert not (idle.dropped or stalled.dropped or lane.dropped)


def test_one_that_came_during_the_period_is_judged_in_the_next() -> None:
    pool = Pool()
    old = pool.holder(1000)
    lane = pool.holder(1)
    pool.waiter(900)
    second = pool.waiter(901)
    old.bytes_received, lane.bytes_received = 1, 1
    pool.period()
    assert old.dropped and not second.dropped


def test_those_that_wait_are_not_held_to_a_rate() -> None:
    pool = Pool()
    waiter = pool.holder(600)
    stalled = pool.holder(400)
    lane = pool.holder(1)
    lane.bytes_received += 1
    assert not waiter.reserve(300, 900)
    pool.period()
    assert stalled.dropped and not waiter.dropped
    assert waiter.granted == 1


def test_a_smaller_frame_that_fits_does_not_queue_behind_a_larger_one() -> None:
    pool = Pool()
    pool.holder(800)
    pool.holder(300)
    pool.waiter(900)
    small = Holder(pool)
    assert small.reserve(100, 100)


def test_one_that_we_do_not_read_is_dropped_only_when_clients_have_given_up() -> None:
    pool = Pool()
    blocked, lane = pool.holder(1000), pool.holder(1)
    blocked.is_receiving = False
    pool.waiter(350)
    for _ in range(round(BLOCKED_SECONDS_MAX / PERIOD_SECONDS)):
        lane.bytes_received += 1
        lane.is_receiving = False
        pool.period()
        assert not blocked.dropped
        assert not lane.dropped, "we do not read it, whatever time it takes"
    pool.period()
    assert blocked.dropped


def test_one_that_we_did_not_read_for_a_part_of_the_period_is_not_judged() -> None:
    pool = Pool()
    began_late, paused, stalled = pool.holder(300), pool.holder(300), pool.holder(400)
    pool.holder(1)
    began_late.is_receiving = False
    pool.waiter(600)
    began_late.is_receiving = True
    pool.memory.excuse(paused)
    pool.period()
    assert [each.dropped for each in (began_late, paused, stalled)] == [False, False, True]


def test_one_that_waited_for_memory_itself_is_not_judged_by_what_it_was_given() -> None:
    pool = Pool()
    done, victim = pool.holder(700), pool.holder(300)
    pool.holder(1)
    pool.waiter(900)
    assert not victim.reserve(400, 700)
    pool.memory.forget(done)
    victim.held_bytes += 400
    assert victim.granted == 1
    pool.period()
    assert not victim.dropped
