"""The load generators' own bytes, judged by the codec of the broker."""

import struct
from typing import Any

from bench.peers.bare_loop import with_port
from bench.wire import (
    batch_of_size,
    metadata_error,
    metadata_frame,
    produce_error,
    produce_frame,
    record_batch,
)
from tidelog.protocol import framing
from tidelog.protocol.apis import api
from tidelog.protocol.batches import check_crc, decode_records, read_header
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
