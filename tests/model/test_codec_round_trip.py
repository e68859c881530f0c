"""Every message and version survives encoding and decoding, byte for byte as kio writes it."""

from __future__ import annotations

import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType

from tests.model.codec_values import message_versions, random_message
from tidelog.errors import ProtocolError
from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.schema import decode, encode, encode_parts, encode_sized, schema_of

MESSAGE_VERSIONS = list(message_versions())
MESSAGES_PER_VERSION = 25
EPOCH = datetime.fromtimestamp(0, UTC)


def test_every_served_version_has_both_messages() -> None:
    for api in APIS:
        assert schema_of(api.request).versions == api.served
        assert schema_of(api.response).versions == api.served
        assert schema_of(api.request).flexible == schema_of(api.response).flexible == api.flexible
    assert len(MESSAGE_VERSIONS) == 2 * sum(a.served[1] - a.served[0] + 1 for a in APIS)


def test_any_message_of_any_version_comes_back_as_it_went() -> None:
    rng = Random(1)
    ran = 0
    for cls, version in MESSAGE_VERSIONS:
        for _ in range(MESSAGES_PER_VERSION):
            sent = random_message(cls, version, rng)
            encoded = encode(sent, version)
            for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
                received, end = decode(cls, version, buffer)
                assert end == len(encoded)
                assert received == sent, (cls, version)
            shifted, end = decode(cls, version, b"\xff" * 7 + encoded + b"\xff\xff", 7)
            assert (shifted, end) == (sent, len(encoded) + 7)
            parts, size = encode_sized(sent, version)
            assert size == len(encoded)
            assert b"".join(parts) == encoded  # type: ignore[arg-type]
            ran += 1
    assert ran == len(MESSAGE_VERSIONS) * MESSAGES_PER_VERSION >= 4_000


def test_every_strict_prefix_of_a_message_is_refused() -> None:
    rng = Random(2)
    ran = 0
    for cls, version in MESSAGE_VERSIONS:
        encoded = encode(random_message(cls, version, rng), version)
        ends = range(len(encoded)) if len(encoded) < 300 else rng.sample(range(len(encoded)), 300)
        for end in ends:
            with pytest.raises(ProtocolError):
                decode(cls, version, encoded[:end])
            ran += 1
    assert ran > 10_000


def test_records_leave_as_parts_of_their_own_and_nothing_else_is_split() -> None:
    rng = Random(3)
    ran = 0
    for cls, version in MESSAGE_VERSIONS:
        if cls.__name__ not in ("ProduceRequest", "FetchResponse"):
            assert len(encode_parts(random_message(cls, version, rng), version)) <= 1
            continue
        for _ in range(MESSAGES_PER_VERSION):
            message = random_message(cls, version, rng)
            held = [id(each) for each in _records_in(message) if each]
            parts = encode_parts(message, version)
            assert [id(part) for part in parts if id(part) in set(held)] == held
            assert not any(
                id(left) not in set(held) and id(right) not in set(held)
                for left, right in pairwise(parts)
            )
            ran += 1
    assert ran == (11 + 15) * MESSAGES_PER_VERSION


def _records_in(message: Any) -> list[bytes | None]:
    topics = getattr(message, "topic_data", None) or getattr(message, "responses", [])
    name = "partition_data" if hasattr(message, "topic_data") else "partitions"
    return [partition.records for topic in topics for partition in getattr(topic, name)]


def test_bytes_are_those_that_kio_writes() -> None:
    rng = Random(4)
    ran = 0
    shared = [each for each in MESSAGE_VERSIONS if not _api_of(each[0]).private]
    for cls, version in shared:
        kio_class = _kio_class(cls, version)
        write = entity_writer(kio_class)
        for _ in range(MESSAGES_PER_VERSION):
            message = random_message(cls, version, rng)
            with io.BytesIO() as buffer:
                write(buffer, _to_kio(message, kio_class, version))
                expected = buffer.getvalue()
            assert encode(message, version) == expected, (cls, version, message)
            ran += 1
    assert ran == len(shared) * MESSAGES_PER_VERSION >= 4_000


def _api_of(cls: type[Any]) -> Api:
    return next(api for api in APIS if cls in (api.request, api.response))


def _kio_class(cls: type[Any], version: int) -> type[Any]:
    key = _api_of(cls).key
    if cls.__name__.endswith("Request"):
        module = load_payload_module(key, version, EntityType.request)
    else:
        module = load_payload_module(key, version, EntityType.response)
    found: type[Any] = getattr(module, cls.__name__)
    return found


def _to_kio(message: Any, kio_class: type[Any], version: int) -> Any:
    """The same message as kio's class for this version, whose fields stand in the same order."""
    ours = [spec for spec in schema_of(type(message)).fields if spec.carried_by(version)]
    values = {}
    for spec, theirs in zip(ours, fields(kio_class), strict=True):
        value = getattr(message, spec.name)
        if spec.structure is not None:
            inner = _inner_class(theirs.type)
            if spec.is_array and value is not None:
                value = tuple(_to_kio(each, inner, version) for each in value)
            elif value is not None:
                value = _to_kio(value, inner, version)
            elif spec.tag is not None:
                value = inner()
        elif spec.is_array and value is not None:
            value = tuple(value)
        else:
            value = _to_kio_value(value, theirs.metadata["kafka_type"])
        values[theirs.name] = value
    return kio_class(**values)


def _inner_class(annotation: Any) -> Any:
    """The structure in `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    while hasattr(annotation, "__args__"):
        annotation = annotation.__args__[0]
    return annotation


def _to_kio_value(value: Any, kafka_type: str) -> Any:
    if kafka_type == "timedelta_i32":
        return timedelta(milliseconds=value)
    if kafka_type == "timedelta_i64":
        return _ExactDuration(value)
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type == "uuid":
        # Its default in a tagged field.
        return None if value == UUID(int=0) else value
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + timedelta(milliseconds=value)
    return value


class _ExactDuration:
    """Milliseconds beyond what a timedelta holds, for kio's writer of 64-bit durations."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def total_seconds(self) -> Fraction:
        return Fraction(self._milliseconds, 1000)
