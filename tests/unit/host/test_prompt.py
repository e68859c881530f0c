"""A future whose listener hears of it in the same turn of the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tidelog.host.offload import ThreadOffload
from tidelog.host.prompt import Prompt, when_done
from tidelog.testing.virtual_loop import virtual_time


@virtual_time
async def test_the_listener_hears_at_once_and_only_once() -> None:
    future: Prompt[int] = Prompt()
    heard: list[int] = []
    when_done(future, lambda done: heard.append(done.result()))
    future.settle(1)
    assert heard == [1], "not in the next turn"
    future.settle(2)
    assert await future == 1
    await asyncio.sleep(0)
    assert heard == [1]


@virtual_time
async def test_what_is_not_settled_is_heard_of_in_the_next_turn() -> None:
    heard: list[str] = []
    ended, failed, cancelled = Prompt[int](), Prompt[int](), Prompt[int]()
    when_done(ended, lambda _: heard.append("ended"))
    when_done(failed, lambda _: heard.append("failed"))
    when_done(cancelled, lambda _: heard.append("cancelled"))
    ended.set_result(1)
    failed.set_exception(ValueError())
    cancelled.cancel()
    assert heard == []
    await asyncio.sleep(0)
    assert heard == ["ended", "failed", "cancelled"]
    assert isinstance(failed.exception(), ValueError)


@virtual_time
async def test_who_listens_after_the_end_hears_in_the_next_turn() -> None:
    future: Prompt[int] = Prompt()
    future.settle(1)
    heard: list[int] = []
    when_done(future, lambda done: heard.append(done.result()))
    assert heard == []
    await asyncio.sleep(0)
    assert heard == [1]


@virtual_time
async def test_a_listener_that_fails_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def fail(_: asyncio.Future[int]) -> None:
        raise ValueError("a listener's own fault")

    first, second = Prompt[int](), Prompt[int]()
    when_done(first, fail)
    when_done(second, lambda done: heard.append(done.result()))
    for each in (first, second):
        each.settle(1)
    assert heard == [1]
    assert "a listener's own fault" in caplog.text


def test_the_work_of_a_thread_is_heard_of_without_another_turn() -> None:
    async def scenario() -> list[str]:
        offload = ThreadOffload("test", 1)
        seen: list[str] = []
        done = asyncio.Event()

        def heard(future: asyncio.Future[str]) -> None:
            seen.append(future.result())
            done.set()

        future = offload.run(str.upper, "result")
        future.add_done_callback(lambda _: seen.append("a turn later"))
        when_done(future, heard)
        await done.wait()
        await asyncio.sleep(0)
        offload.close()
        return seen

    assert asyncio.run(scenario()) == ["RESULT", "a turn later"]


def test_errors_and_cancellation_of_a_threads_work() -> None:
    async def scenario() -> None:
        offload, began, go = ThreadOffload("test", 1), threading.Event(), threading.Event()
        ran: list[str] = []

        def block() -> None:
            began.set()
            go.wait()

        blocking = offload.run(block)
        never = offload.run(ran.append, "never")
        failing = offload.run(int, "x")
        await asyncio.to_thread(began.wait)
        never.cancel()
        await asyncio.sleep(0)  # its callback takes the work from the thread
        go.set()
        await blocking
        with pytest.raises(ValueError, match="invalid literal"):
            await failing
        offload.close()
        assert ran == [], "what was cancelled before its turn is not done"

    asyncio.run(scenario())
