"""Arrow rows in record batches: where each row goes, in which order, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.kernels.forms import FORMS
from tidelog.arrow import encode
from tidelog.arrow.encode import RowError, TopicEncoder, rows_of
from tidelog.client.batching import EncodedRecords
from tidelog.client.partitioner import partition_for_key
from tidelog.model import NO_TIMESTAMP
from tidelog.protocol.batches import HEADER_BYTES, BatchHeader, Record, decode_records

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = dict[str, Any]


@pytest.fixture(params=FORMS, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    form = FORMS[request.param]
    monkeypatch.setattr(encode, "kernel", form)
    return form


class SeededRandom:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> Any:
        raise AssertionError("no identifier is drawn here")


def records_in(payload: EncodedRecords) -> list[Record]:
    assert payload.size_bytes <= len(payload.buffer)
    records = decode_records(payload.batch(BatchHeader(), None))
    assert len(records) == payload.record_count
    assert payload.max_timestamp_ms == max(record.timestamp for record in records)
    assert payload.first_timestamp_ms == records[0].timestamp
    return records


def written(
    batches: list[pa.RecordBatch], partition_count: int = 4, batch_bytes: int = 4096
) -> Iterator[tuple[int, list[Record]]]:
    encoder = TopicEncoder(partition_count, batch_bytes, SeededRandom())
    for batch in batches:
        for number, payload in encoder.add(rows_of(batch, NOW_MS), range(partition_count)):
            yield number, records_in(payload)
    for number, payload in encoder.finish():
        yield number, records_in(payload)


def by_partition(parts: Iterator[tuple[int, list[Record]]]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for number, records in parts:
        found.setdefault(number, []).extend(records)
    return found


def random_row(chance: random.Random, number: int) -> Row:
    def data(length_max: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(length_max))

    headers = [
        {"key": f"h{chance.randrange(5)}", "value": data(20)} for _ in range(chance.randrange(3))
    ]
    return {
        "key": data(20),
        "value": b"%d " % number + (data(chance.choice((10, 300, 2000))) or b""),
        "partition": chance.randrange(3) if chance.random() < 0.3 else None,
        "headers": None if chance.random() < 0.2 else headers,
        "timestamp": None if chance.random() < 0.2 else chance.randrange(10**12) * 1000,
    }


def batch_of(rows: list[Row], *, large: bool = False) -> pa.RecordBatch:
    binary = pa.large_binary() if large else pa.binary()
    schema = pa.schema(
        [
            ("key", binary), ("value", binary), ("partition", pa.int32()), ("headers", HEADERS),
            ("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema)


def check(row: Row, record: Record) -> None:
    assert record.key == row["key"]
    assert record.value == row["value"]
    assert record.headers == [(each["key"], each["value"]) for each in row["headers"] or []]
    stamp = row["timestamp"]
    assert record.timestamp == (NOW_MS if stamp is None else stamp // 1000)


def test_rows_of_any_shape_land_where_they_belong_in_their_order() -> None:
    cases = 0
    for seed in range(30):
        print("seed", seed)
        chance = random.Random(seed)
        rows = [random_row(chance, number) for number in range(chance.randrange(1, 300))]
        batches, start = [], 0
        while start < len(rows):
            count = chance.randrange(1, 120)
            # A slice begins inside its buffers, with its validity bits at any place of a byte.
            before = chance.randrange(3)
            part = batch_of(rows[max(0, start - before) : start + count], large=seed % 2 == 1)
            batches.append(part.slice(min(before, start)))
            start += count
        partition_count = chance.choice((3, 4, 50))
        found = by_partition(written(batches, partition_count, chance.choice((300, 1000, 65536))))
        seen = 0
        for number, records in found.items():
            fixed = {"last": -1, "last_free": -1}
            for record in records:
                row_number = int((record.value or b"").split(b" ", 1)[0])
                row = rows[row_number]
                check(row, record)
                expected = row["partition"]
                if expected is None and row["key"] is not None:
                    expected = partition_for_key(row["key"], partition_count)
                place = "last_free" if expected is None else "last"
                assert expected in (None, number)
                assert fixed[place] < row_number, "the rows of a partition keep their order"
                fixed[place] = row_number
                seen += 1
        assert seen == len(rows)
        cases += 1
    assert cases == 30


def test_a_batch_goes_on_with_the_next_rows_until_it_is_full() -> None:
    batches = [batch_of([random_row(random.Random(n), n)]).select(["value"]) for n in range(50)]
    sizes = [len(records) for _, records in written(batches, 1, 100_000)]
    assert sizes == [50]


def test_rows_without_a_key_fill_one_partition_before_the_next() -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * 90] * 1000)})
    parts = list(written([batch], partition_count=4, batch_bytes=1061))
    assert [len(records) for _, records in parts[:-1]] == [10] * (len(parts) - 1)
    numbers = [number for number, _ in parts]
    assert all(here != there for here, there in pairwise(numbers))
    assert set(numbers) == {0, 1, 2, 3}


def test_a_row_larger_than_a_batch_gets_one_of_its_own_in_order() -> None:
    values = [b"a", b"b" * 5000, b"c", b"d" * 5000, b"e" * 5000]
    headers = pa.array([[("k", b"v" * 300)]] * 5, HEADERS)
    batch = pa.record_batch({"value": pa.array(values), "headers": headers})
    parts = [[record.value for record in records] for _, records in written([batch], 1, 1000)]
    assert [value for values in parts for value in values] == values
    assert [b"b" * 5000] in parts


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_text_and_large_columns_are_written_as_their_bytes(kind: pa.DataType) -> None:
    values = ["läuft", None, ""] if pa.types.is_large_string(kind) or kind == pa.string() else None
    column = pa.array(values or ["läuft".encode(), None, b""], kind)
    batch = pa.record_batch({"key": column, "value": column})
    records = [record for part in by_partition(written([batch])).values() for record in part]
    expected = {"läuft".encode(), None, b""}
    assert {record.key for record in records} == {record.value for record in records} == expected


def test_a_batch_without_rows_writes_nothing() -> None:
    assert list(written([batch_of([])])) == []


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"partition": 4}, "'partition' holds 4, and the topic's partitions are 0 to 3"),
        ({"partition": -1}, "'partition' holds -1"),
        ({"timestamp": -1}, "'timestamp' holds a time before 1970"),
        ({"timestamp": -2000}, "'timestamp' holds a time before 1970"),
        ({"headers": [{"key": None, "value": b"x"}]}, "'headers' holds a header without a key"),
        ({"headers": [None]}, "'headers' holds a header without a key"),
    ],
)
def test_a_row_that_cannot_be_a_record_is_refused_by_its_column(row: Row, complaint: str) -> None:
    sound = random_row(random.Random(1), 0) | {"partition": None}
    with pytest.raises(RowError, match=complaint):
        list(written([batch_of([sound, sound | row])]))


def test_a_record_that_was_read_without_a_time_is_written_without_one() -> None:
    chance = random.Random(1)
    rows = [random_row(chance, number) | {"partition": 0} for number in range(20)]
    for row in rows[::3]:
        row["timestamp"] = NO_TIMESTAMP * 1000
    [records] = by_partition(written([batch_of(rows)])).values()
    for row, record in zip(rows, records, strict=True):
        check(row, record)


def test_rows_without_a_value_column_are_refused() -> None:
    with pytest.raises(RowError, match="'value' is missing"):
        rows_of(pa.record_batch({"key": pa.array([b"x"])}), NOW_MS)


def test_the_buffer_has_room_for_the_header_in_front() -> None:
    encoder = TopicEncoder(1, 500, SeededRandom())
    batch = pa.record_batch({"value": pa.array([b"x"])})
    assert list(encoder.add(rows_of(batch, NOW_MS), [0])) == []
    [(_, payload)] = encoder.finish()
    assert payload.size_bytes == HEADER_BYTES + 8


@pytest.mark.parametrize("batch_bytes", [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1])
def test_a_batch_size_below_any_row_is_one_row_to_a_batch(batch_bytes: int) -> None:
    """As it is the way to switch batching off in other clients."""
    batch = pa.record_batch({"value": [b"%d" % number for number in range(5)]})
    parts = list(written([batch], partition_count=1, batch_bytes=batch_bytes))
    assert [[record.value for record in records] for _, records in parts] == [
        [b"%d" % number] for number in range(5)
    ]
