"""What one task writes of a table, and which options and columns it takes."""

from __future__ import annotations

import datetime
import json
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import ArrayType, DecimalType, MapType

from tests.spark.table_writers import (
    FORMATS,
    KINDS,
    Columns,
    append,
    batch_of,
    batch_writer,
    parquet_files,
    read,
    schema_of,
    start_delta_runtime,
    stream_writer,
)  # fmt: skip
from tidelog.spark.table import files
from tidelog.spark.table.files import TableFiles, split_by_partition
from tidelog.spark.table.options import TableError, TableOptions


@pytest.fixture(scope="module", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    start_delta_runtime(tmp_path_factory.mktemp("first"))


# ---- options and columns ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "'path' is missing"),
        ({"path": "t", "partitonBy": "day"}, "unknown option 'partitonby'"),
        ({"path": "t", "format": "orc"}, "'format' is 'orc'"),
        ({"path": "t", "mergeSchema": "yes"}, "'mergeSchema' is 'yes'"),
        ({"path": "t", "txnAppId": "a"}, "go together"),
        ({"path": "t", "txnVersion": "3"}, "go together"),
        ({"path": "t", "txnAppId": "a", "txnVersion": "x"}, "go together"),
        ({"path": "s3a://bucket/t"}, "local or mounted"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str], told: str) -> None:
    with pytest.raises(TableError, match=told):
        TableOptions.parse(options)


def test_options_are_read_as_spark_gives_them() -> None:
    options = TableOptions.parse(
        {"PATH": "file:///lake/a%20b", "partitionby": " day, hour ", "checkpointLocation": "c"}
    )
    assert options == TableOptions("/lake/a b", "delta", ("day", "hour"))
    assert TableOptions.parse({"path": "t"}).path == os.path.abspath("t")


@pytest.mark.parametrize(
    ("columns", "partition_by", "told"),
    [
        ({"a": "int", "A": "int"}, "", "is there twice"),
        ({"a": "interval"}, "", "'a' is interval day to second"),
        ({"a": schema_of({"b": ArrayType(KINDS["void"])})}, "", r"'a.b.element' is void"),
        ({"a": MapType(KINDS["string"], KINDS["variant"])}, "", r"'a.value' is variant"),
        ({"a": "int", "b": "int"}, "c", "no column 'c'"),
        ({"a": "double", "b": "int"}, "a", "'a' is double, which names no directory"),
        ({"a": "int"}, "a", "at least one column"),
    ],
)
def test_columns_that_no_table_can_hold_are_refused(
    tmp_path: Path, columns: Columns, partition_by: str, told: str
) -> None:
    with pytest.raises(TableError, match=told):
        batch_writer(tmp_path / "t", columns, partitionBy=partition_by)
    assert list(tmp_path.iterdir()) == []


def test_the_query_id_is_needed() -> None:
    with pytest.raises(TableError, match=r"sql\.streaming\.queryId"):
        stream_writer(Path("t")).write(iter([]))


# ---- files --------------------------------------------------------------------------------


def test_rows_are_split_by_partition_in_their_order() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, cases = random.Random(seed), 0
    for _ in range(200):
        count = chance.randrange(0, 50)
        days = [chance.choice(["a", "b", None, "", "ü/="]) for _ in range(count)]
        hours = [chance.choice([0, 1, None]) for _ in range(count)]
        batch = pa.record_batch(
            {"day": pa.array(days, pa.string()), "n": pa.array(range(count), pa.int64()),
             "hour": pa.array(hours, pa.int32())}
        )  # fmt: skip
        expected: dict[Any, list[int]] = {}
        for index, (day, hour) in enumerate(zip(days, hours, strict=True)):
            key = (day or None, None if hour is None else str(hour))
            expected.setdefault(key, []).append(index)
        found: dict[Any, list[int]] = {}
        for key, rows in split_by_partition(batch, ("day", "hour")):
            assert rows.schema.names == ["n"]
            found.setdefault(key, []).extend(rows["n"].to_pylist())
        assert {key: sorted(rows) for key, rows in found.items()} == expected
        cases += 1
    assert cases == 200


def test_memory_and_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUFFER_BYTES_MAX", 2000)
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 3000)
    monkeypatch.setattr(files, "OPEN_FILES_MAX", 2)
    days = ["a", "b", "c", "d"]
    batches = [
        pa.record_batch({"id": range(start, start + 100), "day": [days[i % 4] for i in range(100)]})
        for start in range(0, 3000, 100)
    ]
    task = TableFiles(str(tmp_path), ("day",))
    written = task.write_all(batches)
    assert task._buffered_bytes == 0
    assert len(written) > len(days), "no file was ended early"
    by_day: dict[str, list[int]] = {}
    for file in written:
        rows = ds.dataset(str(tmp_path / file.path)).to_table()["id"].to_pylist()
        assert json.loads(file.statistics)["numRecords"] == len(rows)
        assert file.size_bytes == (tmp_path / file.path).stat().st_size
        by_day.setdefault(file.partition_values["day"] or "", []).extend(rows)
    assert by_day == {day: list(range(i, 3000, 4)) for i, day in enumerate(days)}


def test_a_failed_task_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUFFER_BYTES_MAX", 1)

    def batches() -> Any:
        yield batch_of(range(10))
        assert len(parquet_files(tmp_path)) == 1
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        batch_writer(tmp_path / "t").write(batches())
    assert parquet_files(tmp_path) == []


def test_statistics_bound_every_value(tmp_path: Path) -> None:
    day, at = datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 1, 2, 3, 4, datetime.UTC)
    columns: Columns = {
        "i": "int", "s": "string", "d": "date", "t": "timestamp", "n": "timestamp_ntz",
        "f": "double", "b": "boolean", "m": DecimalType(9, 2),
        "o": schema_of({"x": "int", "l": ArrayType(KINDS["int"])}), "nothing": "string",
        "raw": "binary",
    }  # fmt: skip
    rows = {
        "i": pa.array([3, None, -5], pa.int32()),
        "s": ["b" * 40, None, "é" * 40],
        "d": [day, None, day + datetime.timedelta(1)],
        "t": pa.array([at, None, at], pa.timestamp("us", "Europe/Paris")),
        "n": pa.array([at.replace(tzinfo=None), None, None], pa.timestamp("us")),
        "f": [1.0, float("nan"), None],
        "b": [True, None, False],
        "m": pa.array([Decimal("1.5"), None, None], pa.decimal128(9, 2)),
        "o": pa.array(
            [{"x": 7, "l": [1]}, None, {"x": 9, "l": []}],
            pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int32()))]),
        ),
        "nothing": pa.array([None] * 3, pa.string()),
        "raw": pa.array([b"\xff", None, b""], pa.binary()),
    }
    writer = batch_writer(tmp_path / "t", columns)
    message = writer.write(iter([pa.record_batch(rows)]))
    assert json.loads(message.files[0].statistics) == {
        "numRecords": 3,
        "minValues": {
            "i": -5, "s": "b" * 32, "d": "2026-01-01", "t": "2026-01-01T01:02:03.000004Z",
            "n": "2026-01-01T01:02:03.000004", "o": {"x": 7},
        },
        "maxValues": {
            "i": 3, "s": "é" * 32 + "\U0010ffff", "d": "2026-01-02",
            "t": "2026-01-01T01:02:03.000004Z", "n": "2026-01-01T01:02:03.000004", "o": {"x": 9},
        },
        "nullCount": {
            "i": 1, "s": 1, "d": 1, "t": 1, "n": 2, "f": 1, "b": 1, "m": 2, "o": {"x": 1},
            "nothing": 3, "raw": 1,
        },
    }  # fmt: skip
    writer.commit([message])
    table = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    assert table.count_rows(ds.field("s") == "é" * 40) == 1
    assert table.count_rows(ds.field("t") >= pa.scalar(at)) == 2
    assert table.count_rows(ds.field("i") < -5) == 0


def test_days_beyond_python_have_no_bounds(tmp_path: Path) -> None:
    columns: Columns = {"d": "date", "t": "timestamp_ntz"}
    rows = {
        "d": pa.array([-800_000, 0], pa.int32()).cast(pa.date32()),
        "t": pa.array([0, 2**60], pa.int64()).cast(pa.timestamp("us")),
    }
    writer = batch_writer(tmp_path / "t", columns)
    message = writer.write(iter([pa.record_batch(rows)]))
    told = json.loads(message.files[0].statistics)
    assert told["minValues"] == told["maxValues"] == {}
    assert told["nullCount"] == {"d": 0, "t": 0}
    writer.commit([message])
    assert DeltaTable(str(tmp_path / "t")).count() == 2


@pytest.mark.parametrize("table_format", FORMATS)
def test_partition_values_come_back_whatever_they_are(tmp_path: Path, table_format: str) -> None:
    values = [
        "plain",
        "a b",
        "a/b",
        "50%",
        "%2F",
        "x=y",
        "ü☃",
        "q\"'#?:*\\{[]^",
        "\x01\t",
        "..",
        None,
    ]
    options = {"format": table_format, "partitionBy": "day"}
    append(tmp_path / "t", *(batch_of([i], day) for i, day in enumerate(values)), **options)
    rows = read(tmp_path / "t", table_format).sort_by("id").to_pylist()
    assert [row["day"] for row in rows] == values


@pytest.mark.parametrize("table_format", FORMATS)
def test_partition_columns_of_every_kind(tmp_path: Path, table_format: str) -> None:
    columns: Columns = {
        "id": "long", "b": "boolean", "i": "short", "d": "date", "t": "timestamp",
        "n": "timestamp_ntz",
    }  # fmt: skip
    moment = datetime.datetime(2026, 1, 1, 1, 2, 3, 4, datetime.UTC)
    row = {
        "id": 1, "b": True, "i": -7, "d": datetime.date(2026, 1, 1), "t": moment,
        "n": moment.replace(tzinfo=None),
    }  # fmt: skip
    types = [
        ("id", pa.int64()), ("b", pa.bool_()), ("i", pa.int16()), ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row], schema=pa.schema(types))
    options = {"format": table_format, "partitionBy": "b,i,d,t,n"}
    append(tmp_path / "t", batch, columns=columns, **options)
    if table_format == "delta":
        assert read(tmp_path / "t", table_format).to_pylist() == [row]
    else:
        (file,) = parquet_files(tmp_path / "t")
        assert file.parent.relative_to(tmp_path / "t").parts[1:] == (
            "b=true", "i=-7", "d=2026-01-01",
            "t=2026-01-01 01%3A02%3A03.000004", "n=2026-01-01 01%3A02%3A03.000004",
        )  # fmt: skip


def test_large_arrow_types_are_written_as_plain_ones(tmp_path: Path) -> None:
    columns: Columns = {
        "id": "long", "s": "string", "r": "binary", "l": ArrayType(KINDS["string"]),
        "m": MapType(KINDS["string"], KINDS["binary"]),
    }  # fmt: skip
    row = {"id": 1, "s": "x", "r": b"y", "l": ["z", None], "m": [("k", b"v")]}
    large = pa.schema(
        [("id", pa.int64()), ("s", pa.large_string()), ("r", pa.large_binary()),
         ("l", pa.list_(pa.large_string())), ("m", pa.map_(pa.large_string(), pa.large_binary()))]
    )  # fmt: skip
    append(tmp_path / "t", pa.RecordBatch.from_pylist([row], schema=large), columns=columns)
    found = ds.dataset([str(path) for path in parquet_files(tmp_path)])
    assert found.schema.field("s").type == pa.string()
    assert found.schema.field("l").type.value_type == pa.string()
    assert read(tmp_path / "t", "delta").to_pylist() == [row]
