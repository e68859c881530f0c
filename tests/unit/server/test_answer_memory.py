"""Large answers are charged until they are gone, whichever way they go."""

from __future__ import annotations

import asyncio

from tidelog.protocol.primitives import Part
from tidelog.server.answer_memory import AnswerMemory


def answer(size: int) -> list[Part]:
    return [b"x" * (size // 2), b"y" * (size - size // 2)]


def test_the_charge_ends_with_the_last_bytes_of_the_answer() -> None:
    memory = AnswerMemory(100)
    parts = answer(60)
    assert memory.charge(parts)
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
        assert memory.charge(first)
        waiting = [asyncio.ensure_future(memory.wait_and_charge(each)) for each in (second, third)]
        await asyncio.sleep(0)
        assert not memory.charge(answer(10)), "nobody goes before those who wait"
        first.clear()
        await asyncio.gather(*waiting)
        assert memory.held_bytes == 100
        second.clear()
        third.clear()
        assert memory.held_bytes == 0
        larger = answer(1_000)
        assert memory.charge(larger)
        larger.clear()
        assert memory.held_bytes == 0

    asyncio.run(scenario())


def test_one_who_gives_up_waiting_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        memory = AnswerMemory(100)
        held = answer(100)
        assert memory.charge(held)
        gone = asyncio.ensure_future(memory.wait_and_charge(answer(50)))
        stays = asyncio.ensure_future(memory.wait_and_charge(last := answer(80)))
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
        assert memory.charge(held)
        gone = asyncio.ensure_future(memory.wait_and_charge(answer(50)))
        await asyncio.sleep(0)
        held.clear()
        gone.cancel()
        await asyncio.wait([gone])
        assert memory.held_bytes == 0

    asyncio.run(scenario())
