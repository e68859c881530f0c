"""A fault of one partition stays that partition's: long names, foreign directories, lost files."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.in_process import InProcessBroker
from tests.e2e.produce_requests import batch, create_topic, produce
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.storage.log import AppendResult, Log

KAFKA_STORAGE_ERROR = 56
COORDINATOR_LOAD_IN_PROGRESS = 14
LONGEST = "t" * 249


def sent(client: RawClient, topic: str, partition: int = 0) -> tuple[int, int]:
    """Produce one record; the error code and the base offset."""
    answer = client.call("Produce", 9, produce(topic, batch([b"x"]), partition=partition))
    answer = answer.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def delete_topic(client: RawClient, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
    answer = client.call("DeleteTopics", 4, request)
    assert answer.responses[0].error_code == 0


@pytest.mark.parametrize("name", [LONGEST, "t" * 214])
def test_the_longest_topic_name_is_created_deleted_and_created_again(
    tmp_path: Path, name: str
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap_servers) as client:
            for _ in range(2):
                create_topic(client, name)
                assert sent(client, name) == (0, 0)
                delete_topic(client, name)
            create_topic(client, name)
            assert sent(client, name) == (0, 0)
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            assert sent(client, name) == (0, 1)
            assert broker.terminate() == 0


def test_a_foreign_directory_takes_one_partition_offline_until_it_is_moved_away(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, RawClient(broker.bootstrap_servers) as client:
        (data / "backup-1").mkdir()
        (data / "backup-1" / "notes.txt").write_text("mine")
        create_topic(client, "backup", partitions=3)
        create_topic(client, "after")
        assert sent(client, "backup", 0) == (0, 0)
        assert sent(client, "backup", 1)[0] == KAFKA_STORAGE_ERROR
        assert sent(client, "backup", 2) == (0, 0)
        assert sent(client, "after") == (0, 0)
        assert (data / "backup-1" / "notes.txt").read_text() == "mine"
        assert "is in the way" in broker.log_text()
        (data / "backup-1").rename(tmp_path / "elsewhere")
        eventually(lambda: sent(client, "backup", 1)[0] == 0)


def test_a_lost_directory_is_not_served_empty_and_the_others_are_served(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data)
    with broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "orders", partitions=2)
            assert sent(client, "orders", 0) == sent(client, "orders", 1) == (0, 0)
        assert broker.terminate() == 0
        shutil.rmtree(data / "orders-0")
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            assert sent(client, "orders", 0)[0] == KAFKA_STORAGE_ERROR
            assert sent(client, "orders", 1) == (0, 1)
        assert "tidelog broker --accept-loss orders-0" in broker.log_text()
        assert broker.terminate() == 0
        broker.start("--accept-loss", "orders-0")
        with RawClient(broker.bootstrap_servers) as client:
            assert sent(client, "orders", 0) == (0, 1)
        assert broker.terminate() == 0
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            assert sent(client, "orders", 0) == (0, 2)


def test_i29_a_deletion_that_a_kill_cut_short_is_finished_by_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "gone", partitions=3)
            create_topic(client, "kept")
            assert sent(client, "gone") == sent(client, "kept") == (0, 0)
            delete_topic(client, "gone")
        # The files stay for a minute, for those who still read them.
        assert any(path.name.endswith("-delete") for path in data.iterdir())
        broker.kill()
        broker.start()
        eventually(lambda: not any("gone" in path.name for path in data.iterdir()))
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "gone")
            assert sent(client, "gone") == (0, 0)
            assert sent(client, "kept") == (0, 1)


def test_g7_a_damaged_commit_is_never_read_as_another_offset(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"offsets.topic.num.partitions": "1"}
    with BrokerProcess(data, settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            request = FindCoordinatorRequest(key="g")
            eventually(lambda: client.call("FindCoordinator", 1, request).error_code == 0)
            eventually(lambda: committed(client, "g", 7) == 0)
            assert committed(client, "g", 50) == 0
            assert fetched(client, "g") == (0, 50)
        assert broker.terminate() == 0
        flip_last_byte_of_value(data / "__consumer_offsets-0" / f"{0:020d}.log", 50)
        broker.start()
        eventually(lambda: "accept-loss __consumer_offsets-0" in broker.log_text())
        with RawClient(broker.bootstrap_servers) as client:
            assert fetched(client, "g")[0] == COORDINATOR_LOAD_IN_PROGRESS
        assert broker.terminate() == 0
        broker.start("--accept-loss", "__consumer_offsets-0")
        with RawClient(broker.bootstrap_servers) as client:
            eventually(lambda: fetched(client, "g") == (0, 7))


def committed(client: RawClient, group: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id=group, topics=[topic])
    code: int = client.call("OffsetCommit", 2, request).topics[0].partitions[0].error_code
    return code


def fetched(client: RawClient, group: str) -> tuple[int, int]:
    """The error code of a fetch of a committed offset, and that offset."""
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = client.call("OffsetFetch", 3, OffsetFetchRequest(group_id=group, topics=[topic]))
    offset = answer.topics[0].partitions[0].committed_offset if answer.topics else -1
    return answer.error_code, offset


def flip_last_byte_of_value(log: Path, offset: int) -> None:
    """Turn a committed offset into another one, in place."""
    content = bytearray(log.read_bytes())
    place = content.rindex(offset.to_bytes(8, "big"))
    content[place + 7] ^= 0x20
    log.write_bytes(content)


def test_an_assertion_that_fails_closes_the_request_and_takes_its_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = Log.append

    def broken_append(self: Log, *args: Any) -> AppendResult:
        assert self.topic_partition.partition != 1, "this cannot be"
        return append(self, *args)

    async def sent_to(broker: InProcessBroker, partition: int) -> int | None:
        """The error code of a produce over a connection of its own; None where that was closed."""
        connection = broker.connect()
        request = produce("orders", batch([b"x"]), partition=partition)
        await connection.ask(connection.encode("Produce", 9, request))
        if connection.is_closed:
            return None
        answer = connection.decode("Produce", 9)
        connection.close()
        return int(answer.responses[0].partition_responses[0].error_code)

    async def scenario() -> list[int | None]:
        async with InProcessBroker(tmp_path / "data") as broker:
            connection = broker.connect()
            topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
            await connection.call("CreateTopics", 5, CreateTopicsRequest(topics=[topic]))
            monkeypatch.setattr(Log, "append", broken_append)
            codes = [await sent_to(broker, each) for each in (0, 1, 0, 1)]
            connection.close()
            return codes

    assert asyncio.run(scenario()) == [0, None, 0, KAFKA_STORAGE_ERROR]
    assert len([each for each in caplog.records if each.exc_info]) == 1
