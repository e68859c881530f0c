"""Stored batches as Arrow columns: every column, every codec, ranges, gaps and bad bytes."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pyarrow as pa
import pytest

from tests.unit.arrow.chunks import RECORDS, batch, chunk
from tidelog.arrow import decode
from tidelog.arrow.columns import COLUMNS, record_schema
from tidelog.arrow.decode import Decoder
from tidelog.client.faults import UnreadableBatchError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec, TimestampType, TopicPartition
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    Record,
    encode_batch,
    encode_control_batch,
    stamp,
)

EVERYTHING = record_schema(tuple(COLUMNS))
END = 1 << 40


def rows(data: bytes, schema: pa.Schema = EVERYTHING, **given: object) -> list[dict[str, object]]:
    end = int(str(given.pop("end", END)))
    batches = list(Decoder(schema).decode(chunk(data, **given), end))  # type: ignore[arg-type]
    for each in batches:
        each.validate(full=True)
        assert each.schema.equals(schema)
    return [row for each in batches for row in each.to_pylist()]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_column_of_every_codec(codec: Codec) -> None:
    found = rows(batch(RECORDS, 40, codec))
    utc = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert [row["key"] for row in found] == [b"k0", None, b"", b"k3"]
    assert [row["value"] for row in found] == [b"v0", b"v1", None, b""]
    assert [row["offset"] for row in found] == [40, 41, 42, 43]
    assert [row["timestamp"] for row in found] == [
        utc + dt.timedelta(milliseconds=each) for each in (0, 1, 5, 3)
    ]
    assert {row["topic"] for row in found} == {"orders"}
    assert {row["partition"] for row in found} == {3}
    assert {row["timestampType"] for row in found} == {0}
    assert [row["headers"] for row in found] == [
        None,
        [{"key": "trace", "value": b"a"}, {"key": "empty", "value": None}],
        None,
        [{"key": "trace", "value": b""}],
    ]


def test_only_the_columns_asked_for_in_their_order() -> None:
    schema = record_schema(("offset", "value"))
    assert rows(batch(RECORDS[:1], 7), schema) == [{"offset": 7, "value": b"v0"}]


def test_the_range_cuts_through_batches() -> None:
    data = batch(RECORDS, 0) + batch(RECORDS, 4) + batch(RECORDS, 8)
    offsets = [row["offset"] for row in rows(data, fetched_at=2, end=9)]
    assert offsets == [2, 3, 4, 5, 6, 7, 8]
    assert rows(data, fetched_at=2, end=2) == []


def test_gaps_that_compaction_leaves_are_kept() -> None:
    whole = batch(RECORDS, 0)
    later = batch(RECORDS[:1], 100)
    assert [row["offset"] for row in rows(whole + later, fetched_at=1)] == [1, 2, 3, 100]


def test_the_brokers_own_time_is_that_of_the_batch() -> None:
    data = encode_batch(RECORDS, base_offset=0, timestamp_type=TimestampType.LOG_APPEND_TIME)
    found = rows(bytes(data))
    assert len({row["timestamp"] for row in found}) == 1
    assert {row["timestampType"] for row in found} == {1}


def test_each_batch_keeps_its_kind_of_time() -> None:
    kinds = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME)
    data = b"".join(
        bytes(encode_batch(RECORDS[:2], base_offset=2 * number, timestamp_type=kind))
        for number, kind in enumerate(kinds)
    )
    assert [row["timestampType"] for row in rows(data)] == [0, 0, 1, 1, 0, 0]


def test_columns_of_one_value_are_those_of_their_chunk() -> None:
    """A decoder keeps such columns: of other lengths, and of another partition, they are right."""
    decoder, found = Decoder(record_schema(("topic", "partition", "timestampType"))), []
    for number, count in ((3, 2), (3, 4), (5, 1), (3, 3)):
        given = dataclasses.replace(
            chunk(batch(RECORDS[:count], 0)), partition=TopicPartition(f"t{number}", number)
        )
        [each] = decoder.decode(given, END)
        each.validate(full=True)
        found.append([tuple(row.values()) for row in each.to_pylist()])
    assert found == [[(f"t{n}", n, 0)] * count for n, count in ((3, 2), (3, 4), (5, 1), (3, 3))]


def test_aborted_records_and_markers_are_not_shown() -> None:
    def transaction(offset: int, producer_id: int) -> bytes:
        return bytes(
            encode_batch(
                RECORDS[:2], base_offset=offset, producer_id=producer_id, producer_epoch=0,
                base_sequence=0, transactional=True,
            )
        )  # fmt: skip

    def marker(offset: int, producer_id: int, kind: int) -> bytes:
        made = encode_control_batch(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
        stamp(made, 0, offset, 0)
        return bytes(made)

    data = (
        transaction(0, 5) + transaction(2, 6) + marker(4, 5, CONTROL_ABORT)
        + marker(5, 6, CONTROL_COMMIT) + transaction(6, 5) + marker(8, 5, CONTROL_COMMIT)
    )  # fmt: skip
    assert [row["offset"] for row in rows(data, aborted=[(0, 5)])] == [2, 3, 6, 7]
    assert [row["offset"] for row in rows(data)] == [0, 1, 2, 3, 6, 7]


def test_large_chunks_become_several_record_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BATCH_BYTES", 100)
    data = b"".join(batch(RECORDS, 4 * each) for each in range(10))
    batches = list(Decoder(EVERYTHING).decode(chunk(data), END))
    assert len(batches) > 3
    assert [row["offset"] for each in batches for row in each.to_pylist()] == list(range(40))


def test_header_keys_that_are_no_text_are_shown_as_java_shows_them() -> None:
    data = bytearray(batch([Record(0, 0, b"k", b"v", [("ab", b"1")])], 0))
    at = data.index(b"ab")
    data[at : at + 2] = b"\xff\xfe"
    [row] = rows(bytes(data))
    assert row["headers"] == [{"key": "\ufffd\ufffd", "value": b"1"}]


def test_bad_bytes_are_told_with_their_place() -> None:
    data = bytearray(batch(RECORDS, 12))
    data[61] = 0x7F
    with pytest.raises(UnreadableBatchError, match=r"orders-3.*offsets 12 to ") as caught:
        rows(bytes(data))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert caught.value.next_offset == 12 + len(RECORDS)


def test_a_stream_that_does_not_inflate_is_told_with_its_place() -> None:
    """It was told without."""
    data = bytearray(batch(RECORDS, 12, Codec.GZIP))
    data[-8:] = b"\xff" * 8
    with pytest.raises(UnreadableBatchError, match=r"orders-3.*offsets 12 to .*gzip"):
        rows(bytes(data))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_inflating_is_bounded(codec: Codec) -> None:
    data = batch([Record(0, 0, None, b"x" * 100_000, [])], 0, codec)
    assert len(rows(data)) == 1
    with pytest.raises(KafkaError) as caught:
        list(Decoder(EVERYTHING, 10_000).decode(chunk(data), END))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (pa.schema([("colour", pa.int32())]), "no column 'colour'"),
        (pa.schema([("value", pa.string())]), "'value' is binary"),
        (pa.schema([("timestamp", pa.timestamp("ms"))]), "'timestamp' is timestamp"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(schema: pa.Schema, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Decoder(schema)
