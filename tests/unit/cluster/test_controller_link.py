"""A command reaches the controller, wherever it is: once, or its outcome is said to be unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.cluster.helpers import make_rules
from tidelog.client.faults import ConnectError, NetworkError, RequestTimeoutError
from tidelog.cluster.commands import CreateTopic, DeletedTopic, DeleteTopic, Done
from tidelog.cluster.controller_link import (
    ControllerLink,
    Decided,
    Outcome,
    decode_commands,
    encode_outcomes,
)
from tidelog.cluster.image import Endpoint
from tidelog.cluster.membership import Membership
from tidelog.cluster.office import Owner
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.protocol.messages.submit_command import SubmitCommandRequest, SubmitCommandResponse
from tidelog.testing.memory_store import MemoryTree
from tidelog.testing.virtual_loop import run_virtual, virtual_host

ELSEWHERE = KafkaError(ErrorCode.NOT_CONTROLLER)


def done(*outcomes: Outcome, version: int = 7) -> SubmitCommandResponse:
    return SubmitCommandResponse(version=version, outcomes=encode_outcomes(outcomes))


class ScriptedPeer:
    """Answers requests one after the other as it is told, or fails."""

    def __init__(self, *answers: SubmitCommandResponse | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, ...]] = []
        self.principals: set[str] = set()
        self.is_closed = asyncio.Event()

    async def request(self, api_name: str, message: object, timeout_s: float) -> Any:
        assert isinstance(message, SubmitCommandRequest)
        commands = decode_commands(message.commands)
        self.asked.append(tuple(str(getattr(each, "name", each)) for each in commands))
        self.principals.add(message.principal)
        if not self._answers:
            await self.is_closed.wait()
            raise NetworkError("b1:9092", "the connection was closed here")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed.set()


def linked(peer: ScriptedPeer) -> tuple[Membership, ControllerLink]:
    host = virtual_host()
    membership = Membership(0, MemoryTree().connect, make_rules(), host)
    membership._take_owner(Owner(1, 3, Endpoint("PLAINTEXT", "b1", 9092)))
    return membership, ControllerLink(membership, make_rules(), lambda _: peer, host.offload)


def decide(peer: ScriptedPeer, names: Sequence[str] = ("a",)) -> Decided:
    async def run() -> Decided:
        _, link = linked(peer)
        return await link.decide([DeleteTopic(name) for name in names], "User:alice", 5.0)

    return run_virtual(run())


def codes(decided: Decided) -> list[ErrorCode]:
    return [
        each.code if isinstance(each, KafkaError) else ErrorCode.NONE for each in decided.outcomes
    ]


def test_a_command_goes_with_its_principal_and_comes_back_with_a_version() -> None:
    peer = ScriptedPeer(done(Done()))
    assert decide(peer) == Decided([Done()], 7)
    assert peer.principals == {"User:alice"}


@pytest.mark.parametrize(
    "fault",
    [
        NetworkError("b1:9092", "the broker closed the connection"),
        RequestTimeoutError("b1:9092", "no answer"),
        SubmitCommandResponse(outcomes=b"no json"),
    ],
    ids=["closed", "too late", "not understood"],
)
def test_what_was_sent_and_not_answered_is_unknown_and_not_sent_again(
    fault: SubmitCommandResponse | Exception,
) -> None:
    peer = ScriptedPeer(fault, done(Done()))
    decided = decide(peer)
    assert codes(decided) == [ErrorCode.REQUEST_TIMED_OUT]
    assert isinstance(decided.outcomes[0], KafkaError)
    assert "not known whether" in decided.outcomes[0].message
    assert peer.asked == [("a",)]


@pytest.mark.parametrize(
    "fault",
    [
        ConnectError("b1:9092", "refused"),
        KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no key yet"),
        StorageError("the store could not be asked"),
        SubmitCommandResponse(error_code=ErrorCode.NOT_CONTROLLER),
        done(ELSEWHERE),
    ],
    ids=["no connection", "no authentication", "no key", "moved", "moved meanwhile"],
)
def test_what_was_not_done_for_certain_is_tried_again(
    fault: SubmitCommandResponse | Exception,
) -> None:
    peer = ScriptedPeer(fault, fault, done(Done()))
    assert codes(decide(peer)) == [ErrorCode.NONE]
    assert len(peer.asked) == 3


def test_only_those_that_were_not_done_are_tried_again() -> None:
    refused = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
    topic_id = make_rules().random.uuid()
    peer = ScriptedPeer(
        done(DeletedTopic("a", topic_id), ELSEWHERE, refused, ELSEWHERE),
        done(DeletedTopic("b", topic_id), DeletedTopic("d", topic_id), version=9),
    )
    decided = decide(peer, "abcd")
    assert peer.asked == [("a", "b", "c", "d"), ("b", "d")]
    assert codes(decided) == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE,
    ]  # fmt: skip
    names = [each.name for each in decided.outcomes if isinstance(each, DeletedTopic)]
    assert (names, decided.version) == (["a", "b", "d"], 9)


def test_without_a_controller_the_deadline_ends_it_in_words() -> None:
    peer = ScriptedPeer(*[ConnectError("b1:9092", "refused")] * 1_000)
    decided = decide(peer)
    assert codes(decided) == [ErrorCode.NOT_CONTROLLER]
    assert "no controller at the moment" in str(decided.outcomes[0])


def test_a_request_that_is_too_large_is_refused_as_a_whole_and_not_sent() -> None:
    async def run() -> None:
        peer = ScriptedPeer()
        _, link = linked(peer)
        decided = await link.decide([CreateTopic(f"t{n}", partitions=6_000) for n in range(2)])
        assert codes(decided) == [ErrorCode.POLICY_VIOLATION] * 2
        assert not peer.asked

    run_virtual(run())


@pytest.mark.parametrize("next_id", [2, 1], ids=["another broker", "back after a loss of power"])
def test_nobody_waits_for_a_controller_that_has_lost_the_office(next_id: int) -> None:
    async def run() -> None:
        peer = ScriptedPeer()
        membership, link = linked(peer)
        deciding = asyncio.ensure_future(link.decide([DeleteTopic("a")], "", 3_600.0))
        while not peer.asked:
            await asyncio.sleep(0)
        membership._take_owner(Owner(next_id, 4, Endpoint("PLAINTEXT", f"b{next_id}", 9092)))
        assert codes(await deciding) == [ErrorCode.REQUEST_TIMED_OUT]

    run_virtual(run())
