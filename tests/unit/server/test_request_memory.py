"""The pool that bounds what incoming requests hold."""

from __future__ import annotations

from tidelog.server.request_memory import RequestMemory


class Holder:
    held_bytes = 0
    is_receiving = True

    def __init__(self) -> None:
        self.granted = 0
        self.bytes_received = 0

    def return_unused_memory(self) -> None:
        pass

    def drop(self) -> None:
        raise AssertionError("nobody is judged here")

    def memory_granted(self) -> None:
        self.granted += 1


def new_pool(limit_bytes: int, frame_bytes_max: int) -> RequestMemory:
    """A pool whose judging never begins."""
    return RequestMemory(limit_bytes, frame_bytes_max, lambda seconds, function: None)


def test_memory_is_granted_while_there_is_some_and_queued_for_in_turn_after() -> None:
    memory = new_pool(300, 100)
    first, lane, second, third = Holder(), Holder(), Holder(), Holder()
    assert memory.reserve(first, 200, 100)
    assert memory.reserve(lane, 50, 100), "the lane lets one frame finish when the pool is spent"
    assert not memory.reserve(second, 150, 100)
    assert not memory.reserve(third, 50, 100)
    memory.release(first, 200)
    assert (second.granted, third.granted) == (1, 1)
    assert memory.reserved_bytes == 200


def test_the_lane_passes_on_to_the_next_in_turn() -> None:
    memory = new_pool(200, 100)
    full, lane, waiting, later = Holder(), Holder(), Holder(), Holder()
    assert memory.reserve(full, 100, 100)
    assert memory.reserve(lane, 80, 100)
    assert memory.reserve(lane, 20, 100), "whoever has the lane goes on growing in it"
    assert not memory.reserve(waiting, 80, 100)
    assert not memory.reserve(later, 80, 100)
    memory.release(lane, 100)
    assert (waiting.granted, later.granted) == (1, 0)


def test_the_smallest_frame_is_served_first() -> None:
    memory = new_pool(200, 100)
    full, lane, large, small = Holder(), Holder(), Holder(), Holder()
    assert memory.reserve(full, 100, 100)
    assert memory.reserve(lane, 80, 100)
    assert not memory.reserve(large, 80, 100)
    assert not memory.reserve(small, 80, 90)
    memory.release(lane, 0)
    assert (large.granted, small.granted) == (0, 1)


def test_a_connection_that_goes_away_gives_everything_back() -> None:
    memory = new_pool(200, 100)
    gone, lane, waiting = Holder(), Holder(), Holder()
    assert memory.reserve(gone, 100, 100)
    assert memory.reserve(lane, 10, 100)
    assert not memory.reserve(waiting, 90, 100)
    memory.forget(waiting)
    memory.forget(gone)
    memory.forget(lane)
    assert waiting.granted == 0
    assert memory.reserved_bytes == 0
    assert not memory.under_pressure
    assert memory.reserve(waiting, 100, 100)
