"""Bytes as text, JSON, hex and base64; records as JSON lines that go both ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.faults import CliError
from tidelog.cli.sizes import shown_size
from tidelog.cli.values import from_bytes, record_from_json, record_to_json, to_bytes
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record

TP = TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("text", "encoding", "data"),
    [
        (b"as it is \xff", "text", b"as it is \xff"),
        (b'{"a": 1}', "json", b'{"a": 1}'),
        (b"00ff", "hex", b"\x00\xff"),
        (b"AP8=", "base64", b"\x00\xff"),
    ],
)
def test_written_values(text: bytes, encoding: str, data: bytes) -> None:
    assert to_bytes(text, encoding) == data


@pytest.mark.parametrize(
    ("text", "encoding"), [(b"{", "json"), (b"0g", "hex"), (b"A", "base64"), (b"\xff", "hex")]
)
def test_what_is_not_so_encoded_is_refused(text: bytes, encoding: str) -> None:
    with pytest.raises(CliError, match=f"is not {encoding}"):
        to_bytes(text, encoding)


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"\xff", "text", b"\xff"),
        (b"\xff", "hex", b"ff"),
        (b"\xff", "base64", b"/w=="),
        (b"\xff", "json", b'"/w=="'),
        (b"7", "json", b"7"),
        (b"x", "json", b'"x"'),
        (None, "text", b""),
        (None, "json", b"null"),
    ],
)
def test_printed_values(data: bytes | None, encoding: str, text: bytes) -> None:
    assert from_bytes(data, encoding) == text


some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
some_headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)


@given(some_bytes, some_bytes, some_headers, st.integers(0, 2**53))
def test_a_record_survives_being_printed_and_read(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = record_to_json(TP, Record(5, timestamp, key, value, headers))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    again = record_from_json(line, "copy")
    assert (again.key, again.value, list(again.headers)) == (key, value, headers)
    assert (again.topic, again.partition, again.timestamp_ms) == ("copy", 1, timestamp)


def test_values_that_are_json_may_be_shown_as_what_they_say() -> None:
    line = record_to_json(TP, Record(0, 1, None, b'{"a":[1]}'), parsed=True)
    assert json.loads(line)["value"] == {"a": [1]}
    assert record_from_json(line, "t").value == b'{"a":[1]}'


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'"text"',
        b'{"value": 1, "partition": "1"}',
        b'{"value": 1, "partition": true}',
        b'{"headers": [{"value": "x"}]}',
        b'{"value_base64": "*"}',
        b'{"user": "ada"}',
        b'{"key": "k"}',
        b'{"value": "v", "Key": "k"}',
        b'{"value": "v", "value_base64": "dg=="}',
        b'{"value": "v", "headers": {"a": "b"}}',
        b'{"value": "v", "headers": [{"name": "a"}]}',
        b'{"value": "v", "headers": [{"name": 1, "value": "x"}]}',
        b'{"value": "v", "headers": [{"name": "a", "value": "x", "more": 1}]}',
        b'{"value": "v", "timestamp": 9223372036854775808}',
        b'{"value": "v", "timestamp": -2}',
        b'{"value": ' + b"[" * 200_000,
        b'{"value": "\\ud800"}',
    ],
    ids=lambda line: line[:70].decode(),
)
def test_a_line_that_is_not_a_record_is_shown_with_a_hint(line: bytes) -> None:
    with pytest.raises(CliError, match="is not a record") as caught:
        record_from_json(line, "t")
    assert "headers" in caught.value.hint


def test_null_is_a_value_and_makes_a_tombstone() -> None:
    assert record_from_json(b'{"key": "k", "value": null}', "t").value is None
    assert record_from_json(b'{"key": "k", "value_base64": null}', "t").value is None


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (None, None)],
)
def test_sizes_are_shown_with_a_unit(size: int | None, shown: str | None) -> None:
    assert shown_size(size) == shown
