"""Batches whose records came encoded: sent as they are, split where they must be."""

from __future__ import annotations

import pytest

from tests.unit.client.helpers import known_cluster
from tests.unit.client.producing import new_core, response
from tests.unit.client.test_producer import batches_of
from tidelog.client.batching import EncodedRecords, ProducerRecord
from tidelog.client.faults import NetworkError
from tidelog.model import Codec, TopicPartition
from tidelog.protocol.batches import HEADER_BYTES, Record, decode_records, encode_batch, read_header

PARTITION = TopicPartition("orders", 0)


def encoded(*values: bytes, at_ms: int = 5) -> EncodedRecords:
    records = [Record(0, at_ms + number, None, value) for number, value in enumerate(values)]
    batch = bytearray(encode_batch(records))
    batch[:HEADER_BYTES] = bytes(HEADER_BYTES)
    return EncodedRecords(batch + b"room", len(batch), len(values), at_ms, at_ms + len(values) - 1)


def test_a_whole_batch_does_not_wait_for_linger() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=10_000)
    core.append_encoded(PARTITION, encoded(b"a", b"b"), clock.now)
    [call] = core.calls(clock.now)
    assert batches_of(call) == [(0, [b"a", b"b"])]
    records = call.call.message.topic_data[0].partition_data[0].records  # type: ignore[attr-defined]
    assert [record.timestamp for record in decode_records(records)] == [5, 6]
    core.finish(call, response({0: (0, 0)}), clock.now)
    assert core.idle
    assert core.buffered_bytes == 0
    assert [batch.record_count for batch in core.take_completed()] == [2]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_retry_sends_the_same_bytes_and_sequences_count_records(codec: Codec) -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, codec=codec)
    core.append_encoded(PARTITION, encoded(b"known"), clock.now)
    [known] = core.calls(clock.now)
    core.finish(known, response({0: (0, 0)}), clock.now)
    for values in ((b"a", b"b", b"c"), (b"d",)):
        core.append_encoded(PARTITION, encoded(*values), clock.now)
    first, second = core.calls(clock.now)

    def sent(call: object) -> bytes:
        return bytes(call.call.message.topic_data[0].partition_data[0].records)  # type: ignore[attr-defined]

    headers = [read_header(sent(call)) for call in (first, second)]
    assert [header.base_sequence for header in headers] == [1, 4]
    assert {header.codec for header in headers} == {codec}
    before = sent(first)
    core.finish(first, NetworkError("b1", "reset"), clock.now)
    core.finish(second, NetworkError("b1", "reset"), clock.now)
    clock.now += 1
    [again] = core.calls(clock.now)
    assert sent(again) == before


def test_records_are_not_put_into_a_batch_that_is_whole() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=0, idempotent=False)
    core.append_encoded(PARTITION, encoded(b"a"), clock.now)
    core.append(ProducerRecord("orders", b"b"), clock.now)
    assert [batches_of(call) for call in core.calls(clock.now)] == [[(0, [b"a"])], [(0, [b"b"])]]


def test_a_whole_batch_that_is_too_large_is_halved_and_its_size_remembered() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, codec=Codec.LZ4)
    payload = encoded(*(b"%d" % number for number in range(8)))
    core.append_encoded(PARTITION, payload, clock.now)
    stored: list[bytes] = []
    for _ in range(20):
        for call in core.calls(clock.now):
            [(_, values)] = batches_of(call)
            fits = len(values) <= 2
            core.finish(call, response({0: (0 if fits else 10, len(stored))}), clock.now)
            stored += values if fits else []
    assert stored == [b"%d" % number for number in range(8)]
    assert sum(batch.record_count for batch in core.take_completed()) == 8
    assert core.refused_bytes["orders"] < payload.size_bytes
    assert core.idle
