"""The load generators' own bytes, judged by the codec of the broker."""

import struct
from typing import Any

import pytest

from bench.peers.bare_loop import with_port
from bench.wire import (
    authenticate_frame,
    authenticate_token,
    batch_of_size,
    client_quota_error,
    client_quota_frame,
    fetch_frame,
    handshake_error,
    handshake_frame,
    metadata_error,
    metadata_frame,
    produce_error,
    produce_frame,
    record_batch,
)
from tidelog.protocol import framing
from tidelog.protocol.apis import api
from tidelog.protocol.batches import check_crc, decode_records, read_header
from tidelog.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlterationResult,
)
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tidelog.protocol.schema import decode


def body(parts: list[Any]) -> bytes:
    """An encoded answer without its length prefix."""
    return b"".join(parts)[4:]


def test_a_record_batch_is_one_that_the_broker_reads() -> None:
    values = [b"", b"a", b"b" * 300]
    batch = record_batch(values)
    assert read_header(batch).size_bytes == len(batch)
    assert check_crc(batch, 0, len(batch))
    assert [record.value for record in decode_records(batch)] == values


def test_a_batch_of_a_size_is_nearly_that_large() -> None:
    batch, count = batch_of_size(65_536, 1_000)
    assert 0.95 * 65_536 < len(batch) <= 65_536
    assert len(decode_records(batch)) == count


def test_a_produce_frame_decodes_to_what_was_meant() -> None:
    batch = record_batch([b"x"])
    frame = produce_frame("orders", batch, acks=1, partition=2)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, end = framing.decode_request_header(frame, 4)
    request, end = decode(ProduceRequest, header.api_version, frame, end)
    assert end == len(frame)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (request.acks, topic.name, partition.index) == (1, "orders", 2)
    assert partition.records == batch


def test_the_error_of_a_produce_answer_is_found() -> None:
    partition = PartitionProduceResponse(index=0, error_code=19)
    topic = TopicProduceResponse(name="orders", partition_responses=[partition])
    answer = framing.encode_response(api("Produce"), 3, 1, ProduceResponse(responses=[topic]))
    assert produce_error(body(answer), "orders") == 19


def test_a_topic_without_partitions_is_not_there_yet() -> None:
    def error(topic: MetadataResponseTopic) -> int:
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092, rack="r1")
        message = MetadataResponse(brokers=[broker], cluster_id="c", topics=[topic])
        return metadata_error(body(framing.encode_response(api("Metadata"), 4, 1, message)))

    ready = MetadataResponsePartition(partition_index=0, leader_id=1)
    assert error(MetadataResponseTopic(name="orders", partitions=[ready])) == 0
    assert error(MetadataResponseTopic(name="orders", partitions=[])) == 3
    assert error(MetadataResponseTopic(name="orders", error_code=5)) == 5


def test_a_metadata_frame_asks_for_creation_only_when_told() -> None:
    assert metadata_frame("orders", create=True)[-1] == 1
    assert metadata_frame("orders")[-1] == 0


def test_a_recorded_address_is_exchanged() -> None:
    old, new = struct.pack(">i", 9092), struct.pack(">i", 40_000)
    answer = b"\0\x09127.0.0.1" + old + b"\0\x07bench-1"
    assert with_port(answer, 9092, 40_000) == b"\0\x09127.0.0.1" + new + b"\0\x07bench-1"


def asked(message: type[Any], frame: bytes) -> tuple[str | None, Any]:
    """The client id and the request of a frame."""
    header, end = framing.decode_request_header(frame, 4)
    request, end = decode(message, header.api_version, frame, end)
    assert end == len(frame)
    return header.client_id, request


def test_the_frames_of_a_log_in_decode_to_what_was_meant() -> None:
    assert asked(SaslHandshakeRequest, handshake_frame("PLAIN"))[1].mechanism == "PLAIN"
    assert asked(SaslAuthenticateRequest, authenticate_frame(b"token"))[1].auth_bytes == b"token"


def test_the_answers_of_a_log_in_are_read() -> None:
    greeting = SaslHandshakeResponse(33, ["PLAIN"])
    answer = framing.encode_response(api("SaslHandshake"), 1, 1, greeting)
    assert handshake_error(body(answer)) == 33
    proof = SaslAuthenticateResponse(auth_bytes=b"proof")
    answer = framing.encode_response(api("SaslAuthenticate"), 1, 1, proof)
    assert authenticate_token(body(answer)) == b"proof"
    refused = SaslAuthenticateResponse(58, "wrong")
    answer = framing.encode_response(api("SaslAuthenticate"), 1, 1, refused)
    with pytest.raises(RuntimeError, match="error 58, wrong"):
        authenticate_token(body(answer))


def test_a_quota_is_set_and_removed() -> None:
    for value in (5e6, None):
        frame = client_quota_frame("noisy", "producer_byte_rate", value)
        _, request = asked(AlterClientQuotasRequest, frame)
        (entry,) = request.entries
        ((entity,), (change,)) = entry.entity, entry.ops
        assert (entity.entity_type, entity.entity_name) == ("client-id", "noisy")
        assert (change.key, change.remove) == ("producer_byte_rate", value is None)
        assert change.value == (value or 0.0)
    answer = AlterClientQuotasResponse(entries=[QuotaAlterationResult(error_code=42)])
    encoded = framing.encode_response(api("AlterClientQuotas"), 0, 1, answer)
    assert client_quota_error(body(encoded)) == 42


def test_a_client_goes_by_the_name_that_its_quota_is_for() -> None:
    frame = produce_frame("orders", record_batch([b"x"]), client_id="noisy")
    assert asked(ProduceRequest, frame)[0] == "noisy"
    assert asked(FetchRequest, fetch_frame("orders", client_id="noisy"))[0] == "noisy"
