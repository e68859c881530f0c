"""Things that a request names twice, and answers that are large."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import InProcessBroker, RawConnection
from tests.e2e.produce_requests import batch, fetch, produce
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.server.pieces import TURNS
from tidelog.server.routes import route

Scenario = Callable[[InProcessBroker, RawConnection], Coroutine[Any, Any, None]]


def run(directory: Path, scenario: Scenario) -> None:
    async def with_broker() -> None:
        async with InProcessBroker(directory) as broker:
            client = broker.connect()
            topics = [CreatableTopic(name="t", num_partitions=3, replication_factor=1)]
            await client.call("CreateTopics", 7, CreateTopicsRequest(topics=topics))
            await client.call("FindCoordinator", 3, FindCoordinatorRequest(key="g"))
            await scenario(broker, client)

    asyncio.run(asyncio.wait_for(with_broker(), 60))


def test_what_is_named_twice_is_answered_once(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        topics = [MetadataRequestTopic(name=name) for name in ("t", "x", "t", "x")]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        metadata = await client.call("Metadata", 12, request)
        assert [each.name for each in metadata.topics] == ["t", "x"]
        groups = await client.call("DescribeGroups", 5, DescribeGroupsRequest(groups=["g", "g"]))
        assert [each.group_id for each in groups.groups] == ["g"]
        keys = FindCoordinatorRequest(coordinator_keys=["b", "a", "b"])
        found = await client.call("FindCoordinator", 4, keys)
        assert [each.key for each in found.coordinators] == ["b", "a"]
        resources = [DescribeConfigsResource(2, "t", keys) for keys in (None, ["retention.ms"])]
        configs = await client.call("DescribeConfigs", 4, DescribeConfigsRequest(resources))
        assert [len(each.configs) for each in configs.results] == [1]
        asked = [OffsetFetchRequestTopics("t", partition_indexes=[0, 1, 0])] * 2
        group = OffsetFetchRequestGroup("g", topics=asked)
        offsets = await client.call("OffsetFetch", 8, OffsetFetchRequest(groups=[group] * 2))
        assert [
            [each.partition_index for each in topic.partitions]
            for group in offsets.groups
            for topic in group.topics
        ] == [[0, 1]]

    run(tmp_path, scenario)


def test_what_kafka_refuses_when_it_is_named_twice_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", parts)])
        listed = (await client.call("ListOffsets", 5, request)).topics[0].partitions
        assert [(each.partition_index, each.error_code) for each in listed] == [
            (0, ErrorCode.INVALID_REQUEST),
            (1, 0),
        ]
        names = DeleteTopicsRequest(topic_names=["t", "t"])
        deleted = (await client.call("DeleteTopics", 5, names)).responses
        assert [each.error_code for each in deleted] == [ErrorCode.INVALID_REQUEST]
        resources = [AlterConfigsResource(2, "t")] * 2
        altered = await client.call("AlterConfigs", 2, AlterConfigsRequest(resources=resources))
        assert [each.error_code for each in altered.responses] == [ErrorCode.INVALID_REQUEST]

    run(tmp_path, scenario)


def test_thousands_of_offsets_are_committed_and_fetched(tmp_path: Path) -> None:
    count = 3_000

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        parts = [OffsetCommitRequestPartition(index, index + 1) for index in range(count)]
        commit = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name="t", partitions=parts)],
        )
        committed = (await client.call("OffsetCommit", 8, commit)).topics[0].partitions
        assert [(each.partition_index, each.error_code) for each in committed] == [
            (index, 0) for index in range(count)
        ]
        everything = OffsetFetchRequestGroup("g", topics=None)
        named = OffsetFetchRequestTopics("t", partition_indexes=list(range(count + 1)))
        for group in (everything, OffsetFetchRequestGroup("g", topics=[named])):
            pauses = broker.parts.requests.turns.pauses
            fetched = await client.call("OffsetFetch", 8, OffsetFetchRequest(groups=[group]))
            found = {
                each.partition_index: each.committed_offset
                for each in fetched.groups[0].topics[0].partitions
            }
            assert broker.parts.requests.turns.pauses - pauses >= count // 256
            assert found.pop(count, -1) == -1
            assert found == {index: index + 1 for index in range(count)}

    run(tmp_path, scenario)


def test_an_answer_that_is_too_large_closes_its_connection_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidelog.server.dispatch.ANSWER_BYTES_MAX", 200_000)
    topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(20_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        with caplog.at_level(logging.WARNING):
            await client.ask(client.encode("Metadata", 12, request))
        assert client.is_closed
        assert "the answer to Metadata is larger than 200000 bytes" in caplog.text
        assert broker.parts.requests.answer_memory.held_bytes == 0
        other = broker.connect()
        assert (await other.call("Metadata", 12, MetadataRequest(topics=None))).topics

    run(tmp_path, scenario)


def test_a_large_answer_is_charged_while_it_is_on_its_way(tmp_path: Path) -> None:
    topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(5_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        memory = broker.parts.requests.answer_memory
        slow = broker.connect()
        slow.send(slow.encode("Metadata", 12, request))
        slow.stop_reading()
        answer = await client.call("Metadata", 12, request)
        assert len(answer.topics) == 5_000
        while not memory.held_bytes:
            await asyncio.sleep(0)
        assert memory.held_bytes > 100_000
        slow.close()
        while memory.held_bytes:
            await asyncio.sleep(0)

    run(tmp_path, scenario)


def test_answers_that_nobody_reads_hold_up_neither_fetches_nor_large_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.server.answer_memory.STALL_SECONDS_MAX", 0.05)
    topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(5_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        parts = broker.parts
        await client.call("Produce", 7, produce("t", batch([b"x" * 200_000])))
        parts.requests.answer_memory._limit_bytes = 400_000
        unread = [broker.connect() for _ in range(5)]
        for each in unread:
            each.send(each.encode("Metadata", 12, request))
            each.stop_reading()
        while not parts.requests.answer_memory.waiting_bytes:
            await asyncio.sleep(0)
        fetched = await client.call("Fetch", 11, fetch("t"))
        assert parts.requests.answer_memory.waiting_bytes, "it did not wait for the others"
        assert len(fetched.responses[0].partitions[0].records) > 200_000
        answered = await client.call("Metadata", 12, request)
        assert len(answered.topics) == 5_000
        assert any(each.is_closed for each in unread)

    run(tmp_path, scenario)


def test_an_answer_out_of_the_cache_needs_no_answer_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.server.dispatch.LARGE_ANSWER_BYTES", 10)

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        memory = broker.parts.requests.answer_memory
        memory.held_bytes = memory._limit_bytes
        asked = client.call("Metadata", 12, MetadataRequest(topics=None))
        assert (await asyncio.wait_for(asked, 10)).topics
        assert memory.held_bytes == memory._limit_bytes

    run(tmp_path, scenario)


def test_large_produce_requests_that_wait_to_be_committed_keep_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [PartitionProduceData(index, batch([b"x"])) for index in range(1_000)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData("t", partition_data=partitions)])
    topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(5_000)]
    metadata = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    async def scenario(broker: InProcessBroker, client: RawConnection) -> None:
        committed: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(route("Produce"), "handler", lambda *_: committed)
        waiting = []
        for _ in range(TURNS):
            producer = broker.connect()
            frame = producer.encode("Produce", 9, request)
            waiting.append(asyncio.ensure_future(producer.ask(frame)))
        answer = await asyncio.wait_for(client.call("Metadata", 12, metadata), 10)
        assert len(answer.topics) == 5_000
        assert not any(each.done() for each in waiting)
        committed.set_result(ProduceResponse())
        await asyncio.gather(*waiting)

    run(tmp_path, scenario)
