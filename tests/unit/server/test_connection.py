"""Requests of one connection: their order, their waits, and what ends them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.unit.server.middle import REQUESTS_MAX, Middle, Peer, turns_of_the_loop
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.server.routes import Route
from tidelog.testing.virtual_loop import virtual_time


class Waits:
    """A handler whose answers come when the test says so."""

    def __init__(self) -> None:
        self.futures: dict[str, asyncio.Future[HeartbeatResponse]] = {}

    def __call__(self, request: HeartbeatRequest, _: object) -> asyncio.Future[HeartbeatResponse]:
        future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        self.futures[request.group_id] = future
        return future

    async def answer(self, *names: str) -> None:
        for name in names:
            self.futures[name].set_result(HeartbeatResponse())
            await turns_of_the_loop()


def beat(peer: Peer, number: int, name: str) -> None:
    peer.ask(number, "Heartbeat", 4, HeartbeatRequest(name))


@virtual_time
async def test_a_connection_knows_its_peer_with_and_without_the_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Middle(monkeypatch, {}).connect().connection
    assert (connection.peer, connection.host) == ("127.0.0.1:1", "127.0.0.1")


@virtual_time
async def test_answers_leave_in_the_order_of_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits()
    peer = Middle(monkeypatch, {"Heartbeat": Route(waits, overlaps=True)}).connect()
    for number, name in enumerate("abc"):
        beat(peer, number, name)
    assert sorted(waits.futures) == ["a", "b", "c"], "each starts while those before it wait"
    await waits.answer("c", "b")
    assert peer.answered == []
    await waits.answer("a")
    assert peer.answered == [0, 1, 2]


@virtual_time
async def test_a_wait_that_does_not_overlap_holds_up_those_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, seen = Waits(), []

    def leave(request: LeaveGroupRequest, _: object) -> LeaveGroupResponse:
        seen.append(request.group_id)
        return LeaveGroupResponse()

    peer = Middle(monkeypatch, {"Heartbeat": waits, "LeaveGroup": leave}).connect()
    beat(peer, 0, "a")
    peer.ask(1, "LeaveGroup", 4, LeaveGroupRequest("b"))
    await turns_of_the_loop()
    assert seen == [] and peer.answered == []
    await waits.answer("a")
    assert seen == ["b"] and peer.answered == [0, 1]


@virtual_time
async def test_an_answer_at_once_waits_behind_one_that_overlaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits()
    handlers = {
        "Heartbeat": Route(waits, overlaps=True),
        "LeaveGroup": lambda *_: LeaveGroupResponse(),
    }
    peer = Middle(monkeypatch, handlers).connect()
    beat(peer, 0, "a")
    peer.ask(1, "LeaveGroup", 4, LeaveGroupRequest("b"))
    assert peer.answered == []
    await waits.answer("a")
    assert peer.answered == [0, 1]


@virtual_time
async def test_no_more_requests_start_than_may_be_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits()
    peer = Middle(monkeypatch, {"Heartbeat": Route(waits, overlaps=True)}).connect()
    names = [f"g{number}" for number in range(REQUESTS_MAX + 2)]
    for number, name in enumerate(names):
        beat(peer, number, name)
    assert list(waits.futures) == names[:REQUESTS_MAX]
    await waits.answer(names[0])
    assert list(waits.futures) == names[: REQUESTS_MAX + 1]
    await waits.answer(*names[1:])
    assert peer.answered == list(range(len(names)))


@virtual_time
async def test_a_request_that_says_nothing_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits()
    handlers = {"Heartbeat": Route(waits, overlaps=True), "LeaveGroup": lambda *_: None}
    peer = Middle(monkeypatch, handlers).connect()
    beat(peer, 0, "a")
    peer.ask(1, "LeaveGroup", 4, LeaveGroupRequest("b"))
    beat(peer, 2, "c")
    await waits.answer("c", "a")
    assert peer.answered == [0, 2]


@virtual_time
async def test_requests_that_came_together_are_answered_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Middle(monkeypatch, {"Heartbeat": lambda *_: HeartbeatResponse()}).connect()
    frames = [peer.frame(n, "Heartbeat", 4, HeartbeatRequest("g")) for n in range(5)]
    peer.send(b"".join(frames))
    assert peer.answered == [0, 1, 2, 3, 4]
    assert len(peer.writes) == 1


@virtual_time
async def test_waits_of_a_peer_that_left_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = []

    async def sync(*_: object) -> SyncGroupResponse:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append("task")
            raise
        return SyncGroupResponse()

    waits = Waits()
    handlers = {"Heartbeat": Route(waits, overlaps=True), "SyncGroup": sync}
    middle = Middle(monkeypatch, handlers)
    peer = middle.connect()
    beat(peer, 0, "a")
    peer.ask(1, "SyncGroup", 4, SyncGroupRequest("g"))
    await turns_of_the_loop()
    peer.close()
    await turns_of_the_loop()
    assert waits.futures["a"].cancelled() and cancelled == ["task"]
    assert not middle.dispatcher.running_tasks
    assert not middle.listener.connections


@virtual_time
async def test_an_unexpected_error_costs_this_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: LeaveGroupRequest, _: object) -> LeaveGroupResponse:
        raise RuntimeError("a fault of ours")

    handlers: dict[str, Any] = {"LeaveGroup": fail, "Heartbeat": lambda *_: HeartbeatResponse()}
    middle = Middle(monkeypatch, handlers)
    peer, other = middle.connect(), middle.connect()
    with caplog.at_level(logging.WARNING):
        peer.ask(0, "LeaveGroup", 4, LeaveGroupRequest("g"))
    await turns_of_the_loop()
    assert peer.is_closed and peer.answered == []
    assert "a fault of ours" in caplog.text
    beat(other, 0, "g")
    assert other.answered == [0] and not other.is_closed


@virtual_time
async def test_an_error_after_a_wait_keeps_the_answers_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits()
    peer = Middle(monkeypatch, {"Heartbeat": Route(waits, overlaps=True)}).connect()
    for number, name in enumerate("abc"):
        beat(peer, number, name)
    await waits.answer("a")
    waits.futures["b"].set_exception(RuntimeError("lost"))
    await turns_of_the_loop()
    assert peer.answered == [0] and peer.is_closed
    assert waits.futures["c"].cancelled()


@virtual_time
async def test_waits_that_end_together_are_answered_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits()
    peer = Middle(monkeypatch, {"Heartbeat": Route(waits, overlaps=True)}).connect()
    for number, name in enumerate("abc"):
        beat(peer, number, name)
    waits.futures["a"].set_result(HeartbeatResponse())
    waits.futures["b"].set_result(HeartbeatResponse())
    await turns_of_the_loop()
    assert peer.answered == [0, 1] and len(peer.writes) == 1
    await waits.answer("c")
    assert peer.answered == [0, 1, 2] and len(peer.writes) == 2


@virtual_time
async def test_an_answer_that_is_held_for_the_next_leaves_though_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits()
    peer = Middle(monkeypatch, {"Heartbeat": Route(waits, overlaps=True)}).connect()
    for number, name in enumerate("ab"):
        beat(peer, number, name)
    waits.futures["a"].set_result(HeartbeatResponse())
    waits.futures["b"].set_exception(RuntimeError("lost"))
    await turns_of_the_loop()
    assert peer.answered == [0] and peer.is_closed


@virtual_time
async def test_nothing_is_taken_up_from_a_peer_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []

    def answer(request: SyncGroupRequest, _: object) -> SyncGroupResponse:
        started.append(request.group_id)
        return SyncGroupResponse(assignment=bytes(40_000))

    peer = Middle(monkeypatch, {"SyncGroup": answer}).connect()
    peer.is_reading = False
    for number in range(4):
        peer.ask(number, "SyncGroup", 4, SyncGroupRequest(f"g{number}"))
    await turns_of_the_loop()
    assert started == ["g0"], "the transport holds more than it should: the rest waits"
    while len(started) < 4:
        taken = len(started)
        peer.read()
        await turns_of_the_loop()
        assert len(started) == taken + 1
    peer.read()
    assert peer.answered == [0, 1, 2, 3]


@virtual_time
async def test_a_drain_answers_what_was_asked_and_reads_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits()
    middle = Middle(monkeypatch, {"Heartbeat": Route(waits, overlaps=True)})
    busy, idle = middle.connect(), middle.connect()
    beat(busy, 0, "a")
    loop = asyncio.get_running_loop()
    draining = loop.create_task(middle.listener.drain(loop.time() + 10))
    await turns_of_the_loop()
    assert idle.is_closed and not busy.is_closed
    beat(busy, 1, "b")
    await waits.answer("a")
    await draining
    assert busy.answered == [0] and busy.is_closed and list(waits.futures) == ["a"]


@virtual_time
async def test_a_drain_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits()
    middle = Middle(monkeypatch, {"Heartbeat": waits})
    peer = middle.connect()
    beat(peer, 0, "a")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await middle.listener.drain(began + 10)
    await turns_of_the_loop()
    assert loop.time() - began == pytest.approx(10)
    assert peer.is_closed and waits.futures["a"].cancelled()


@virtual_time
async def test_bad_requests_again_and_again_do_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    middle = Middle(monkeypatch, {})

    def lines_of_bad_frames(count: int) -> list[str]:
        caplog.clear()
        for _ in range(count):
            peer = middle.connect()
            peer.send(b"\xff\xff\xff\xff")
            assert peer.is_closed
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

    (first,) = lines_of_bad_frames(1_000)
    assert first.startswith("closing connection peer=127.0.0.1:1 ")
    await asyncio.sleep(11)
    (later,) = lines_of_bad_frames(10)
    assert later.endswith("(one of 1000 from 127.0.0.1)")
