"""Fetch, to the byte: limits, waiting, positions, sessions, epochs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.e2e.produce_requests import batch, create_topic, fetch, offset_at, produce, values_in
from tests.e2e.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.model import Codec
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.testing import Broker


@pytest.fixture
def broker(tidelog_broker: Broker) -> Broker:
    return tidelog_broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[:200].replace("[", "-").replace("]", "")
    create_topic(client, name, partitions=3, retention_ms="-1")
    return name


def send(client: RawClient, topic: str, values: list[bytes], partition: int = 0) -> int:
    """Produce one batch; its size in bytes."""
    records = batch(values)
    answer = client.call("Produce", 9, produce(topic, records, partition=partition))
    assert answer.responses[0].partition_responses[0].error_code == 0
    return len(records)


def fetch_one(client: RawClient, request: FetchRequest) -> object:
    response = client.call("Fetch", 11, request)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def test_an_offset_inside_a_batch_returns_the_whole_batch(client: RawClient, topic: str) -> None:
    send(client, topic, [b"0", b"1", b"2"])
    send(client, topic, [b"3"])
    data = fetch_one(client, fetch(topic, 2))
    assert values_in(data) == [b"0", b"1", b"2", b"3"]


def test_the_first_batch_comes_however_small_the_limits(client: RawClient, topic: str) -> None:
    size = send(client, topic, [b"x" * 1000])
    send(client, topic, [b"y" * 1000])
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": size}):
        data = fetch_one(client, fetch(topic, **limits))  # type: ignore[arg-type]
        assert values_in(data) == [b"x" * 1000]
    data = fetch_one(client, fetch(topic, max_bytes=2 * size))
    assert len(values_in(data)) == 2


def test_max_bytes_holds_over_all_partitions(client: RawClient, topic: str) -> None:
    size = send(client, topic, [b"x" * 1000])
    for partition in (1, 2):
        send(client, topic, [b"x" * 1000], partition)
    request = fetch(topic, max_bytes=2 * size)
    request.topics[0].partitions = [
        FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
        for each in range(3)
    ]
    response = client.call("Fetch", 11, request)
    counts = [len(values_in(each)) for each in response.responses[0].partitions]
    assert counts == [1, 1, 0]


def test_min_bytes_waits_until_there_is_exactly_enough(
    broker: Broker, client: RawClient, topic: str
) -> None:
    size = len(batch([b"x" * 100]))
    client.send("Fetch", 11, fetch(topic, max_wait_ms=20_000, min_bytes=2 * size))
    with RawClient(broker.bootstrap_servers) as producer:
        send(producer, topic, [b"x" * 100])
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(30)
        send(producer, topic, [b"x" * 100])
    data = client.receive()[1].responses[0].partitions[0]
    assert len(values_in(data)) == 2


def test_a_fetch_answers_empty_when_its_time_is_up(client: RawClient, topic: str) -> None:
    start = time.monotonic()
    data = fetch_one(client, fetch(topic, max_wait_ms=200, min_bytes=1))
    assert time.monotonic() - start >= 0.19
    assert values_in(data) == []


def test_what_is_written_wakes_a_waiting_fetch(broker: Broker, topic: str) -> None:
    received: list[list[bytes | None]] = []

    def wait() -> None:
        with RawClient(broker.bootstrap_servers) as waiting:
            data = fetch_one(waiting, fetch(topic, max_wait_ms=30_000))
            received.append(values_in(data))

    thread = threading.Thread(target=wait)
    thread.start()
    with RawClient(broker.bootstrap_servers) as producer:
        send(producer, topic, [b"news"])
    thread.join(timeout=10)
    assert received == [[b"news"]]


@pytest.mark.parametrize("offset", [-1, 2, 10**9])
def test_an_offset_outside_the_log_is_out_of_range(
    client: RawClient, topic: str, offset: int
) -> None:
    send(client, topic, [b"only"])
    data = fetch_one(client, fetch(topic, offset, max_wait_ms=10_000))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[attr-defined]


def session_request(
    topic: str, session_id: int, epoch: int, parts: list[tuple[int, int]]
) -> FetchRequest:
    topics = []
    if parts:
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in parts
        ]
        topics = [FetchTopic(topic=topic, partitions=partitions)]
    return FetchRequest(
        max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=topics
    )


def test_a_session_tells_only_what_changed(client: RawClient, topic: str) -> None:
    everything = [(0, 0), (1, 0), (2, 0)]
    first = client.call("Fetch", 11, session_request(topic, 0, 0, everything))
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 3
    quiet = client.call("Fetch", 11, session_request(topic, first.session_id, 1, []))
    assert quiet.responses == []
    send(client, topic, [b"a"], partition=1)
    news = client.call("Fetch", 11, session_request(topic, first.session_id, 2, []))
    assert [each.partition_index for each in news.responses[0].partitions] == [1]
    assert values_in(news.responses[0].partitions[0]) == [b"a"]
    again = client.call("Fetch", 11, session_request(topic, first.session_id, 3, [(1, 1)]))
    assert again.responses == []
    forget = session_request(topic, first.session_id, 4, [])
    forget.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[1])]
    client.call("Fetch", 11, forget)
    send(client, topic, [b"b"], partition=1)
    after = client.call("Fetch", 11, session_request(topic, first.session_id, 5, []))
    assert after.responses == []


def test_a_session_out_of_step_or_unknown_is_refused(client: RawClient, topic: str) -> None:
    first = client.call("Fetch", 11, session_request(topic, 0, 0, [(0, 0)]))
    wrong = client.call("Fetch", 11, session_request(topic, first.session_id, 7, []))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = client.call("Fetch", 11, session_request(topic, first.session_id ^ 1, 1, []))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    closed = client.call("Fetch", 11, session_request(topic, first.session_id, -1, []))
    assert (closed.error_code, closed.session_id) == (0, 0)
    gone = client.call("Fetch", 11, session_request(topic, first.session_id, 1, []))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topics_by_id_from_version_13(client: RawClient, topic: str) -> None:
    send(client, topic, [b"by id"])
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    topic_id = client.call("Metadata", 12, asked).topics[0].topic_id
    assert topic_id.int != 0
    request = fetch(topic)
    request.topics[0].topic, request.topics[0].topic_id = "", topic_id
    response = client.call("Fetch", 16, request)
    assert response.responses[0].topic_id == topic_id
    assert values_in(response.responses[0].partitions[0]) == [b"by id"]
    request.topics[0].topic_id = type(topic_id)(int=topic_id.int ^ 1)
    refused = client.call("Fetch", 16, request).responses[0].partitions[0]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_client_cannot_pose_as_a_replica(client: RawClient, topic: str) -> None:
    request = fetch(topic)
    request.replica_id = 3
    assert client.call("Fetch", 11, request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_leader_epochs_fence_both_ways_and_rise_at_a_restart(tmp_path: object) -> None:
    directory = str(tmp_path)
    with Broker(data_dir=directory) as first, RawClient(first.bootstrap_servers) as client:
        create_topic(client, "epochs")
        send(client, "epochs", [b"a", b"b"])
    with Broker(data_dir=directory) as second, RawClient(second.bootstrap_servers) as client:
        send(client, "epochs", [b"c"])
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="epochs")])
        epoch = client.call("Metadata", 9, asked).topics[0].partitions[0].leader_epoch
        assert epoch >= 1
        request = fetch("epochs")
        for known, code in (
            (epoch, ErrorCode.NONE),
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            request.topics[0].partitions[0].current_leader_epoch = known
            data = fetch_one(client, request)
            assert data.error_code == code  # type: ignore[attr-defined]
        ended = client.call(
            "OffsetForLeaderEpoch",
            3,
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderTopic(
                        "epochs",
                        [OffsetForLeaderPartition(partition=0, leader_epoch=epoch - 1)],
                    )
                ],
            ),
        )
        answer = ended.topics[0].partitions[0]
        # A broker that stops leaves its partitions without a leader, in an epoch without records.
        assert (answer.leader_epoch, answer.end_offset) == (0, 2)


def test_offsets_by_time_are_exact_inside_compressed_batches(client: RawClient, topic: str) -> None:
    from tidelog.protocol.batches import Record, encode_batch

    for codec in Codec:
        base = offset_at(client, topic, -1)
        records = [Record(i, 1_000_000 * (codec + 1) + 10 * i, None, b"v", []) for i in range(50)]
        made = bytes(encode_batch(records, codec=codec))
        answer = client.call("Produce", 9, produce(topic, made))
        assert answer.responses[0].partition_responses[0].error_code == 0
        for wanted, at in ((0, 0), (1, 10), (37, 365), (49, 490)):
            assert offset_at(client, topic, 1_000_000 * (codec + 1) + at) == base + wanted
    assert offset_at(client, topic, 10**15) == -1
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-3)]
            )
        ],
    )
    newest = client.call("ListOffsets", 7, request).topics[0].partitions[0]
    assert (newest.offset, newest.timestamp) == (249, 5_000_490)
