"""Metadata requests that repeat the one before take a shorter way, and nobody can tell."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.unit.server.permissions import Permissions, put_in_force
from tidelog.cluster.commands import AlterClientQuotas, CreateTopic, DeleteTopic
from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.security.authorizer import Principal
from tidelog.server.dispatch import DECLINED
from tidelog.server.handlers.metadata_again import MetadataShortcut

STEPS = 30
NAMES = ("a", "b", "c")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each request that was offered to the short way, whether it went there."""
    found: list[bool] = []
    serve = MetadataShortcut.serve

    def watched(shortcut: MetadataShortcut, frame: memoryview, connection: Any) -> Any:
        result = serve(shortcut, frame, connection)
        found.append(result is not DECLINED)
        return result

    monkeypatch.setattr(MetadataShortcut, "serve", watched)
    return found


def run(directory: Path, play: Callable[[InProcessBroker], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with InProcessBroker(directory) as broker:
            await play(broker)

    asyncio.run(asyncio.wait_for(whole(), 60))


def asking(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


async def answer(client: RawConnection, request: object, version: int) -> bytes:
    await client.call("Metadata", version, request)
    return client.last_answer


def test_the_short_way_answers_as_the_long_one_does(tmp_path: Path, taken: list[bool]) -> None:
    compared = 0

    async def play(broker: InProcessBroker) -> None:
        nonlocal compared
        chance, submit = random.Random(3), broker.parts.submitter.submit
        there: set[str] = set()
        requests = [asking("a"), asking("a", "b"), MetadataRequest(topics=None), asking("c")]
        again = [broker.connect() for _ in requests]
        for _ in range(STEPS):
            name = chance.choice(NAMES)
            if name in there:
                await submit(DeleteTopic(name))
            else:
                await submit(CreateTopic(name))
            there ^= {name}
            version = chance.choice([4, 9, 12])
            for client, request in zip(again, requests, strict=True):
                for _ in range(3):
                    short = await answer(client, request, version)
                    assert short == await answer(broker.connect(), request, version)
                    compared += 1

    run(tmp_path, play)
    assert compared == STEPS * 4 * 3
    assert sum(taken) > STEPS * 4 and not all(taken)


def test_a_partition_that_goes_offline_is_told_the_short_way_too(
    tmp_path: Path, taken: list[bool]
) -> None:
    async def play(broker: InProcessBroker) -> None:
        client = broker.connect()
        await broker.parts.submitter.submit(CreateTopic("a"))
        for offline in ([], [TopicPartition("a", 0)], []):
            broker.parts.housekeeping._answers.tell_offline(offline)
            for _ in range(3):
                told = await client.call("Metadata", 12, asking("a"))
                assert bool(told.topics[0].partitions[0].offline_replicas) == bool(offline)

    run(tmp_path, play)
    assert taken.count(True) >= 6


def test_what_one_may_see_is_not_told_to_another(tmp_path: Path, taken: list[bool]) -> None:
    async def play(broker: InProcessBroker) -> None:
        await broker.parts.submitter.submit(CreateTopic("a"))
        # Brokers may do everything, others nothing.
        put_in_force(Permissions(), broker)
        client = broker.connect()
        for is_broker in (True, False, True, False):
            client.connection.principal = Principal("User:alice", is_broker)
            code = 0 if is_broker else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for _ in range(3):
                told = await client.call("Metadata", 12, asking("a"))
                assert told.topics[0].error_code == code

    run(tmp_path, play)
    assert taken.count(True) >= 8


def test_with_a_quota_every_request_goes_the_long_way(tmp_path: Path, taken: list[bool]) -> None:
    async def play(broker: InProcessBroker) -> None:
        client = broker.connect()
        quota = AlterClientQuotas((("user", None),), {"request_percentage": 1e6})
        await broker.parts.submitter.submit(quota)
        for _ in range(3):
            await client.call("Metadata", 12, asking())

    run(tmp_path, play)
    assert taken == [False, False]


def test_the_short_way_is_counted(tmp_path: Path, taken: list[bool]) -> None:
    async def play(broker: InProcessBroker) -> None:
        client = broker.connect()
        frame = client.encode("Metadata", 12, asking())
        metrics = broker.parts.requests.metrics.api(3, "Metadata")
        for _ in range(4):
            before = metrics.requests, metrics.request_bytes, metrics.response_bytes
            count = await client.ask(frame)
            after = metrics.requests, metrics.request_bytes, metrics.response_bytes
            assert [b - a for a, b in zip(before, after, strict=True)] == [1, len(frame), count]
        assert metrics.latency.count == 4

    run(tmp_path, play)
    assert taken == [True, True, True]
