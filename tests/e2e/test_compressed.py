"""Compressed batches that mean harm: inflated off the loop, refused, read round and skipped."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.e2e.produce_requests import batch, create_topic, fetch, offset_at, produce, values_in
from tests.e2e.raw_client import RawClient
from tidelog.errors import ErrorCode
from tidelog.model import Codec
from tidelog.protocol import batches, compression
from tidelog.protocol.batches import Record, encode_batch, read_header
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest
from tidelog.storage.admission import LOOP_CODEC_BYTES, LOOP_INFLATED_BYTES
from tidelog.testing import Broker

REAL_CODECS = [codec for codec in Codec if codec is not Codec.NONE]
NOW = 1_700_000_000_000
AHEAD = NOW * 3
HIDDEN = compression.compress(Codec.GZIP, b"no records at all, but a gzip stream" * 5)


class Inflations:
    """Which thread inflated how much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_loop: list[tuple[int, int]] = []
        self.elsewhere = 0
        original = compression.decompress

        def spy(codec: Codec, data: batches.Buffer, max_bytes: int) -> bytes:
            # The pool of the broker names its threads by number; the loop's thread has no pool.
            if threading.current_thread().name.startswith("broker_"):
                self.elsewhere += 1
            else:
                self.on_loop.append((len(data), max_bytes))
            return original(codec, data, max_bytes)

        monkeypatch.setattr(compression, "decompress", spy)


def answer_to(client: RawClient, request: ProduceRequest) -> Any:
    return client.call("Produce", 9, request).responses[0].partition_responses[0]


def with_stream(good: bytes, stream: bytes, count: int | None = None) -> bytes:
    """The batch with other bytes in the place of its compressed records, its checksum right."""
    made = bytearray(good[: batches.HEADER_BYTES]) + stream
    header = read_header(good)
    header.batch_length = len(made) - batches.LOG_OVERHEAD
    if count is not None:
        header.record_count, header.last_offset_delta = count, count - 1
    batches.seal(made, 0, header)
    return bytes(made)


def store_poison(client: RawClient, topic: str) -> None:
    """A record, a batch of two offsets whose framing is right but that holds none, a record."""
    poison = with_stream(batch([b"x"], Codec.GZIP), HIDDEN, 2)
    for stored in (batch([b"a"]), poison, batch([b"b"])):
        assert not answer_to(client, produce(topic, stored)).error_code


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_whatever_is_inflated_is_inflated_off_the_loop(
    client: RawClient, topic: str, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Inflations(monkeypatch)
    large = [Record(timestamp=AHEAD, value=bytes(range(256)) * 100 + b"%d" % n) for n in range(20)]
    bomb = [Record(timestamp=AHEAD, value=bytes(4_000_000))]
    for records in (large, bomb):
        answer = answer_to(client, produce(topic, bytes(encode_batch(records, codec=codec))))
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    # What is small is tried on the loop with a small bound, and then goes elsewhere.
    assert seen.elsewhere == 2
    tried = len(seen.on_loop)
    assert tried <= 2
    small = encode_batch([Record(timestamp=AHEAD, value=b"x")], codec=codec)
    for partition in range(2):
        answer_to(client, produce(topic, bytes(small), partition=partition))
    assert seen.elsewhere == 2
    assert len(seen.on_loop) == tried + 2
    assert all(
        size <= LOOP_CODEC_BYTES and limit <= LOOP_INFLATED_BYTES for size, limit in seen.on_loop
    )


def test_many_small_batches_of_one_request_are_one_large_one(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(client, "many-small", partitions=60)
    seen = Inflations(monkeypatch)
    small = bytes(encode_batch([Record(timestamp=AHEAD, value=b"x")], codec=Codec.ZSTD))
    request = produce("many-small", small)
    request.topic_data[0].partition_data = [PartitionProduceData(n, small) for n in range(60)]
    client.call("Produce", 9, request)
    assert (seen.elsewhere, seen.on_loop) == (60, [])


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_timestamp_is_looked_up_off_the_loop(
    client: RawClient, topic: str, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in (0, 1_000):
        records = [Record(timestamp=NOW + start + n, value=b"v" * 100) for n in range(500)]
        assert not answer_to(
            client, produce(topic, bytes(encode_batch(records, codec=codec)))
        ).error_code
    seen = Inflations(monkeypatch)
    assert offset_at(client, topic, NOW + 1_007) == 507
    assert offset_at(client, topic, NOW + 700) == 500
    assert offset_at(client, topic, -3) == 999
    assert offset_at(client, topic, NOW + 9_999) == -1
    assert seen.elsewhere == 3
    asked = [ListOffsetsPartition(partition_index=0, timestamp=NOW + 5)] * 200
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
    )
    # A partition that is named twice is refused and not looked into at all.
    refused = client.call("ListOffsets", 7, request).topics[0].partitions
    assert [each.error_code for each in refused] == [ErrorCode.INVALID_REQUEST]
    assert (seen.elsewhere, seen.on_loop) == (3, [])


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_garbage_and_impossible_counts_are_refused_and_leave_no_trace(
    client: RawClient, topic: str, codec: Codec
) -> None:
    good = batch([b"a", b"b"], codec)
    stream = good[batches.HEADER_BYTES :]
    for bad in (
        with_stream(good, b"garbage" * 50),
        with_stream(good, b""),
        with_stream(good, stream, 2**31 - 1),
    ):
        answer = answer_to(client, produce(topic, bad))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message
    assert offset_at(client, topic, -1) == 0


def test_a_refused_poison_batch_does_not_use_its_sequence(client: RawClient, topic: str) -> None:
    """A client gives the batch up for good, and may send another in its place."""
    given = client.call("InitProducerId", 4, InitProducerIdRequest(transactional_id=None))

    def sent(values: list[bytes | None], sequence: int) -> bytes:
        producer = {"producer_id": given.producer_id, "producer_epoch": 0}
        return batch(values, Codec.LZ4, base_sequence=sequence, **producer)

    assert answer_to(client, produce(topic, sent([b"0"], 0))).error_code == 0
    poison = with_stream(sent([b"1"], 1), b"garbage" * 50)
    for _ in range(2):
        assert answer_to(client, produce(topic, poison)).error_code == ErrorCode.INVALID_RECORD
    assert answer_to(client, produce(topic, sent([b"1"], 1))).error_code == 0
    data = client.call("Fetch", 11, fetch(topic)).responses[0].partitions[0]
    assert values_in(data) == [b"0", b"1"]


def test_a_timestamp_in_a_batch_that_cannot_be_read_gives_its_first_offset(
    client: RawClient, topic: str
) -> None:
    """It closed the connection, or answered that the whole partition was corrupt."""
    store_poison(client, topic)
    assert offset_at(client, topic, NOW) == 0
    records = [Record(timestamp=NOW + 50, value=b"c")]
    late = with_stream(bytes(encode_batch(records, codec=Codec.GZIP)), HIDDEN, 2)
    assert not answer_to(client, produce(topic, late)).error_code
    assert offset_at(client, topic, NOW + 20) == 4


def test_full_validation_refuses_what_the_framing_does_not_show(client: RawClient) -> None:
    create_topic(client, "validated", record_validation="full")
    poison = with_stream(batch([b"x"], Codec.GZIP), HIDDEN, 2)
    answer = answer_to(client, produce("validated", poison))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert offset_at(client, "validated", -1) == 0


class Commands:
    """Runs `tidelog` against the broker, as the hints of its errors say."""

    def __init__(self, broker: Broker) -> None:
        self._servers = broker.bootstrap_servers

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", *line.split(), "-b", self._servers]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_an_operator_goes_past_a_batch_that_cannot_be_read(
    client: RawClient, topic: str, tidelog_broker: Broker
) -> None:
    store_poison(client, topic)
    tidelog = Commands(tidelog_broker)
    refused = tidelog.run(f"tidelog consume {topic} -e")
    assert refused.stdout == "a\n", "what comes before it is printed"
    assert refused.returncode == 1
    assert f"{topic}-0: the batch of offsets 1 to 2 cannot be read" in refused.stderr
    onwards = re.search(r"`(tidelog consume [^`]*)` goes on behind it", refused.stderr)
    assert onwards, refused.stderr
    assert tidelog.run(f"{onwards[1]} -e").stdout == "b\n"


def test_a_group_goes_past_a_batch_that_cannot_be_read(
    client: RawClient, topic: str, tidelog_broker: Broker
) -> None:
    store_poison(client, topic)
    assert not answer_to(client, produce(topic, batch([b"other"]), partition=1)).error_code
    tidelog = Commands(tidelog_broker)
    member = f"tidelog consume {topic} -g past-{topic}"
    refused = tidelog.run(member)
    assert sorted(refused.stdout.split()) == ["a", "other"]
    described = tidelog.run(f"tidelog group describe past-{topic}")
    assert described.returncode == 0, described.stderr
    moving = re.search(r"`(tidelog group seek [^`]*)` moves the group past it", refused.stderr)
    assert moving, refused.stderr
    moved = tidelog.run(moving[1])
    assert moved.returncode == 0, moved.stderr
    assert tidelog.run(f"{member} -n 1").stdout == "b\n"
