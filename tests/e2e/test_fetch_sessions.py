"""Fetch sessions: what a fetch looks at, what it tells, and what is forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.e2e.produce_requests import batch, produce, values_in
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.replication.partition import Partition
from tidelog.server import fetch_sessions

PARTITIONS = 40


class Reader:
    """A client with a session of the topic `t`."""

    def __init__(self, client: RawConnection) -> None:
        self.client = client
        self.session_id = 0
        self.epoch = 0

    def request(self, offsets: dict[int, int], topic: str = "t", **more: Any) -> FetchRequest:
        limit = more.pop("partition_max_bytes", 1 << 20)
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=limit)
            for index, offset in offsets.items()
        ]
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more}
        topics = [FetchTopic(topic=topic, partitions=parts)] if parts else []
        return FetchRequest(
            session_id=self.session_id, session_epoch=self.epoch, topics=topics, **values
        )

    async def fetch(self, offsets: dict[int, int] | None = None, **more: Any) -> dict[int, Any]:
        """What the answer says of each partition."""
        response = await self.client.call("Fetch", 11, self.request(offsets or {}, **more))
        assert response.error_code == 0
        self.session_id = response.session_id
        self.epoch += 1
        return {
            each.partition_index: each for topic in response.responses for each in topic.partitions
        }


async def create(client: RawConnection, name: str = "t", partitions: int = PARTITIONS) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = await client.call("CreateTopics", 5, CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == 0


async def send(client: RawConnection, partition: int, value: bytes = b"value") -> None:
    request = produce("t", batch([value]), partition=partition)
    answer = await client.call("Produce", 9, request)
    assert answer.responses[0].partition_responses[0].error_code == 0


def run(directory: Path, scenario: Any, **settings: str) -> None:
    async def with_broker() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with InProcessBroker(directory, named) as broker:
            client = broker.connect()
            await create(client)
            await scenario(broker, client)

    asyncio.run(asyncio.wait_for(with_broker(), 60))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that were read, one after the other."""
    seen: list[int] = []
    original = Partition.read

    def read(self: Partition, *arguments: Any, **more: Any) -> Any:
        seen.append(self.topic_partition.partition)
        return original(self, *arguments, **more)

    monkeypatch.setattr(Partition, "read", read)
    return seen


def test_a_fetch_looks_at_partitions_with_news_and_at_no_others(
    tmp_path: Path, reads: list[int]
) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        assert len(await reader.fetch(dict.fromkeys(range(PARTITIONS), 0))) == PARTITIONS
        assert len(reads) == PARTITIONS
        reads.clear()
        for _ in range(3):
            assert await reader.fetch() == {}
        assert reads == []
        await send(client, 7)
        told = await reader.fetch()
        assert (list(told), reads) == ([7], [7])
        assert values_in(told[7]) == [b"value"]
        # The reader stands where it stood, so it gets the same again; then it moves on.
        assert list(await reader.fetch()) == [7]
        assert await reader.fetch({7: 1}) == {}
        reads.clear()
        assert await reader.fetch() == {}
        assert reads == []

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes"),
    [(6000, 1 << 20), (1 << 20, 1000), (6000, 5000), (1, 1)],
    ids=["the whole", "each partition", "both", "nothing"],
)
def test_a_partition_whose_batch_does_not_fit_comes_with_one_of_the_next_fetches(
    tmp_path: Path, max_bytes: int, partition_max_bytes: int
) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        for partition in range(6):
            await send(client, partition, b"%d" % partition * 4000)
        limits = {"max_bytes": max_bytes, "partition_max_bytes": partition_max_bytes}
        told = await reader.fetch(dict.fromkeys(range(6), 0), **limits)
        seen = []
        for _ in range(6):
            served = [index for index, each in told.items() if values_in(each)]
            seen += served
            told = await reader.fetch(dict.fromkeys(served, 1), **limits)
        assert sorted(seen) == list(range(6))
        # Now there is nothing left: a fetch waits for the next append and gets it.
        waiting = asyncio.ensure_future(reader.fetch(max_wait_ms=60_000, **limits))
        await asyncio.sleep(0)
        await send(client, 4)
        assert list(await waiting) == [4]

    run(tmp_path, scenario)


def test_data_that_does_not_fit_counts_for_the_least_that_a_fetch_waits_for(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        for partition in range(2):
            await send(client, partition, b"x" * 4000)
        limits = {"max_bytes": 6000, "min_bytes": 6000, "max_wait_ms": 120_000}
        told = await reader.fetch({0: 0, 1: 0}, **limits)
        assert [index for index, each in told.items() if values_in(each)] == [0]

    run(tmp_path, scenario)


def test_a_fetch_that_waits_in_a_session_wakes_for_any_of_its_partitions(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        await reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
        for partition in (3, 30):
            waiting = asyncio.ensure_future(reader.fetch(max_wait_ms=60_000))
            await asyncio.sleep(0)
            await send(client, partition)
            assert list(await waiting) == [partition]
            await reader.fetch({partition: 1})
        # Two batches are asked for: one is not enough, also where they are of two partitions.
        size = len(batch([b"value"]))
        waiting = asyncio.ensure_future(reader.fetch(max_wait_ms=60_000, min_bytes=2 * size))
        await asyncio.sleep(0)
        await send(client, 5)
        assert not waiting.done()
        await send(client, 6)
        assert sorted(await waiting) == [5, 6]

    run(tmp_path, scenario)


def test_a_new_log_start_is_news(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        await send(client, 1)
        reader = Reader(broker.connect())
        await reader.fetch({0: 0, 1: 1})
        assert await reader.fetch() == {}
        parts = [DeleteRecordsPartition(1, -1)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic("t", parts)])
        await client.call("DeleteRecords", 1, request)
        told = await reader.fetch()
        assert {index: each.log_start_offset for index, each in told.items()} == {1: 1}
        assert await reader.fetch() == {}

    run(tmp_path, scenario)


def test_an_error_is_told_every_time_and_its_end_once(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        await reader.fetch({0: 0}, topic="later")
        for _ in range(2):
            told = await reader.fetch()
            assert told[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await create(client, "later", 1)
        told = await reader.fetch()
        assert (told[0].error_code, told[0].high_watermark) == (0, 0)
        assert await reader.fetch() == {}

    run(tmp_path, scenario)


def test_a_topic_deleted_and_created_again_is_news_both_times(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        await reader.fetch({0: 0})
        assert await reader.fetch() == {}
        waiting = asyncio.ensure_future(reader.fetch(max_wait_ms=60_000))
        await asyncio.sleep(0)
        await client.call("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["t"]))
        assert (await waiting)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await create(client)
        assert (await reader.fetch())[0].error_code == 0
        await send(client, 0)
        assert values_in((await reader.fetch())[0]) == [b"value"]

    run(tmp_path, scenario)


def test_partitions_that_did_not_fit_come_first_the_next_time(
    tmp_path: Path, reads: list[int]
) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        await reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
        for partition in (11, 12, 13):
            await send(client, partition)
        served = []
        for _ in range(6):
            reads.clear()
            told = await reader.fetch(max_bytes=1)
            assert len(reads) == 1, "the rest is left alone once the answer is full"
            served += list(told)
        assert served == [11, 12, 13, 11, 12, 13]

    run(tmp_path, scenario)


def test_a_forgotten_partition_has_no_news(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        await reader.fetch({0: 0, 1: 0})
        forgotten = [ForgottenTopic("t", partitions=[0])]
        assert await reader.fetch(forgotten_topics_data=forgotten) == {}
        await send(client, 0)
        await send(client, 1)
        assert list(await reader.fetch()) == [1]

    run(tmp_path, scenario)


def test_a_session_that_is_over_watches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "SMALL_FETCH_PARTITIONS", 1)

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        def watchers() -> int:
            return sum(len(each.watermark.watchers) for each in broker.parts.replicas)

        def session_bytes() -> int:
            return broker.parts.fetch_sessions.size_bytes

        reader = Reader(broker.connect())
        await reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
        assert watchers() == PARTITIONS
        assert session_bytes() > 0
        # One that was told is not told again before it has looked.
        await send(client, 0)
        await send(client, 0)
        assert watchers() == PARTITIONS - 1
        # The last fetch of a session, and one without a session that waits and is left alone.
        reader.epoch = -1
        await reader.fetch()
        assert (watchers(), session_bytes()) == (0, 0)
        gone = broker.connect()
        waiting = Reader(gone)
        waiting.epoch = -1
        gone.send(gone.encode("Fetch", 11, waiting.request({1: 0, 2: 0}, max_wait_ms=60_000)))
        assert watchers() == 2
        assert session_bytes() > 0
        gone.close()
        while watchers():
            await asyncio.sleep(0)
        assert (watchers(), session_bytes()) == (0, 0)

    run(tmp_path, scenario)


def test_a_session_has_a_largest_number_of_partitions(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        large = Reader(broker.connect())
        assert len(await large.fetch(dict.fromkeys(range(11), 0))) == 11
        assert large.session_id == 0, "no session, and an answer all the same"
        growing = Reader(broker.connect())
        await growing.fetch(dict.fromkeys(range(10), 0))
        assert growing.session_id != 0
        response = await growing.client.call("Fetch", 11, growing.request({10: 0}))
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(broker.parts.fetch_sessions) == 0

    run(tmp_path, scenario, fetch_session_partitions_max="10")


def fill_with_missing_partitions(reader: Reader) -> FetchRequest:
    """A fetch that asks for a session of nearly 20 KB, of a topic that does not exist."""
    return reader.request(dict.fromkeys(range(38), 0), topic="x")


def test_a_small_fetch_without_a_session_waits_also_where_there_is_no_memory_for_sessions(
    tmp_path: Path,
) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        await client.call("Fetch", 11, fill_with_missing_partitions(Reader(client)))
        assert broker.parts.fetch_sessions.size_bytes > 19_000
        reader = Reader(broker.connect())
        reader.epoch = -1
        waiting = asyncio.ensure_future(
            reader.fetch(dict.fromkeys(range(PARTITIONS), 0), max_wait_ms=3_600_000)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        await send(client, 3)
        assert values_in((await waiting)[3]) == [b"value"]

    run(tmp_path, scenario, fetch_sessions_max_bytes="20000")


def test_a_session_of_missing_partitions_gives_way_to_any_other(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        await client.call("Fetch", 11, fill_with_missing_partitions(Reader(client)))
        reader = Reader(broker.connect())
        await reader.fetch(dict.fromkeys(range(10), 0))
        assert reader.session_id != 0
        assert len(broker.parts.fetch_sessions) == 1

    run(tmp_path, scenario, fetch_sessions_max_bytes="20000")


def test_a_large_fetch_without_memory_to_wait_in_is_answered_when_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "SMALL_FETCH_PARTITIONS", 1)

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        response = await reader.client.call(
            "Fetch", 11, reader.request({0: 0, 1: 0}, max_wait_ms=200)
        )
        # Timers do not go off early.
        assert loop.time() - asked_at > 0.19
        assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
        assert response.throttle_time_ms > 0, "or a client takes the answer for a broken one"
        assert all(not len(each.watermark.watchers) for each in broker.parts.replicas)
        # With something to tell, however little, it is told at once.
        await send(client, 1)
        told = await reader.fetch({0: 0, 1: 0}, max_wait_ms=3_600_000, min_bytes=1000)
        assert values_in(told[1]) == [b"value"]

    run(tmp_path, scenario, fetch_sessions_max_bytes="1000")


def test_a_fetch_of_thousands_of_partitions_lets_others_run(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        reader = Reader(broker.connect())
        turns = broker.parts.requests.turns
        missing = dict.fromkeys(range(PARTITIONS, 5_000), 0)
        told = await reader.fetch({**dict.fromkeys(range(PARTITIONS), 0), **missing})
        assert len(told) == 5_000
        assert turns.pauses > 4 * 5_000 // 256 - 4
        pauses = turns.pauses
        forgotten = [ForgottenTopic("t", partitions=list(missing))]
        assert await reader.fetch(forgotten_topics_data=forgotten) == {}
        assert await reader.fetch() == {}
        assert turns.pauses - pauses <= 5_000 // 256 + 1

    run(tmp_path, scenario)
