"""Commits of tables: once each, wholly or not at all, and only of columns that fit."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import ArrayType, StructType

from tests.spark.table_writers import (
    FORMATS,
    KINDS,
    Columns,
    append,
    batch_of,
    batch_writer,
    ids_of,
    parquet_files,
    read,
    start_delta_runtime,
    stream_writer,
)  # fmt: skip
from tidelog.spark.table import delta, parquet, writers
from tidelog.spark.table.options import TableError


@pytest.fixture(scope="module", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    start_delta_runtime(tmp_path_factory.mktemp("first"))


@pytest.fixture
def query_id(monkeypatch: pytest.MonkeyPatch) -> str:
    """Tasks get it from Spark."""
    monkeypatch.setattr(writers, "_query_id", lambda: "query-a")
    return "query-a"


# ---- commits ------------------------------------------------------------------------------


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_version_is_committed_once(tmp_path: Path, table_format: str, query_id: str) -> None:
    path = tmp_path / "t"
    for batch_id, ids in [(0, [1, 2]), (0, [1, 2]), (1, [3]), (1, [3])]:
        writer = stream_writer(path, format=table_format)
        writer.commit([writer.write(iter([batch_of(ids)])), None], batch_id)
    assert ids_of(path, table_format) == [1, 2, 3]
    assert len(parquet_files(tmp_path)) == 2, "files of the second run stayed"


@pytest.mark.parametrize("table_format", FORMATS)
def test_versions_of_a_batch_write_within_foreach_batch(tmp_path: Path, table_format: str) -> None:
    path = tmp_path / "t"
    for version in ("0", "0", "1"):
        append(
            path, batch_of([int(version)]), format=table_format, txnAppId="a/b", txnVersion=version
        )
    append(path, batch_of([0]), format=table_format, txnAppId="other", txnVersion="0")
    append(path, batch_of([7]), format=table_format)
    append(path, batch_of([7]), format=table_format)
    assert ids_of(path, table_format) == [0, 0, 1, 7, 7]


@pytest.mark.parametrize("table_format", FORMATS)
def test_an_aborted_write_is_removed_and_a_committed_one_is_not(
    tmp_path: Path, table_format: str
) -> None:
    path = tmp_path / "t"
    writer = batch_writer(path, format=table_format)
    message = writer.write(iter([batch_of([1])]))
    writer.abort([message, None])
    assert parquet_files(tmp_path) == []

    # Spark aborts as well when a commit was made but its answer got lost.
    message = writer.write(iter([batch_of([2])]))
    writer.commit([message])
    writer.abort([message])
    assert ids_of(path, table_format) == [2]


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_second_attempt_of_a_task_is_not_in_the_table(
    tmp_path: Path, table_format: str, query_id: str
) -> None:
    """P7: a task that was given up goes on writing."""
    writer = stream_writer(tmp_path / "t", format=table_format)
    writer.write(iter([batch_of([1])]))  # the straggler, whose message nobody waits for
    writer.commit([writer.write(iter([batch_of([1])]))], 0)
    assert ids_of(tmp_path / "t", table_format) == [1]


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_batch_without_rows_makes_no_transaction(
    tmp_path: Path, table_format: str, query_id: str
) -> None:
    path = tmp_path / "t"
    writer = stream_writer(path, format=table_format)
    writer.commit([], 0)
    writer.commit([writer.write(iter([])), writer.write(iter([batch_of([])]))], 1)
    assert parquet_files(tmp_path) == []
    if table_format == "delta":
        assert DeltaTable(str(path)).version() == 0
    writer.commit([writer.write(iter([batch_of([1])]))], 2)
    assert ids_of(path, table_format) == [1]


@pytest.mark.parametrize("table_format", FORMATS)
def test_overwrite_replaces_all_rows(tmp_path: Path, table_format: str) -> None:
    path = tmp_path / "t"
    append(path, batch_of([1, 2]), format=table_format)
    append(path, batch_of([3]), format=table_format)
    writer = batch_writer(path, overwrite=True, format=table_format)
    writer.commit([writer.write(iter([batch_of([4])]))])
    assert ids_of(path, table_format) == [4]
    if table_format == "delta":
        assert DeltaTable(str(path)).version() == 3
    writer = batch_writer(path, overwrite=True, format=table_format)
    writer.commit([])
    assert not any(path.rglob("*.parquet")) or ids_of(path, table_format) == []


@pytest.mark.parametrize("table_format", FORMATS)
def test_complete_mode_replaces_once_per_batch(
    tmp_path: Path, table_format: str, query_id: str
) -> None:
    path = tmp_path / "t"
    for batch_id, ids in [(0, [1]), (1, [1, 2]), (1, [1, 2])]:
        writer = stream_writer(path, overwrite=True, format=table_format)
        writer.commit([writer.write(iter([batch_of(ids)]))], batch_id)
    assert ids_of(path, table_format) == [1, 2]


def test_a_parquet_table_is_put_back_when_replacing_it_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    append(path, batch_of([1]), format="parquet")
    writer = batch_writer(path, overwrite=True, format="parquet")
    message = writer.write(iter([batch_of([2])]))
    rename = os.rename

    def die_before_the_new_rows(source: str, target: str) -> None:
        if target == str(path):
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(parquet.os, "rename", die_before_the_new_rows)
        with pytest.raises(KeyboardInterrupt):
            writer.commit([message])
    assert not path.exists()
    append(path, batch_of([3]), format="parquet")
    assert ids_of(path, "parquet") == [1, 3]


def test_a_batch_of_parquet_becomes_visible_by_one_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    writer = batch_writer(path, format="parquet", partitionBy="day")
    messages = [writer.write(iter([batch_of([i], day) for day in "abc"])) for i in range(3)]
    seen, rename = [], os.rename

    def look_around(source: str, target: str) -> None:
        seen.append(len(parquet_files(path)))
        rename(source, target)
        seen.append(len(parquet_files(path)))

    with monkeypatch.context() as patch:
        patch.setattr(parquet.os, "rename", look_around)
        writer.commit(messages)
    assert set(seen) == {0, 9}
    assert len(parquet_files(tmp_path)) == 9


def test_writers_of_one_delta_table_do_not_disturb_each_other(tmp_path: Path) -> None:
    writers = 4

    def write(number: int) -> None:
        for version in range(5):
            append(
                tmp_path / "t", batch_of([number * 100 + version]),
                txnAppId=f"query-{number}", txnVersion=str(version),
            )  # fmt: skip

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    expected = [number * 100 + version for number in range(writers) for version in range(5)]
    assert ids_of(tmp_path / "t", "delta") == expected


def test_two_drivers_of_one_query_commit_a_batch_once(
    tmp_path: Path, query_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked at the table before either commits."""
    path = tmp_path / "t"
    append(path, batch_of([0]))
    writer = stream_writer(path)
    messages = [[writer.write(iter([batch_of([1])]))] for _ in range(2)]
    stale = DeltaTable(str(path))
    writer.commit(messages[0], 5)

    views = [stale]
    monkeypatch.setattr(
        delta, "open_table", lambda path: views.pop() if views else DeltaTable(path)
    )
    writer.commit(messages[1], 5)
    assert views == []
    assert ids_of(path, "delta") == [0, 1]
    assert len(parquet_files(path)) == 2, "the files of the second driver stayed"


@pytest.mark.parametrize("name", ["t", "my lake", "größe", "a+b=c"])
def test_a_commit_that_only_seemed_to_fail_keeps_its_files(
    tmp_path: Path, query_id: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The table names its files in another encoding than the path it was given."""
    path = tmp_path / name
    append(path, batch_of([0]))
    writer = stream_writer(path)
    message = writer.write(iter([batch_of([1])]))
    write = DeltaTable.create_write_transaction
    failures = [CommitFailedError("no answer")]

    def unanswered(table: DeltaTable, *given: Any, **named: Any) -> None:
        write(table, *given, **named)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(DeltaTable, "create_write_transaction", unanswered)
    writer.commit([message], 5)
    assert failures == []
    assert ids_of(path, "delta") == [0, 1]
    writer.abort([message], 5)
    assert ids_of(path, "delta") == [0, 1]


def test_what_was_committed_is_known_after_the_log_was_checkpointed(
    tmp_path: Path, query_id: str
) -> None:
    path = tmp_path / "t"
    for batch_id in range(3):
        writer = stream_writer(path)
        writer.commit([writer.write(iter([batch_of([batch_id])]))], batch_id)
    DeltaTable(str(path)).create_checkpoint()
    for file in (path / "_delta_log").glob("*.json"):
        if int(file.stem) < 3:
            file.unlink()
    writer = stream_writer(path)
    writer.commit([writer.write(iter([batch_of([2])]))], 2)
    assert ids_of(path, "delta") == [0, 1, 2]


@pytest.mark.parametrize("table_format", FORMATS)
def test_p4_a_query_whose_checkpoint_is_older_than_the_table_is_refused(
    tmp_path: Path, table_format: str, query_id: str
) -> None:
    """Its batches may hold other rows than those of the same numbers did: none may be skipped."""
    path = tmp_path / "t"
    for batch_id in range(3):
        writer = stream_writer(path, format=table_format)
        writer.commit([writer.write(iter([batch_of([batch_id])]))], batch_id)
    message = writer.write(iter([batch_of([1, 2, 3])]))
    with pytest.raises(TableError, match="has batch 2 of query query-a, which is at batch 1"):
        writer.commit([message], 1)
    writer.abort([message], 1)
    assert ids_of(path, table_format) == [0, 1, 2]
    assert len(parquet_files(tmp_path)) == 3


# ---- schemas ------------------------------------------------------------------------------


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": "int", "day": "string"}, "'id' is long in the table and integer in the query"),
        ({"id": "long", "Day": "string"}, "'Day' is called 'day' in the table"),
        ({"id": "long", "page": "string"}, "no column page: set option mergeSchema"),
        ({"id": "long", "day": ArrayType(KINDS["string"])}, "'day' is string in the table"),
    ],
)
def test_columns_that_do_not_fit_the_table_are_refused(
    tmp_path: Path, table_format: str, columns: Columns, told: str
) -> None:
    """P8: a schema that changed is told."""
    append(tmp_path / "t", batch_of([1]), format=table_format)
    with pytest.raises(TableError, match=told):
        batch_writer(tmp_path / "t", columns, format=table_format)
    with pytest.raises(TableError, match="partitioned by no column"):
        batch_writer(tmp_path / "t", format=table_format, partitionBy="day")


@pytest.mark.parametrize("table_format", FORMATS)
def test_new_columns_are_added_when_asked_for(tmp_path: Path, table_format: str) -> None:
    path = tmp_path / "t"
    append(path, batch_of([1]), format=table_format, partitionBy="day")
    wide = batch_of([2]).append_column("page", pa.array(["/"]))
    columns: Columns = {"id": "long", "day": "string", "page": "string"}
    append(path, wide, columns=columns, format=table_format, mergeSchema="true")
    append(path, batch_of([3]), format=table_format)
    with pytest.raises(TableError, match="'page' is string in the table"):
        batch_writer(path, {**columns, "page": "int"}, format=table_format)
    if table_format == "delta":
        rows = read(path, table_format).sort_by("id").to_pylist()
        assert [row["page"] for row in rows] == [None, "/", None]
        assert {row["day"] for row in rows} == {"a"}
    else:
        assert ids_of(path, table_format) == [1, 2, 3]


def test_a_nested_type_is_compared_without_nullability(tmp_path: Path) -> None:
    inner = StructType().add("x", ArrayType(KINDS["int"], False), False)
    columns: Columns = {"id": "long", "o": inner}
    batch = pa.record_batch(
        {"id": [1], "o": pa.array([{"x": [1]}], pa.struct([("x", pa.list_(pa.int32()))]))}
    )
    for _ in range(2):
        append(tmp_path / "t", batch, columns=columns)
    assert ids_of(tmp_path / "t", "delta") == [1, 1]


@pytest.mark.parametrize("rule", ["constraint", "not null"])
def test_a_table_with_rules_that_nobody_would_check_is_refused(tmp_path: Path, rule: str) -> None:
    schema = StructType().add("id", KINDS["long"], nullable=rule != "not null")
    table = DeltaTable.create(str(tmp_path / "t"), Schema.from_json(schema.json()))
    if rule == "constraint":
        table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(TableError, match="a rule that would not be checked"):
        batch_writer(tmp_path / "t", {"id": "long"})


def test_a_directory_of_other_files_is_no_parquet_table(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "part-0.parquet").write_bytes(b"")
    with pytest.raises(TableError, match="not written as such a table"):
        batch_writer(tmp_path / "t", format="parquet")
    with pytest.raises(TableError, match="is the table's own"):
        batch_writer(tmp_path / "u", {"id": "long", "tidelog_batch": "string"}, format="parquet")


def test_another_writer_may_change_the_table_between(tmp_path: Path) -> None:
    """A table that somebody else compacts stays as it is for us."""
    for each in range(3):
        append(tmp_path / "t", batch_of([each]))
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    append(tmp_path / "t", batch_of([3]))
    assert ids_of(tmp_path / "t", "delta") == [0, 1, 2, 3]
