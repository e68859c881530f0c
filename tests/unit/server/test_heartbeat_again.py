"""Heartbeats that repeat the one before take a shorter way, and nobody can tell."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.unit.server.group_member import GROUP, Member, Watched, answers, run
from tests.unit.server.permissions import Permissions, connect_as, put_in_force
from tidelog.cluster.commands import AlterClientQuotas
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.handlers.heartbeat_again import HeartbeatShortcut

STEPS = 60


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch, HeartbeatShortcut)


def test_the_short_way_answers_as_the_long_one_does(tmp_path: Path, watched: Watched) -> None:
    compared = 0

    async def play(broker: InProcessBroker) -> None:
        nonlocal compared
        chance, member = random.Random(848), Member(broker)
        deeds = [
            member.settle, member.settle, member.join, member.sync, member.is_replaced,
            member.other_joins, member.other_leaves, member.leave,
        ]  # fmt: skip
        again = [broker.connect() for _ in member.beats()]
        for _ in range(STEPS):
            await chance.choice(deeds)()
            version = chance.choice([3, 4])
            for client, request in zip(again, member.beats(), strict=True):
                for _ in range(2):
                    short = await answers(client, request, "Heartbeat", version)
                    long = await answers(broker.connect(), request, "Heartbeat", version)
                    assert short == long
                    compared += 1
        await member.other_leaves()

    run(tmp_path, play)
    assert compared == STEPS * 6 * 2
    assert 30 < sum(watched.taken) < len(watched.taken) - 30


def consumer_beat(member_id: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch, **more)


def test_a_member_that_beats_the_short_way_hears_of_every_change(
    tmp_path: Path, watched: Watched
) -> None:
    """Members of a consumer group come, go and change; topics grow in number."""
    compared = 0
    subscribed = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}

    async def play(broker: InProcessBroker) -> None:
        nonlocal compared
        chance = random.Random(848)
        epochs = {"one": 0, "two": 0}
        clients = {name: broker.connect() for name in epochs}
        topics = 1

        async def beat(name: str, **more: Any) -> None:
            request = consumer_beat(name, epochs[name], **more)
            answer = await clients[name].call("ConsumerGroupHeartbeat", 1, request)
            epochs[name] = 0 if answer.error_code else max(answer.member_epoch, 0)
            if answer.assignment is not None and epochs[name]:
                # It gives back what it has to, and says so.
                await beat(name, topic_partitions=answer.assignment.topic_partitions)

        for _ in range(STEPS):
            name, deed = chance.choice(list(epochs)), chance.randrange(8)
            if not epochs[name]:
                await beat(name, subscribed_topic_names=["t"], **subscribed)
            elif deed == 0:
                epochs[name] = -1
                await beat(name)
            elif deed == 1:
                names = [f"t{chance.randrange(topics)}", "t"]
                await beat(name, subscribed_topic_names=names)
            elif deed == 2:
                creation = CreatableTopic(f"t{topics}", 2, 1)
                await clients[name].call(
                    "CreateTopics", 5, CreateTopicsRequest([creation], timeout_ms=30_000)
                )
                topics += 1
            for each in (name for name in epochs if epochs[name]):
                offered = len(watched.taken)
                request = consumer_beat(each, epochs[each])
                await beat(each)
                if True in watched.taken[offered:]:
                    short = clients[each].last_answer
                    fresh = broker.connect()
                    assert short == await answers(fresh, request, "ConsumerGroupHeartbeat", 1)
                    compared += 1

    run(tmp_path, play)
    assert compared > 15
    assert watched.taken.count(False) > 10


async def settled(broker: InProcessBroker) -> tuple[Member, RawConnection, HeartbeatRequest]:
    """A member of a stable group, and a connection whose next heartbeat is known."""
    member, client = Member(broker), connect_as("alice", broker)
    await member.settle()
    request = member.beats()[0]
    for _ in range(2):
        assert (await client.call("Heartbeat", 4, request)).error_code == 0
    return member, client, request


def test_a_removed_permission_stops_the_next_heartbeat(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        _, client, request = await settled(broker)
        assert watched.taken == [True]
        permissions = Permissions()
        put_in_force(permissions, broker)
        permissions.granted = set()
        answer = await client.call("Heartbeat", 4, request)
        assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        permissions.granted = {(Operation.READ, Resource(ResourceType.GROUP, GROUP))}
        assert (await client.call("Heartbeat", 4, request)).error_code == 0
        assert watched.taken == [True, False, True]

    run(tmp_path, play)


def test_a_quota_is_held_against_heartbeats(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        _, client, request = await settled(broker)
        quota = AlterClientQuotas((("user", None),), {"request_percentage": 1e-6})
        await broker.parts.submitter.submit(quota)
        throttled = await client.call("Heartbeat", 4, request)
        assert throttled.error_code == 0 and throttled.throttle_time_ms > 0
        assert watched.taken == [True, False]

    run(tmp_path, play)


def test_a_cut_heartbeat_closes_its_connection_alone(tmp_path: Path, watched: Watched) -> None:
    async def play(broker: InProcessBroker) -> None:
        _, _, request = await settled(broker)
        for size in (1, 2, 3, 4, 7, 8, 9, 20):
            client = broker.connect()
            for _ in range(2):
                assert (await client.call("Heartbeat", 4, request)).error_code == 0
            frame = client.encode("Heartbeat", 4, request)[4 : 4 + size]
            client.send(len(frame).to_bytes(4, "big") + frame)
            assert client.is_closed

    run(tmp_path, play)
