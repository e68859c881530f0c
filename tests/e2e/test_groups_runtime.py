"""What only a running broker shows of groups: stalls, loading, a full disk."""

from __future__ import annotations

import errno
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.metadata import MetadataRequest
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
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.testing import Broker

STALL_SECONDS = 3.0
OFFSETS = 100_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    settings = {"group.min.session.timeout.ms": "500", "offsets.topic.num.partitions": "1"}
    with Broker(data_dir=str(tmp_path / "data"), settings=settings) as running:
        yield running


def find_coordinator(client: RawClient, group: str) -> None:
    answer = client.call("FindCoordinator", 4, FindCoordinatorRequest(coordinator_keys=[group]))
    assert answer.coordinators[0].error_code == 0


def join(client: RawClient, group: str, session_timeout_ms: int) -> HeartbeatRequest:
    """Become the only member; the heartbeat that the member sends from now on."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    joined = client.call("JoinGroup", 3, request)
    assert joined.error_code == 0
    sync = SyncGroupRequest(group, joined.generation_id, joined.member_id)
    assert client.call("SyncGroup", 3, sync).error_code == 0
    return HeartbeatRequest(group, joined.generation_id, joined.member_id)


def commit(group: str, offset: int, partitions: range = range(1)) -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(each, offset, -1, "") for each in partitions]
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])


def fetched(client: RawClient, group: str) -> Any:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    return client.call("OffsetFetch", 8, request).groups[0]


def await_state(client: RawClient, group: str, state: str) -> None:
    """Return once the group is in that state; looking does not keep members alive."""
    deadline = time.monotonic() + 30
    while (found := described_state(client, group)) != state:
        assert time.monotonic() < deadline, found


def described_state(client: RawClient, group: str) -> str:
    answer = client.call("DescribeGroups", 5, DescribeGroupsRequest(groups=[group]))
    return str(answer.groups[0].group_state)


def test_g12_a_stalled_broker_does_not_expire_its_members(broker: Broker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        find_coordinator(client, "g")
        beat = join(client, "g", 1_500)
        assert broker._thread is not None
        loop, recovered = broker._thread._loop, threading.Event()

        def stall() -> None:
            time.sleep(STALL_SECONDS)
            # By then what was due during the stall has had its turn.
            loop.call_later(0.1, recovered.set)

        loop.call_soon_threadsafe(stall)
        assert recovered.wait(30)
        assert client.call("Heartbeat", 3, beat).error_code == 0
        # The session itself still counts.
        await_state(client, "g", "Empty")
        assert client.call("Heartbeat", 3, beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_g6_of_a_hundred_thousand_offsets_none_is_missing_while_they_are_loaded(
    tmp_path: Path,
) -> None:
    data = str(tmp_path / "data")
    settings = {"offsets.topic.num.partitions": "1"}
    with Broker(data_dir=data, settings=settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            find_coordinator(client, "g")
            for number in range(OFFSETS // 1_000):
                answer = client.call("OffsetCommit", 8, commit(f"g-{number}", 7, range(1_000)))
                codes = {each.error_code for each in answer.topics[0].partitions}
                assert codes == {0}
    with Broker(data_dir=data, settings=settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            while (group := fetched(client, "g-99")).error_code:
                assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert group.topics[0].partitions[0].committed_offset == 7
            assert len(client.call("ListGroups", 4, ListGroupsRequest()).groups) == OFFSETS // 1_000


def test_a_full_disk_refuses_commits_and_changes_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        find_coordinator(client, "g")
        answer = client.call("OffsetCommit", 8, commit("g", 5))
        assert answer.topics[0].partitions[0].error_code == 0
        assert broker._broker is not None
        partition = broker._broker.parts.replicas.find("__consumer_offsets", 0)
        segment = partition.log.segments[-1]

        def full(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, "no space left")

        with monkeypatch.context() as patch:
            patch.setattr(type(segment.disk), "pwritev", full)
            answer = client.call("OffsetCommit", 8, commit("g", 6))
            refused = answer.topics[0].partitions[0].error_code
        assert refused == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert fetched(client, "g").topics[0].partitions[0].committed_offset == 5
        answer = client.call("OffsetCommit", 8, commit("g", 6))
        assert answer.topics[0].partitions[0].error_code == 0
        assert fetched(client, "g").topics[0].partitions[0].committed_offset == 6


def test_a_commit_whose_flush_hangs_is_answered_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"offsets.topic.num.partitions": "1", "offsets.commit.timeout.ms": "300"}
    with (
        Broker(data_dir=str(tmp_path / "data"), settings=settings) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        create_topic(client, "t")
        find_coordinator(client, "g")
        member = join(client, "lively", 30_000)
        answer = client.call("OffsetCommit", 8, commit("g", 5))
        assert answer.topics[0].partitions[0].error_code == 0
        assert broker._broker is not None
        partition = broker._broker.parts.replicas.find("__consumer_offsets", 0)
        disk = type(partition.log.segments[-1].disk)
        released, flush = threading.Event(), disk.fdatasync

        def hang(self: Any, fd: int) -> None:
            assert released.wait(30)
            flush(self, fd)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "fdatasync", hang)
            try:
                answer = client.call("OffsetCommit", 8, commit("g", 6))
                late = answer.topics[0].partitions[0].error_code
                # It may yet become durable, so nobody is told what the offset is.
                unknown = fetched(client, "g").error_code
                # A heartbeat rests on members, which are durable: it waits for no offset.
                beat = client.call("Heartbeat", 3, member).error_code
            finally:
                released.set()
        assert late == unknown == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert beat == 0
        answer = client.call("OffsetCommit", 8, commit("g", 7))
        assert answer.topics[0].partitions[0].error_code == 0
        assert fetched(client, "g").topics[0].partitions[0].committed_offset == 7
        assert broker._broker.parts.groups.stats.timeouts == 2


def test_groups_are_counted_on_the_metrics_page(tmp_path: Path) -> None:
    settings = {"metrics.listener": "127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    with Broker(data_dir=str(tmp_path / "data"), settings=settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            create_topic(client, "t")
            find_coordinator(client, "g")
            join(client, "g", 60_000)
            client.call("OffsetCommit", 8, commit("alone", 5))
            beat = ConsumerGroupHeartbeatRequest(
                "new", "m", rebalance_timeout_ms=60_000, subscribed_topic_names=["t"],
                topic_partitions=[],
            )  # fmt: skip
            assert client.call("ConsumerGroupHeartbeat", 1, beat).member_epoch == 2
        lines = metrics_of(broker)
    assert {
        'tidelog_groups{type="classic",state="Stable"} 1',
        'tidelog_groups{type="classic",state="Empty"} 1',
        'tidelog_groups{type="consumer",state="Stable"} 1',
        'tidelog_group_members{type="classic"} 1',
        'tidelog_group_members{type="consumer"} 1',
        'tidelog_group_rebalances_total{type="classic"} 1',
        'tidelog_group_rebalances_total{type="consumer"} 1',
        "tidelog_group_offsets 1",
        "tidelog_group_commits_total 1",
        "tidelog_group_expired_offsets_total 0",
    } <= lines
    with Broker(data_dir=str(tmp_path / "data"), settings=settings) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            while fetched(client, "alone").error_code:
                pass
        lines = metrics_of(broker)
    assert {"tidelog_group_loads_total 1", "tidelog_group_commits_total 0"} <= lines
    assert "tidelog_group_offsets 1" in lines


def metrics_of(broker: Broker) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as page:
        return set(page.read().decode().splitlines())


def test_a_broker_that_stops_does_not_wait_for_members_that_wait(broker: Broker) -> None:
    with (
        RawClient(broker.bootstrap_servers) as member,
        RawClient(broker.bootstrap_servers) as other,
    ):
        find_coordinator(member, "g")
        join(member, "g", 60_000)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        other.send("JoinGroup", 3, request)
        await_state(member, "g", "PreparingRebalance")
        broker.stop()
        # Had it waited for the members, the join would have had another end.
        assert other.receive()[1].error_code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )


def test_clients_cannot_change_the_shape_of_the_offsets_topic(broker: Broker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        find_coordinator(client, "g")
        name = "__consumer_offsets"
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, 2, None)])
        trim = DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)])
        refused = [
            client.call("CreatePartitions", 1, more).results[0].error_code,
            client.call("DeleteRecords", 1, DeleteRecordsRequest([trim])).topics[0].partitions[0]
            .error_code,
            client.call("CreateTopics", 4, CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
            .topics[0].error_code,
            client.call("DeleteTopics", 4, DeleteTopicsRequest(topic_names=[name]))
            .responses[0].error_code,
        ]  # fmt: skip
        assert refused == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 4
        topics = client.call("Metadata", 8, MetadataRequest(topics=None)).topics
        assert [(each.name, each.is_internal) for each in topics] == [(name, True)]
