"""A member of a classic group on a broker in this process, and who watches the short ways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import InProcessBroker, RawConnection
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.server.dispatch import DECLINED

GROUP = "g"


class Watched:
    """How many requests were offered to a short way, and which of them it took."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shortcut: type) -> None:
        self.taken: list[bool] = []
        serve = shortcut.serve  # type: ignore[attr-defined]

        def watched(shortcut: object, frame: memoryview, connection: Any) -> Any:
            result = serve(shortcut, frame, connection)
            self.taken.append(result is not DECLINED)
            return result

        monkeypatch.setattr(shortcut, "serve", watched)


def run(directory: Path, play: Callable[[InProcessBroker], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with InProcessBroker(directory) as broker:
            client = broker.connect()
            find = FindCoordinatorRequest(key=GROUP)
            while (await client.call("FindCoordinator", 1, find)).error_code:
                await asyncio.sleep(0.01)
            topic = CreateTopicsRequest([CreatableTopic("t", 4, 1)], timeout_ms=30_000)
            await client.call("CreateTopics", 5, topic)
            await play(broker)

    asyncio.run(asyncio.wait_for(whole(), 60))


def joining(member_id: str = "", instance_id: str | None = "one") -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest(GROUP, 45_000, 60_000, member_id, instance_id, "test", protocols)


class Member:
    """A static member of a classic group, by itself unless another one comes."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._client = broker.connect()
        self._other: asyncio.Task[int] | None = None
        self._broker = broker
        self.member_id, self.generation = "", -1

    async def join(self) -> None:
        await self.other_leaves()
        answer = await self._client.call("JoinGroup", 5, joining(self.member_id))
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            answer = await self._client.call("JoinGroup", 5, joining())
        assert not answer.error_code
        self.member_id, self.generation = answer.member_id, answer.generation_id

    async def sync(self) -> None:
        request = SyncGroupRequest(GROUP, self.generation, self.member_id, "one")
        await self._client.call("SyncGroup", 3, request)

    async def settle(self) -> None:
        await self.join()
        await self.sync()

    async def is_replaced(self) -> None:
        """Another process of the same instance takes its place; this one goes on beating."""
        await self.other_leaves()
        await self._broker.connect().call("JoinGroup", 5, joining())

    async def other_joins(self) -> None:
        """It waits for this one to join again."""
        if self._other is None:
            client = self._broker.connect()
            frame = client.encode("JoinGroup", 5, joining(instance_id="two"))
            self._other = asyncio.create_task(client.ask(frame))
            await asyncio.sleep(0)

    async def other_leaves(self) -> None:
        if self._other is not None:
            identity = MemberIdentity("", "two")
            await self._client.call("LeaveGroup", 3, LeaveGroupRequest(GROUP, members=[identity]))
            await self._other
            self._other = None

    async def leave(self) -> None:
        identity = MemberIdentity(self.member_id, "one")
        await self._client.call("LeaveGroup", 3, LeaveGroupRequest(GROUP, members=[identity]))

    def beats(self) -> list[HeartbeatRequest]:
        """As it should be, and wrong in one thing."""
        return [
            HeartbeatRequest(GROUP, self.generation, self.member_id, "one"),
            HeartbeatRequest(GROUP, self.generation, self.member_id),
            HeartbeatRequest(GROUP, self.generation + 1, self.member_id, "one"),
            HeartbeatRequest(GROUP, self.generation, "somebody", "one"),
            HeartbeatRequest(GROUP, self.generation, self.member_id, "three"),
            HeartbeatRequest("other", self.generation, self.member_id, "one"),
        ]


async def answers(client: RawConnection, request: object, name: str, version: int) -> bytes:
    await client.call(name, version, request)
    return client.last_answer
