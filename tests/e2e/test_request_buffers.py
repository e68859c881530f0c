"""Whose buffer a request uses, for how long, and when its connection counts as receiving."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from tests.e2e.in_process import InProcessBroker
from tests.e2e.produce_requests import fetch
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.server.pieces import TURNS, Turns

HALF_A_FRAME = struct.pack(">i", 1_000_000) + bytes(500_000)


def test_a_connection_whose_earlier_request_waits_does_not_count_as_receiving(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with InProcessBroker(tmp_path) as broker:
            client = broker.connect()
            topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
            await client.call("CreateTopics", 7, CreateTopicsRequest(topics=topics))
            client.send(HALF_A_FRAME)
            assert client.connection.is_receiving
            waits = broker.connect()
            request = waits.encode("Fetch", 11, fetch("t", max_wait_ms=60_000))
            waits.send(request + HALF_A_FRAME[:2000])
            assert waits.connection.bytes_received == len(request) + 2000
            assert not waits.connection.is_receiving

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_memory_of_a_frame_is_given_back_only_when_its_request_has_read_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with InProcessBroker(tmp_path) as broker:
            frontend = broker.parts.frontend
            client = broker.connect()
            topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(5_000)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            frame = client.encode("Metadata", 12, request)
            turns = [
                asyncio.ensure_future(hold_a_turn(broker.parts.requests.turns))
                for _ in range(TURNS)
            ]
            await asyncio.sleep(0)
            answered = asyncio.ensure_future(client.ask(frame))
            while not frontend.dispatcher.running_tasks:
                await asyncio.sleep(0)
            reserved = frontend.memory.reserved_bytes
            assert reserved > len(frame) - 10_000
            client.connection.return_unused_memory()
            assert frontend.memory.reserved_bytes == reserved, "the request waits for its turn"
            for turn in turns:
                turn.cancel()
            await answered
            client.connection.return_unused_memory()
            assert frontend.memory.reserved_bytes == 0

    asyncio.run(asyncio.wait_for(scenario(), 60))


async def hold_a_turn(turns: Turns) -> None:
    await turns.take()
    await asyncio.Event().wait()
