"""Arrow batches in, Parquet files out: what one task writes of a table.

Rows keep their order within a partition of the table. Files lie in Hive's directories
(``day=2026-01-01/``, escaped as Spark escapes them), and partition columns are in the directory's
name only. Memory is bounded: `BUFFER_BYTES_MAX` of rows wait to become a row group, and at most
`OPEN_FILES_MAX` files are open. A failed task removes its own files; a killed one leaves them where
no table refers to them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.spark.table.statistics import file_statistics

BUFFER_BYTES_MAX = 64 << 20
FILE_BYTES_MAX = 256 << 20
OPEN_FILES_MAX = 32
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(0x20)))

PartitionKey = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A finished file: where it lies below the task's directory, and what a log says of it."""

    path: str
    size_bytes: int
    partition_values: dict[str, str | None]
    statistics: str


@dataclass(slots=True)
class _Buffer:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, root: str, path: str, schema: pa.Schema) -> None:
        self._root, self._path, self._schema = root, path, schema
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        self._footers: list[pq.FileMetaData] = []
        self._sink = pa.OSFile(os.path.join(root, path), "wb")
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", metadata_collector=self._footers
        )

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """One row group."""
        table = pa.Table.from_batches(batches, self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    @property
    def row_count(self) -> int:
        """The rows of a finished file."""
        return int(self._footers[0].num_rows)

    def finish(self, partition_values: dict[str, str | None]) -> DataFile:
        self.close()
        size_bytes = os.stat(os.path.join(self._root, self._path)).st_size
        statistics = file_statistics(self._footers[0], self._schema)
        return DataFile(self._path, size_bytes, partition_values, statistics)

    def close(self) -> None:
        with self._sink:
            self._writer.close()


class TableFiles:
    """The files that one task writes below `directory`."""

    def __init__(self, directory: str, partition_by: tuple[str, ...]) -> None:
        self._directory, self._partition_by = directory, partition_by
        self._name = f"part-{uuid.uuid4()}"
        self._count = 0
        self._buffers: dict[PartitionKey, _Buffer] = {}
        self._buffered_bytes = 0
        self._unfinished_rows = 0
        self._open: dict[PartitionKey, _OpenFile] = {}
        self._started: list[str] = []
        self._finished: list[DataFile] = []

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write every batch; on any error nothing of it stays."""
        try:
            for batch in batches:
                self._add(_with_plain_types(batch))
            for key in list(self._buffers):
                self._flush(key)
                self._finish(key)
            for key in list(self._open):
                self._finish(key)
            assert self._unfinished_rows == 0, "every row is in one file"
        except BaseException:
            self._discard()
            raise
        return self._finished

    def _add(self, batch: pa.RecordBatch) -> None:
        self._unfinished_rows += batch.num_rows
        for key, rows in split_by_partition(batch, self._partition_by):
            buffer = self._buffers.setdefault(key, _Buffer())
            buffer.batches.append(rows)
            buffer.size_bytes += rows.nbytes
            self._buffered_bytes += rows.nbytes
        while self._buffered_bytes > BUFFER_BYTES_MAX:
            self._flush(max(self._buffers, key=lambda key: self._buffers[key].size_bytes))

    def _flush(self, key: PartitionKey) -> None:
        buffer = self._buffers.pop(key)
        self._buffered_bytes -= buffer.size_bytes
        if key not in self._open:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(next(iter(self._open)))
            self._open[key] = self._start(key, buffer.batches[0].schema)
        file = self._open[key]
        file.write(buffer.batches)
        if file.size_bytes >= FILE_BYTES_MAX:
            self._finish(key)

    def _start(self, key: PartitionKey, schema: pa.Schema) -> _OpenFile:
        name = f"{self._name}-{self._count:05}.zstd.parquet"
        path = os.path.join(partition_directory(self._partition_by, key), name)
        self._count += 1
        self._started.append(path)
        return _OpenFile(self._directory, path, schema)

    def _finish(self, key: PartitionKey) -> None:
        if key in self._open:
            values = dict(zip(self._partition_by, key, strict=True))
            file = self._open.pop(key)
            self._finished.append(file.finish(values))
            self._unfinished_rows -= file.row_count

    def _discard(self) -> None:
        for file in self._open.values():
            with suppress(OSError, pa.ArrowException):
                file.close()
        remove_files(self._directory, self._started)


def remove_files(directory: str, paths: Iterable[str]) -> None:
    """Remove files that no table refers to; one that is gone already is no fault."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, path))


def partition_directory(names: tuple[str, ...], key: PartitionKey) -> str:
    """``day=2026-01-01/country=%2F``: what Spark itself would call it."""
    parts = [
        f"{_escape(name)}={NULL_DIRECTORY if text is None else _escape(text)}"
        for name, text in zip(names, key, strict=True)
    ]
    return os.path.join(*parts) if parts else ""


def _escape(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)


def split_by_partition(
    batch: pa.RecordBatch, names: tuple[str, ...]
) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """The rows of each partition, in their order, without the partition columns.

    Each part is a copy: a slice would keep the memory of the whole batch alive.
    """
    if not names:
        if batch.num_rows:
            yield (), batch
        return
    codes: Any = None
    encoded = []
    for name in names:
        column = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        encoded.append((column.indices, _as_texts(column.dictionary)))
        indices = column.indices.cast(pa.int64())
        if codes is not None:
            combined = pc.add(pc.multiply(codes, len(column.dictionary)), indices)
            indices = pc.dictionary_encode(combined).indices.cast(pa.int64())
        codes = indices
    order = pc.sort_indices(codes)
    rest = batch.drop_columns(list(names))
    start = 0
    for end in pc.run_end_encode(codes.take(order)).run_ends.to_pylist():
        first = order[start].as_py()
        key = tuple(texts[indices[first].as_py()] for indices, texts in encoded)
        yield key, rest.take(order.slice(start, end - start))
        start = end


def _as_texts(values: pa.Array) -> list[str | None]:
    """Values as Delta writes them in its log; as in Spark, an empty text is a null there."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
    return [text or None for text in values.cast(pa.string()).to_pylist()]


def _with_plain_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema([(each.name, _plain(each.type)) for each in batch.schema])
    return batch if batch.schema.equals(schema, check_metadata=True) else batch.cast(schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The one Arrow type per Spark type that goes into files, whatever the session's settings."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(each.name, _plain(each.type)) for each in fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind
