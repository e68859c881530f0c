"""Keys and values that are text or JSON, decoded column-wise.

JSON objects become one struct column, so that the record's own columns keep their names;
`pyarrow.Table.flatten` spreads it out. A null value (a tombstone) stays null. A value that does not
decode is an error that names the record: who would rather go on asks for bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

# Values are parsed together, up to this many bytes, so that they agree on types.
_BLOCK_BYTES = 1 << 30
# Each value is parsed as a field of an object, so that none is two rows, or no row, unnoticed.
_FIELD, _HEAD, _TAIL = "v", b'{"v":', b"}\n"
_ROW = re.compile(r" in row (\d+)$")


class UndecodableError(ValueError):
    """A key or value that is not what it was said to be."""


def decode_text(table: pa.Table, name: str) -> pa.Table:
    """The table with a binary column as strings."""
    try:
        texts = table[name].cast(pa.string())
    except pa.ArrowInvalid as error:
        raise UndecodableError(f"a {name} is no UTF-8 text; ask for bytes") from error
    return table.set_column(table.column_names.index(name), name, texts)


def decode_json(table: pa.Table, schema: pa.Schema | None = None) -> pa.Table:
    """The table with its values parsed: by this schema, or by what is found in all of them."""
    texts = decode_text(table, "value")["value"]
    parsed = _parse_all(table, texts.drop_null(), schema)
    if texts.null_count:
        valid = texts.is_valid()
        rank = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
        parsed = parsed.take(pc.if_else(valid, rank, pa.scalar(None, pa.int64())))
    return table.set_column(table.column_names.index("value"), "value", parsed)


def _parse_all(table: pa.Table, texts: pa.ChunkedArray, schema: pa.Schema | None) -> pa.Array:
    kind = None if schema is None else pa.struct(list(schema))
    parsed, start = [], 0
    for count, block in _blocks(texts):
        try:
            parsed.append(_parse(block, kind))
        except pa.ArrowInvalid as error:
            row = _ROW.search(str(error))
            where = "" if row is None else _name(table, start + int(row[1]))
            told = _ROW.sub("", str(error))
            raise UndecodableError(f"a value{where} is not the JSON expected: {told}") from error
        start += count
    if not parsed:
        return pa.chunked_array([], kind or pa.null())
    joined = pa.concat_tables(parsed, promote_options="permissive")
    if joined.column_names != [_FIELD] or joined.num_rows != len(texts):
        raise UndecodableError("a value holds more than one JSON value")
    return joined[_FIELD]


def _blocks(texts: pa.ChunkedArray) -> Iterator[tuple[int, bytes]]:
    """Lines of JSON, with the number of values in them."""
    count, size = 0, 0
    parts: list[memoryview] = []
    for chunk in texts.chunks:
        lines = pc.binary_join_element_wise(_HEAD, chunk.cast(pa.binary()), _TAIL, b"")
        part = memoryview(lines.buffers()[2] or b"")
        if parts and size + len(part) > _BLOCK_BYTES:
            yield count, b"".join(parts)
            count, size, parts = 0, 0, []
        count, size = count + len(chunk), size + len(part)
        parts.append(part)
    if count:
        yield count, b"".join(parts)


def _parse(block: bytes, kind: pa.DataType | None) -> pa.Table:
    options = pj.ParseOptions(newlines_in_values=True)
    if kind is not None:
        options.explicit_schema = pa.schema([(_FIELD, kind)])
        options.unexpected_field_behavior = "ignore"
    reading = pj.ReadOptions(block_size=len(block) + 1)
    return pj.read_json(pa.BufferReader(block), reading, options)


def _name(table: pa.Table, nth_present: int) -> str:
    """Which record it is, where the table's columns tell."""
    row = pc.indices_nonzero(table["value"].is_valid())[nth_present].as_py()
    names = [name for name in ("partition", "offset") if name in table.column_names]
    return "".join(f", {name} {table[name][row]}" for name in names)
