"""Produce: what is refused, with which code, and that nothing else suffers for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.produce_requests import batch, create_topic, fetch, offset_at, produce, values_in
from tests.e2e.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.model import Codec
from tidelog.protocol.batches import Record, encode_batch, read_header
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest
from tidelog.testing import Broker


def answer_to(client: RawClient, request: ProduceRequest, version: int = 9) -> Any:
    return client.call("Produce", version, request).responses[0].partition_responses[0]


def corrupted(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


def test_a_wrong_checksum_is_corrupt_and_leaves_no_trace(client: RawClient, topic: str) -> None:
    answer = answer_to(client, produce(topic, corrupted(batch([b"x"]))))
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert offset_at(client, topic, -1) == 0


def test_a_batch_above_max_message_bytes_is_too_large(client: RawClient, topic: str) -> None:
    answer = answer_to(client, produce(topic, batch([b"x" * 1_100_000])))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_unknown_topics_and_partitions(client: RawClient, topic: str) -> None:
    for name, partition in (("nothing-here", 0), (topic, 2), (topic, -1)):
        answer = answer_to(client, produce(name, batch([b"x"]), partition=partition))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refused_partition_does_not_hold_up_the_others(client: RawClient, topic: str) -> None:
    request = produce(topic, corrupted(batch([b"bad"])))
    request.topic_data[0].partition_data.append(PartitionProduceData(1, batch([b"good"])))
    answers = client.call("Produce", 9, request).responses[0].partition_responses
    assert [each.error_code for each in answers] == [ErrorCode.CORRUPT_MESSAGE, 0]
    data = client.call("Fetch", 11, fetch(topic, partition=1)).responses[0].partitions[0]
    assert values_in(data) == [b"good"]


def test_acks_0_has_no_answer_and_a_failure_closes_the_connection(
    tidelog_broker: Broker, client: RawClient, topic: str
) -> None:
    client.send("Produce", 9, produce(topic, batch([b"quiet"]), acks=0))
    assert offset_at(client, topic, -1) == 1, "the next answer is that of the next request"
    client._sent.clear()
    with RawClient(tidelog_broker.bootstrap_servers) as other:
        other.send("Produce", 9, produce("nothing-here", batch([b"x"]), acks=0))
        assert other.is_closed()


def test_other_values_of_acks_are_refused(client: RawClient, topic: str) -> None:
    for acks in (2, -2, 100):
        answer = answer_to(client, produce(topic, batch([b"x"]), acks=acks))
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert offset_at(client, topic, -1) == 0


def test_record_errors_name_the_record_without_a_key(client: RawClient) -> None:
    create_topic(client, "compacted", cleanup_policy="compact")
    records = [Record(i, 1, None if i == 2 else b"k", b"v", []) for i in range(4)]
    for codec in (Codec.NONE, Codec.ZSTD):
        answer = answer_to(client, produce("compacted", bytes(encode_batch(records, codec=codec))))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [2]
        assert answer.error_message


def test_log_append_time_is_the_brokers(client: RawClient) -> None:
    create_topic(client, "stamped", message_timestamp_type="LogAppendTime")
    answer = answer_to(client, produce("stamped", batch([b"x", b"y"])))
    assert answer.log_append_time_ms > 1_700_000_000_000
    data = client.call("Fetch", 11, fetch("stamped")).responses[0].partitions[0]
    header = read_header(data.records)
    assert header.max_timestamp == answer.log_append_time_ms
    assert header.timestamp_type == 1


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_the_topics_codec_is_stored_whatever_was_sent(client: RawClient, target: str) -> None:
    create_topic(client, f"codec-{target}", compression_type=target)
    for number, codec in enumerate(Codec):
        assert (
            answer_to(client, produce(f"codec-{target}", batch([b"v" * 500], codec))).error_code
            == 0
        )
        data = client.call("Fetch", 11, fetch(f"codec-{target}", number)).responses[0].partitions[0]
        stored = read_header(data.records).codec.name.lower()
        assert stored == target.replace("uncompressed", "none")
        assert values_in(data) == [b"v" * 500]


def test_zstd_needs_a_client_that_knows_it(client: RawClient, topic: str) -> None:
    answer = answer_to(client, produce(topic, batch([b"x"], Codec.ZSTD)), version=6)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_retry_of_an_idempotent_batch_is_stored_once(client: RawClient, topic: str) -> None:
    given = client.call("InitProducerId", 4, InitProducerIdRequest(transactional_id=None))
    assert given.error_code == 0

    def numbered(sequence: int) -> ProduceRequest:
        records = batch(
            [b"x"], producer_id=given.producer_id, producer_epoch=0, base_sequence=sequence
        )
        return produce(topic, records)

    offsets = [answer_to(client, numbered(sequence)).base_offset for sequence in range(6)]
    assert offsets == list(range(6))
    again = [answer_to(client, numbered(sequence)) for sequence in range(1, 6)]
    assert [(each.error_code, each.base_offset) for each in again] == [(0, n) for n in range(1, 6)]
    gap = answer_to(client, numbered(9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert offset_at(client, topic, -1) == 6


def test_a_transactional_batch_needs_a_transactional_id(client: RawClient, topic: str) -> None:
    """CVE-2018-17196: what counts is the batch, also where its transaction is open already."""
    records = batch([b"x"], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    # Twice: the second is recognised by how it begins.
    for _ in range(2):
        refused = answer_to(client, produce(topic, records))
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert offset_at(client, topic, -1) == 0


def test_produce_by_topic_id_from_version_13(client: RawClient, topic: str) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    topic_id = client.call("Metadata", 12, asked).topics[0].topic_id
    request = produce("", batch([b"x"]))
    request.topic_data[0].topic_id = topic_id
    assert answer_to(client, request, version=13).base_offset == 0
    request.topic_data[0].topic_id = type(topic_id)(int=1)
    assert answer_to(client, request, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_versions_that_are_only_advertised_close_the_connection(
    client: RawClient, version: int
) -> None:
    client.socket.sendall(
        b"\x00\x00\x00\x0c\x00\x00"
        + version.to_bytes(2, "big")
        + b"\x00\x00\x00\x01\xff\xff\x00\x00"
    )
    assert client.is_closed()
