"""From a frame to parts: stages, waits, what is large, and what closes a connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.server.middle import Middle, turns_of_the_loop
from tidelog.errors import ErrorCode, ProtocolError
from tidelog.protocol.apis import api
from tidelog.protocol.framing import decode_response, encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.server.answer_memory import ANSWER_BYTES_MAX, ANSWERS_BYTES_MAX
from tidelog.server.dispatch import CloseConnection, Pending
from tidelog.server.pieces import LazyList
from tidelog.server.routes import Route
from tidelog.testing.virtual_loop import virtual_time

GROUPS = 5_000


def frame(name: str, version: int, message: object) -> memoryview:
    parts = encode_request(api(name), version, 7, "client", message)
    return memoryview(b"".join(bytes(part) for part in parts)[4:])  # type: ignore[arg-type]


HEARTBEAT = frame("Heartbeat", 4, HeartbeatRequest("g"))
MANY_GROUPS = frame("DeleteGroups", 2, DeleteGroupsRequest([f"g{n}" for n in range(GROUPS)]))


class Caller:
    """A connection, as the dispatcher sees it."""

    def __init__(self) -> None:
        self.frame_in_use = False
        self.known: dict[int, Any] = {}
        self.peer = "peer"
        self.principal = SimpleNamespace(name="User:ANONYMOUS", is_broker=False)
        self.host = "127.0.0.1"
        self.bytes_taken = None
        self.is_dropped = False

    def drop_unread(self) -> None:
        self.is_dropped = True


def start(middle: Middle, request: memoryview, caller: Caller | None = None) -> Any:
    return middle.dispatcher.start(request, caller or Caller())  # type: ignore[arg-type]


def decoded(parts: Any, name: str = "Heartbeat", version: int = 4) -> Any:
    assert isinstance(parts, list)
    number, answer = decode_response(api(name), version, b"".join(map(bytes, parts))[4:])
    assert number == 7
    return answer


async def outcome(result: Any) -> Any:
    """What a request comes to, after all its waits."""
    while isinstance(result, Pending):
        await asyncio.wait([result.future])
        result = result.resume()
    return result


@virtual_time
async def test_a_plain_answer_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    middle = Middle(monkeypatch, {"Heartbeat": lambda *_: HeartbeatResponse(error_code=27)})
    assert decoded(start(middle, HEARTBEAT)).error_code == 27
    assert middle.metrics.api(12, "Heartbeat").requests == 1


@virtual_time
async def test_nothing_is_answered_where_the_handler_has_nothing_to_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert start(Middle(monkeypatch, {"Heartbeat": lambda *_: None}), HEARTBEAT) is None


@virtual_time
async def test_a_coroutine_runs_in_a_task_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(*_: object) -> HeartbeatResponse:
        await asyncio.sleep(60)
        return HeartbeatResponse(error_code=16)

    middle = Middle(monkeypatch, {"Heartbeat": slow})
    pending = start(middle, HEARTBEAT)
    assert isinstance(pending, Pending) and not pending.overlaps
    assert len(middle.dispatcher.running_tasks) == 1
    assert decoded(await outcome(pending)).error_code == 16
    assert not middle.dispatcher.running_tasks


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_wait_lets_the_next_request_start_where_its_route_says_so(
    monkeypatch: pytest.MonkeyPatch, overlaps: bool
) -> None:
    @virtual_time
    async def run() -> None:
        future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        route = Route(lambda *_: future, overlaps=overlaps)
        pending = start(Middle(monkeypatch, {"Heartbeat": route}), HEARTBEAT)
        assert pending.overlaps is overlaps
        future.set_result(HeartbeatResponse(error_code=3))
        assert decoded(pending.resume()).error_code == 3

    run()


@virtual_time
async def test_a_request_is_applied_after_its_preparation_and_keeps_its_frame_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    applied = []

    def apply(_: object, context: Any) -> HeartbeatResponse:
        applied.append(context.prepared)
        return HeartbeatResponse()

    route = Route(apply, prepare=lambda *_: prepared)
    caller = Caller()
    pending = start(Middle(monkeypatch, {"Heartbeat": route}), HEARTBEAT, caller)
    assert caller.frame_in_use and not pending.overlaps and applied == []
    prepared.set_result("looked at")
    decoded(pending.resume())
    assert applied == ["looked at"] and not caller.frame_in_use


@virtual_time
async def test_an_unexpected_error_closes_the_connection_and_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no such thing")

    async def fails_later(*_: object) -> None:
        await asyncio.sleep(1)
        raise ValueError("no such thing")

    for handler in (fails, fails_later):
        caplog.clear()
        with caplog.at_level(logging.ERROR), pytest.raises(CloseConnection, match="Heartbeat fail"):
            await outcome(start(Middle(monkeypatch, {"Heartbeat": handler}), HEARTBEAT))
        assert "request failed api=Heartbeat version=4" in caplog.text
        assert "no such thing" in caplog.text


@virtual_time
async def test_a_cancelled_wait_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
    pending = start(Middle(monkeypatch, {"Heartbeat": lambda *_: future}), HEARTBEAT)
    future.cancel()
    with pytest.raises(CloseConnection, match="cancelled"):
        await outcome(pending)


@virtual_time
async def test_what_is_not_served_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    middle = Middle(monkeypatch, {"Heartbeat": lambda *_: HeartbeatResponse()})
    with pytest.raises(CloseConnection, match="unknown api key 999"):
        start(middle, memoryview(b"\x03\xe7" + bytes(HEARTBEAT[2:])))
    with pytest.raises(CloseConnection, match="version 9 is not served"):
        start(middle, memoryview(b"\x00\x0c\x00\x09" + bytes(HEARTBEAT[4:])))
    with pytest.raises(ProtocolError):
        start(middle, HEARTBEAT[:-4])


@virtual_time
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    middle = Middle(monkeypatch, {"ApiVersions": lambda *_: None})
    asked = bytes(frame("ApiVersions", 0, ApiVersionsRequest()))
    parts = start(middle, memoryview(asked[:2] + b"\x00\x63" + asked[4:]))
    answer = decoded(parts, "ApiVersions", 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    # With more than that franz-go would not ask again, and never learn of features.
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, 4)]


# -- large requests and answers -------------------------------------------------------------------


@virtual_time
async def test_a_large_request_leaves_the_loop_to_others_while_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def count(request: DeleteGroupsRequest, _: object) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(str(len(request.groups_names)))])

    middle, caller = Middle(monkeypatch, {"DeleteGroups": count}), Caller()
    pending = start(middle, MANY_GROUPS, caller)
    assert isinstance(pending, Pending) and caller.frame_in_use
    answer = decoded(await outcome(pending), "DeleteGroups", 2)
    assert answer.results[0].group_id == str(GROUPS)
    assert middle.turns.pauses >= GROUPS // 256 - 2
    assert not caller.frame_in_use


@virtual_time
async def test_a_large_request_in_parts_is_applied_part_by_part_and_answered_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []

    def split(request: DeleteGroupsRequest) -> Iterator[DeleteGroupsRequest]:
        names = request.groups_names
        for at in range(0, len(names), 1_000):
            yield DeleteGroupsRequest(names[at : at + 1_000])

    def join(answers: Sequence[DeleteGroupsResponse]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[one for each in answers for one in each.results])

    def apply(request: DeleteGroupsRequest, _: object) -> DeleteGroupsResponse:
        sizes.append(len(request.groups_names))
        return DeleteGroupsResponse(results=[DeletableGroupResult(request.groups_names[0])])

    middle = Middle(monkeypatch, {"DeleteGroups": Route(apply, parts=(split, join))})
    answer = decoded(await outcome(start(middle, MANY_GROUPS)), "DeleteGroups", 2)
    assert [each.group_id for each in answer.results] == ["g0", "g1000", "g2000", "g3000", "g4000"]
    assert sizes == [1_000] * 5


@virtual_time
async def test_only_so_many_large_requests_are_in_work_and_one_that_waits_gives_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    woken: asyncio.Future[DeleteGroupsResponse] = asyncio.get_running_loop().create_future()
    for waits, expected in ((False, 2), (True, 3)):
        began: list[object] = []

        async def wait(request: object, _: object, began: list[object] = began) -> object:
            began.append(request)
            return await asyncio.shield(woken)

        middle = Middle(monkeypatch, {"DeleteGroups": Route(wait, waits=waits)})
        pending = [start(middle, MANY_GROUPS) for _ in range(3)]
        await turns_of_the_loop(200)
        assert len(began) == expected
        for each in pending:
            each.future.cancel()
        await turns_of_the_loop()


class Results:
    """Results that are made while the answer is encoded; `is_closed` once that has ended."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self.is_closed = False

    def answer(self, *_: object) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=LazyList(self._count, self._made()))

    def _made(self) -> Iterator[DeletableGroupResult]:
        try:
            for _ in range(self._count):
                yield DeletableGroupResult(self._name)
        finally:
            self.is_closed = True


@virtual_time
async def test_an_answer_that_gets_too_large_is_given_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = Results(10_000, "n" * 30_000)
    assert ANSWER_BYTES_MAX < 10_000 * 30_000
    middle = Middle(monkeypatch, {"DeleteGroups": results.answer})
    small = frame("DeleteGroups", 2, DeleteGroupsRequest(["g"]))
    with pytest.raises(CloseConnection, match="ask for fewer things") as caught:
        await outcome(start(middle, small))
    # Not when the frames of the error are collected, which may be much later.
    assert caught.value and results.is_closed


@virtual_time
async def test_an_answer_that_nobody_waits_for_any_more_is_given_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = Results(10_000, "name")
    middle = Middle(monkeypatch, {"DeleteGroups": results.answer})
    pending = start(middle, frame("DeleteGroups", 2, DeleteGroupsRequest(["g"])))
    await turns_of_the_loop(3)
    assert not results.is_closed
    pending.future.cancel()
    await turns_of_the_loop(2)
    assert results.is_closed


@virtual_time
async def test_a_large_answer_waits_for_the_memory_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = DeleteGroupsResponse(results=[DeletableGroupResult("n" * 30_000)] * 10)
    middle = Middle(monkeypatch, {"DeleteGroups": lambda *_: answer})
    others = [bytes(ANSWERS_BYTES_MAX - 100_000)]
    reader = Caller()
    assert middle.answer_memory.charge(others, reader)
    pending = start(middle, frame("DeleteGroups", 2, DeleteGroupsRequest(["g"])))
    await turns_of_the_loop()
    assert not pending.future.done() and middle.answer_memory.waiting_bytes > 300_000
    others.clear()
    assert decoded(await outcome(pending), "DeleteGroups", 2) == answer
    assert not reader.is_dropped
