"""Commits that begin like the one before take a shorter way, and nobody can tell."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.unit.server.group_member import GROUP, Member, Watched, answers, run
from tests.unit.server.permissions import Permissions, connect_as, put_in_force
from tidelog.cluster.commands import AlterClientQuotas
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.handlers.commit_again import CommitShortcut

STEPS = 40
VERSIONS = (6, 7, 8, 9, 10)
Offsets = dict[int, int]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch, CommitShortcut)


def topic_id(broker: InProcessBroker, name: str = "t") -> UUID:
    return broker.parts.requests.metadata.image.topics[name].topic_id


def commit(
    who: tuple[int, str, str | None], topic: OffsetCommitRequestTopic, offsets: Offsets
) -> OffsetCommitRequest:
    generation, member_id, instance_id = who
    topic.partitions = [
        OffsetCommitRequestPartition(partition, offset, 3, "")
        for partition, offset in offsets.items()
    ]
    return OffsetCommitRequest(GROUP, generation, member_id, instance_id, topics=[topic])


async def fetched(client: RawConnection, *partitions: int) -> list[tuple[int, int]]:
    """The committed offset and epoch of each partition of the topic."""
    request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic("t", list(partitions))])
    (topic,) = (await client.call("OffsetFetch", 5, request)).topics
    return [(each.committed_offset, each.committed_leader_epoch) for each in topic.partitions]


def test_the_short_way_answers_and_keeps_what_the_long_one_does(
    tmp_path: Path, watched: Watched
) -> None:
    compared = 0

    async def play(broker: InProcessBroker) -> None:
        nonlocal compared
        chance, member, reader = random.Random(848), Member(broker), broker.connect()
        deeds = [
            member.settle, member.settle, member.settle, member.join, member.sync,
            member.is_replaced, member.other_joins, member.other_leaves, member.leave,
        ]  # fmt: skip
        clients: dict[tuple[int, int], RawConnection] = {}
        for step in range(STEPS):
            await chance.choice(deeds)()
            version, offset = chance.choice(VERSIONS), step * 10
            instance = "one" if version > 6 else None
            member_id, generation = member.member_id, member.generation
            known = OffsetCommitRequestTopic("t", topic_id(broker))
            for case, (who, topic, offsets) in enumerate(
                [
                    ((generation, member_id, instance), known, {0: offset}),
                    ((generation, member_id, instance), known, {2: offset, 0: 7, 1: 2**40}),
                    ((generation, member_id, instance), known, {99: offset, -4: 1}),
                    ((generation + 1, member_id, instance), known, {0: 1}),
                    ((generation, "somebody", instance), known, {0: 1}),
                    ((generation, member_id, None), known, {0: offset}),
                    ((-1, "", None), known, {0: 1}),
                    (
                        (generation, member_id, instance),
                        OffsetCommitRequestTopic("none", UUID(int=9)),
                        {0: 1},
                    ),
                ]
            ):
                client = clients.setdefault((case, version), broker.connect())
                request = commit(who, topic, offsets)
                for _ in range(2):
                    short = await answers(client, request, "OffsetCommit", version)
                    kept = await fetched(reader, 0, 1, 2)
                    assert short == await answers(
                        broker.connect(), request, "OffsetCommit", version
                    )
                    assert kept == await fetched(reader, 0, 1, 2)
                    compared += 1
        await member.other_leaves()

    run(tmp_path, play)
    assert compared == STEPS * 8 * 2
    assert 60 < sum(watched.taken) < len(watched.taken) - 30


async def settled(broker: InProcessBroker) -> tuple[RawConnection, OffsetCommitRequest]:
    """A connection whose next commit is known: its head has been seen."""
    member, client = Member(broker), connect_as("alice", broker)
    await member.settle()
    who = member.generation, member.member_id, "one"
    request = commit(who, OffsetCommitRequestTopic("t"), {0: 1})
    for _ in range(2):
        assert await codes(client, request) == [0]
    return client, request


async def codes(client: RawConnection, request: OffsetCommitRequest) -> list[int]:
    answer = await client.call("OffsetCommit", 8, request)
    return [each.error_code for each in answer.topics[0].partitions]


def test_an_offset_takes_the_short_way_whatever_it_is(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        client, request = await settled(broker)
        (partition,) = request.topics[0].partitions
        for offset in (2, 5, 2**62):
            partition.committed_offset = offset
            assert await codes(client, request) == [0]
            assert await fetched(client, 0) == [(offset, 3)]
        assert watched.taken == [True] * 4

    run(tmp_path, play)


def test_what_is_not_plain_goes_the_long_way(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        client, request = await settled(broker)
        plain = request.topics[0].partitions
        odd = [
            [OffsetCommitRequestPartition(0, 1, 3, "said")],
            [*plain, *plain],
            [OffsetCommitRequestPartition(number, 1, 3, "") for number in range(101)],
        ]
        for partitions in odd:
            request.topics[0].partitions = partitions
            await codes(client, request)
        request.topics[0].partitions = plain
        request.topics = request.topics * 2
        await codes(client, request)
        assert watched.taken == [True, False, False, False, False]
        request.topics = request.topics[:1]
        assert await codes(client, request) == [0] and watched.taken[-1]

    run(tmp_path, play)


def test_a_removed_permission_stops_the_next_commit(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        client, request = await settled(broker)
        permissions = Permissions()
        put_in_force(permissions, broker)
        group = Operation.READ, Resource(ResourceType.GROUP, GROUP)
        topic = Operation.READ, Resource(ResourceType.TOPIC, "t")
        for granted, code in (
            ({topic}, ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ({group}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ({group, topic}, ErrorCode.NONE),
        ):
            permissions.granted = granted
            assert await codes(client, request) == [code]
        assert watched.taken == [True, False, False, True]

    run(tmp_path, play)


def test_a_quota_is_held_against_commits(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        client, request = await settled(broker)
        quota = AlterClientQuotas((("user", None),), {"request_percentage": 1e-6})
        await broker.parts.submitter.submit(quota)
        throttled = await client.call("OffsetCommit", 8, request)
        assert throttled.throttle_time_ms > 0 and watched.taken == [True, False]

    run(tmp_path, play)


def test_a_commit_is_for_the_topic_that_has_the_name_now(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        client, request = await settled(broker)
        deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000)
        await client.call("DeleteTopics", 5, deletion)
        assert await codes(client, request) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        creation = CreateTopicsRequest([CreatableTopic("t", 4, 1)], timeout_ms=30_000)
        await client.call("CreateTopics", 5, creation)
        assert await codes(client, request) == [0]
        assert await fetched(client, 0) == [(1, 3)], "it was committed for the topic of now"
        assert watched.taken == [True, False, True]

    run(tmp_path, play)


def test_a_commit_in_another_epoch_of_a_consumer_group_is_fenced(
    tmp_path: Path, watched: Watched
) -> None:
    async def play(broker: InProcessBroker) -> None:
        client = broker.connect()

        async def beat(epoch: int, **more: Any) -> Any:
            request = ConsumerGroupHeartbeatRequest(GROUP, "one", epoch, **more)
            return await client.call("ConsumerGroupHeartbeat", 1, request)

        joined = await beat(
            0, rebalance_timeout_ms=60_000, topic_partitions=[], subscribed_topic_names=["t"]
        )
        who = joined.member_epoch, "one", None
        request = commit(who, OffsetCommitRequestTopic("t"), {0: 1})
        said = []
        for epoch in (None, None, -1, None):
            if epoch is not None:
                await beat(epoch)
            answer = await client.call("OffsetCommit", 9, request)
            said.append(answer.topics[0].partitions[0].error_code)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert said == [0, 0, unknown, unknown]
        assert watched.taken == [True] * 3, "the group itself refuses"

    run(tmp_path, play)


def test_commits_on_one_connection_are_answered_in_order(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        client, request = await settled(broker)
        frame = client.encode("OffsetCommit", 8, request)
        frames = [frame[:8] + number.to_bytes(4, "big") + frame[12:] for number in range(20)]
        written = bytearray()
        enough = asyncio.Event()

        def write(data: bytes | bytearray | memoryview) -> None:
            written.extend(data)
            if len(written) >= 20 * size:
                enough.set()

        await client.ask(frames[0])
        size = len(client.last_answer)
        client.write = write  # type: ignore[method-assign]
        client.send(b"".join(frames))
        await enough.wait()
        ids = [written[place + 4 : place + 8] for place in range(0, len(written), size)]
        assert [int.from_bytes(each, "big") for each in ids] == list(range(20))

    run(tmp_path, play)
