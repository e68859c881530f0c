"""Produces that begin like one before them take a shorter way, and nobody can tell."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.produce_requests import batch, create_topic, fetch, offset_at, produce, values_in
from tests.e2e.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.model import Codec
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest
from tidelog.server.dispatch import DECLINED
from tidelog.server.handlers.produce_again import ProduceShortcut
from tidelog.testing import Broker

VERSIONS = (3, 4, 5, 8, 9, 10, 12, 13)


class Shortcut:
    """Whether the short way took each produce that was offered to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[bool] = []
        serve = ProduceShortcut.serve

        def watched(shortcut: ProduceShortcut, frame: memoryview, connection: Any) -> Any:
            result = serve(shortcut, frame, connection)
            if frame[:2] == b"\0\0":
                self.taken.append(result is not DECLINED)
            else:
                assert result is DECLINED
            return result

        monkeypatch.setattr(ProduceShortcut, "serve", watched)


@pytest.fixture
def shortcut(monkeypatch: pytest.MonkeyPatch) -> Shortcut:
    return Shortcut(monkeypatch)


def id_of(client: RawClient, topic: str) -> UUID:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    found: UUID = client.call("Metadata", 12, asked).topics[0].topic_id
    return found


def answer_to(client: RawClient, request: ProduceRequest, version: int = 9) -> Any:
    return client.call("Produce", version, request).responses[0].partition_responses[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-1, 1])
def test_the_second_answer_is_like_the_first(
    client: RawClient, topic: str, shortcut: Shortcut, version: int, acks: int
) -> None:
    request = produce(topic, batch([b"x"]), acks=acks, partition=1)
    if version >= 13:
        request.topic_data[0].topic_id = id_of(client, topic)
    answers = [client.call("Produce", version, request) for _ in range(3)]
    # It is asked about the first one too where the connection has asked for metadata.
    assert shortcut.taken[-2:] == [True, True]
    for number, answer in enumerate(answers):
        assert answer.responses[0].partition_responses[0].base_offset == number
        answer.responses[0].partition_responses[0].base_offset = 0
    assert answers[0] == answers[1] == answers[2]
    data = client.call("Fetch", 11, fetch(topic, partition=1)).responses[0].partitions[0]
    assert values_in(data) == [b"x"] * 3


def test_lengths_of_every_size_are_understood(
    client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    sizes = [1, 20, 300, 16_000, 17_000, 900_000]
    for size in sizes:
        assert answer_to(client, produce(topic, batch([b"x" * size]))).error_code == 0
    assert shortcut.taken == [True] * (len(sizes) - 1)
    data = client.call("Fetch", 11, fetch(topic)).responses[0].partitions[0]
    assert [len(each or b"") for each in values_in(data)] == sizes


def test_partitions_in_turn_and_other_connections_are_known_too(
    tidelog_broker: Broker, client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    for partition in (0, 1, 0, 1):
        answer_to(client, produce(topic, batch([b"x"]), partition=partition))
    assert shortcut.taken == [False, True, True]
    with RawClient(tidelog_broker.bootstrap_servers) as other:
        for number in (2, 3):
            assert answer_to(other, produce(topic, batch([b"x"]))).base_offset == number
    assert shortcut.taken == [False, True, True, True]


def test_versions_with_the_same_bytes_do_not_push_each_other_out(
    client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    for number, version in enumerate((3, 7, 8, 3, 7, 8)):
        answer = answer_to(client, produce(topic, batch([b"x"])), version)
        assert (answer.base_offset, answer.error_code) == (number, 0)
    assert shortcut.taken == [False, False, True, True, True]


def test_acks_0_is_appended_without_an_answer(
    client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    for _ in range(3):
        client.send("Produce", 9, produce(topic, batch([b"quiet"]), acks=0))
    assert offset_at(client, topic, -1) == 3, "the next answer is that of the next request"
    assert shortcut.taken == [True, True]


def test_what_is_not_plain_is_judged_as_ever(
    client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    good = batch([b"x"])
    answer_to(client, produce(topic, good))
    odd = {
        good[:-1] + b"\x01": ErrorCode.CORRUPT_MESSAGE,
        good[:-1]: ErrorCode.INVALID_RECORD,
        b"short": ErrorCode.INVALID_RECORD,
        batch([b"x" * 1_100_000]): ErrorCode.MESSAGE_TOO_LARGE,
        batch([b"x"], producer_id=5, producer_epoch=-1): ErrorCode.INVALID_RECORD,
        batch([b"x"], Codec.LZ4): ErrorCode.NONE,
    }
    for records, code in odd.items():
        assert answer_to(client, produce(topic, records)).error_code == code
    request = produce(topic, good)
    request.topic_data[0].partition_data.append(PartitionProduceData(1, good))
    assert answer_to(client, request).error_code == 0
    assert shortcut.taken == [False] * (len(odd) + 1)
    assert answer_to(client, produce(topic, good)).base_offset == 3


@pytest.mark.parametrize("version", [8, 9, 12])
def test_sequences_are_checked_and_repetitions_answered(
    client: RawClient, topic: str, shortcut: Shortcut, version: int
) -> None:
    given = client.call("InitProducerId", 4, InitProducerIdRequest(transactional_id=None))

    def send(sequence: int) -> Any:
        numbered = {"producer_id": given.producer_id, "producer_epoch": 0}
        records = batch([b"x"], base_sequence=sequence, **numbered)
        return answer_to(client, produce(topic, records), version)

    assert [send(sequence).base_offset for sequence in (0, 1, 2, 1, 3)] == [0, 1, 2, 1, 3]
    gap = send(9)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (gap.base_offset, gap.log_append_time_ms, gap.log_start_offset) == (-1, -1, -1)
    assert shortcut.taken == [True] * 5


def test_a_topic_that_is_gone_is_not_written_to_and_its_successor_is(
    client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    for _ in range(2):
        answer_to(client, produce(topic, batch([b"old"])))
    client.call("DeleteTopics", 4, DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000))
    gone = answer_to(client, produce(topic, batch([b"lost"])))
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(client, topic)
    assert answer_to(client, produce(topic, batch([b"new"]))).base_offset == 0
    assert shortcut.taken == [True, False, True]


def test_acks_0_closes_the_connection_when_the_sequence_is_wrong(
    client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    given = client.call("InitProducerId", 4, InitProducerIdRequest(transactional_id=None))
    for sequence in (0, 1, 7):
        numbered = {"producer_id": given.producer_id, "producer_epoch": 0}
        records = batch([b"x"], base_sequence=sequence, **numbered)
        client.send("Produce", 9, produce(topic, records, acks=0))
    assert client.is_closed()
    assert shortcut.taken == [True], "and the one that was refused"


def test_a_topic_that_syncs_answers_when_it_is_on_the_disk(
    client: RawClient, shortcut: Shortcut
) -> None:
    create_topic(client, "synced-again", durability="fsync")
    for acks in (1, -1):
        for number in range(3):
            request = produce("synced-again", batch([b"x"]), acks=acks)
            assert answer_to(client, request, 12).error_code == 0, number
    assert shortcut.taken == [True, True, False, True, True]


def test_the_settings_of_the_topic_are_those_of_now(client: RawClient, shortcut: Shortcut) -> None:
    create_topic(client, "stamped-again", message_timestamp_type="LogAppendTime")
    times = [
        answer_to(client, produce("stamped-again", batch([b"x"]))).log_append_time_ms
        for _ in range(2)
    ]
    assert min(times) > 1_700_000_000_000
    assert shortcut.taken == [False]


def lengthened(frame: bytes, more: bytes) -> bytes:
    return struct.pack(">i", len(frame) - 4 + len(more)) + frame[4:] + more


@pytest.mark.parametrize("version", [8, 9])
def test_bytes_behind_the_request_are_nobodys(
    client: RawClient, topic: str, shortcut: Shortcut, version: int
) -> None:
    request = produce(topic, batch([b"x"]))
    answer_to(client, request, version)
    # Among them some that would be a length of too many bytes, in place of the real one.
    odd = [b"\xff" * count for count in range(1, 12)]
    for more in (b"\0", b"\0\0\0\0", b"more of it", *odd):
        client.socket.sendall(lengthened(client.encode("Produce", version, request), more))
        client.receive()
    assert shortcut.taken == [False] * 14
    assert answer_to(client, request, version).base_offset == 15
    assert shortcut.taken[-1]


def test_a_frame_that_ends_anywhere_is_declined(
    tidelog_broker: Broker, client: RawClient, topic: str, shortcut: Shortcut
) -> None:
    request = produce(topic, batch([b"x"]))
    whole = client.encode("Produce", 9, request)
    for end in (5, 9, 13, 14, 17, 20, len(whole) // 2, len(whole) - 3, len(whole) - 1):
        with RawClient(tidelog_broker.bootstrap_servers) as other:
            answer_to(other, request)
            other.socket.sendall(struct.pack(">i", end - 4) + whole[4:end])
            assert other.is_closed(), end
    assert not any(shortcut.taken)
