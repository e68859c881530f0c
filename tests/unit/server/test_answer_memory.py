"""Large answers are charged until they are gone, whichever way they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.protocol.primitives import Part
from tidelog.server.answer_memory import AnswerMemory


def answer(size: int) -> list[Part]:
    return [b"x" * (size // 2), b"y" * (size - size // 2)]


class Reader:
    def __init__(self) -> None:
        self.bytes_taken: int | None = 0
        self.parts: list[Part] = []
        self.dropped = False

    def drop_unread(self) -> None:
        self.dropped = True
        self.parts.clear()


READER = Reader()


def test_the_charge_ends_with_the_last_bytes_of_the_answer() -> None:
    memory = AnswerMemory(100)
    parts = answer(60)
    assert memory.charge(parts, READER)
    assert b"".join(bytes(part) for part in parts) == b"x" * 30 + b"y" * 30  # type: ignore[arg-type]
    assert memory.held_bytes == 60
    parts.pop(0)
    assert memory.held_bytes == 60
    parts.pop(0)
    assert memory.held_bytes == 0


def test_an_answer_waits_for_room_in_turn_and_one_always_has_room() -> None:
    async def scenario() -> None:
        memory = AnswerMemory(100)
        first, second, third = answer(60), answer(70), answer(30)
        assert memory.charge(first, READER)
        waiting = [
            asyncio.ensure_future(memory.wait_and_charge(each, READER)) for each in (second, third)
        ]
        await asyncio.sleep(0)
        assert not memory.charge(answer(10), READER), "nobody goes before those who wait"
        first.clear()
        await asyncio.gather(*waiting)
        assert memory.held_bytes == 100
        second.clear()
        third.clear()
        assert memory.held_bytes == 0
        larger = answer(1_000)
        assert memory.charge(larger, READER)
        larger.clear()
        assert memory.held_bytes == 0

    asyncio.run(scenario())


def test_one_who_gives_up_waiting_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        memory = AnswerMemory(100)
        held = answer(100)
        assert memory.charge(held, READER)
        gone = asyncio.ensure_future(memory.wait_and_charge(answer(50), READER))
        stays = asyncio.ensure_future(memory.wait_and_charge(last := answer(80), READER))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        held.clear()
        await stays
        assert memory.held_bytes == 80
        last.clear()
        assert memory.held_bytes == 0

    asyncio.run(scenario())


def test_a_charge_given_to_one_that_is_cancelled_at_that_moment_comes_back() -> None:
    async def scenario() -> None:
        memory = AnswerMemory(100)
        held = answer(100)
        assert memory.charge(held, READER)
        gone = asyncio.ensure_future(memory.wait_and_charge(answer(50), READER))
        await asyncio.sleep(0)
        held.clear()
        gone.cancel()
        await asyncio.wait([gone])
        assert memory.held_bytes == 0

    asyncio.run(scenario())


def test_one_who_gives_up_waiting_lets_a_smaller_one_behind_it_go_on() -> None:
    async def scenario() -> None:
        memory = AnswerMemory(100)
        held, small = answer(60), answer(40)
        assert memory.charge(held, READER)
        gone = asyncio.ensure_future(memory.wait_and_charge(answer(50), READER))
        stays = asyncio.ensure_future(memory.wait_and_charge(small, READER))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait_for(stays, 10)
        assert memory.held_bytes == 100

    asyncio.run(scenario())


def test_while_others_wait_those_that_read_nothing_are_dropped_and_the_largest_first() -> None:
    async def scenario() -> None:
        timers: list[Callable[[], None]] = []
        memory = AnswerMemory(100, lambda _, function: timers.append(function))
        readers = [Reader() for _ in range(4)]
        small, _, steady, parked = readers
        for reader, size in zip(readers, (10, 30, 40, 20), strict=True):
            reader.parts = answer(size)
            assert memory.charge(reader.parts, reader)
        # The answer of one waits for an earlier one of ours, not for its peer.
        parked.bytes_taken = None
        assert timers == [], "nobody is judged while there is room"
        waits = asyncio.ensure_future(memory.wait_and_charge(wanted := answer(25), READER))
        await asyncio.sleep(0)
        steady.bytes_taken = 1
        timers.pop()()
        await asyncio.wait_for(waits, 10)
        assert [each.dropped for each in readers] == [False, True, False, False]
        assert memory.held_bytes == 95
        timers.pop()()
        assert timers == [], "nobody waits any more"
        assert not small.dropped
        wanted.clear()

    asyncio.run(scenario())


def test_a_reader_that_is_gone_is_not_kept_by_its_charge() -> None:
    memory = AnswerMemory(100)
    reader = Reader()
    reader.parts = answer(50)
    assert memory.charge(reader.parts, reader)
    del reader
    assert memory.held_bytes == 0
