"""What consumers tell each other through a group: subscriptions and assignments.

A broker passes these bytes on. Where it looks into them, bytes that cannot be read mean that nobody
knows, never an error. Both begin with an int16 version; strings have int16 lengths, arrays and
bytes int32 ones. Subscription: topics, user data (null: -1), from version 1 on owned partitions as
in an assignment, from 2 on a generation, from 3 on a rack. Assignment: topics with their partitions
(int32), user data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.errors import ProtocolError

_VERSION: Final = 1
_VERSION_MAX: Final = 3
_VERSION_WITH_RACK: Final = 3
_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all subscriptions together; None where one of them cannot be read."""
    topics: set[str] = set()
    for metadata in subscriptions:
        found = read_topics(metadata)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def read_topics(metadata: bytes) -> list[str] | None:
    """The topics of one subscription."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        position = _HEAD.size
        topics = []
        for _ in range(count):
            topic, position = _read_string(metadata, position)
            topics.append(topic)
    except (struct.error, ProtocolError):
        return None
    return topics


def encode_subscription(topics: Sequence[str]) -> bytes:
    parts = [_HEAD.pack(_VERSION, len(topics)), *map(_string, topics)]
    return b"".join([*parts, _INT32.pack(-1), _INT32.pack(0)])


class Subscription(NamedTuple):
    """What a consumer tells its group of itself; `owned` is empty before version 1."""

    version: int
    topics: list[str]
    owned: dict[str, list[int]]
    rack: str | None


def decode_subscription(metadata: bytes) -> Subscription:
    """Bad bytes raise `ProtocolError`."""
    topics = read_topics(metadata)
    if topics is None:
        raise ProtocolError("a subscription cannot be read")
    (version,) = _LENGTH.unpack_from(metadata)
    try:
        position = _HEAD.size + sum(_LENGTH.size + len(each.encode()) for each in topics)
        position = _skip_bytes(metadata, position)
        owned: dict[str, list[int]] = {}
        rack = None
        if version >= 1:
            owned, position = _read_partitions(metadata, position)
        if version >= _VERSION_WITH_RACK:
            position += _INT32.size
            if _LENGTH.unpack_from(metadata, position) != (-1,):
                rack, position = _read_string(metadata, position)
    except struct.error as error:
        raise ProtocolError(f"a subscription cannot be read: {error}") from error
    return Subscription(version, topics, owned, rack)


def encode_assignment(assignment: Mapping[str, Sequence[int]], version: int = _VERSION) -> bytes:
    """All versions look the same; members are given the one that they speak."""
    parts = [_HEAD.pack(min(version, _VERSION_MAX), len(assignment))]
    for topic, partitions in assignment.items():
        parts += [
            _string(topic),
            struct.pack(f">i{len(partitions)}i", len(partitions), *partitions),
        ]
    return b"".join([*parts, _INT32.pack(-1)])


def decode_assignment(data: bytes) -> dict[str, list[int]]:
    """The partitions by topic; no bytes are no partitions. Bad bytes raise `ProtocolError`."""
    if not data:
        return {}
    try:
        return _read_partitions(data, _LENGTH.size)[0]
    except struct.error as error:
        raise ProtocolError(f"an assignment cannot be read: {error}") from error


def assignment_user_data(data: bytes) -> bytes:
    """What an assignor added to an assignment for itself. Bad bytes raise `ProtocolError`."""
    if not data:
        return b""
    try:
        _, position = _read_partitions(data, _LENGTH.size)
        end = _skip_bytes(data, position)
    except struct.error as error:
        raise ProtocolError(f"an assignment cannot be read: {error}") from error
    return data[position + _INT32.size : end]


def _read_partitions(data: bytes, position: int) -> tuple[dict[str, list[int]], int]:
    (count,) = _INT32.unpack_from(data, position)
    if not 0 <= count <= len(data):
        raise ProtocolError("an assignment has an impossible count")
    position += _INT32.size
    found: dict[str, list[int]] = {}
    for _ in range(count):
        topic, position = _read_string(data, position)
        (partitions,) = _INT32.unpack_from(data, position)
        if not 0 <= partitions <= len(data):
            raise ProtocolError("an assignment has an impossible count")
        found[topic] = list(struct.unpack_from(f">{partitions}i", data, position + _INT32.size))
        position += _INT32.size * (1 + partitions)
    return found, position


def _skip_bytes(data: bytes, position: int) -> int:
    (length,) = _INT32.unpack_from(data, position)
    end: int = position + _INT32.size + max(0, length)
    if length < -1 or end > len(data):
        raise ProtocolError("user data reach beyond their bytes")
    return end


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    end = position + _LENGTH.size + length
    if length < 0 or end > len(data):
        raise ProtocolError("a string reaches beyond its bytes")
    try:
        return data[position + _LENGTH.size : end].decode(), end
    except UnicodeDecodeError as error:
        raise ProtocolError(str(error)) from error
