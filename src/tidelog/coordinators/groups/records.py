"""The records of `__consumer_offsets`, in Kafka's own formats.

A key is an int16 that tells what it is the key of, then its fields; a value is an int16 version,
then the fields of that version. A record without a value is a tombstone. Kinds: 0 and 1 a committed
offset (1 is written), 2 a classic group with its members, 3 to 8 and 16 consumer groups
(`consumer/records`). Kinds that are not known are left alone, as Kafka does, so that a log written
by a newer broker can be read.

Versions written: 3 of a classic group; 4 of an offset where the topic's id is known, else 3; 0 of
all else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidelog.coordinators.groups.consumer.records import KINDS, ConsumerKey, ConsumerValue
from tidelog.errors import ProtocolError
from tidelog.protocol.schema import (
    array_of,
    byte_string,
    decode,
    encode,
    int32,
    int64,
    message,
    string,
    structure,
    uuid,
)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_COMMIT_KEY: Final = struct.Struct(">hh")
_COMMIT_VALUE: Final = struct.Struct(">hqiB")
_COMMIT_END: Final = struct.Struct(">qBBB16s")
# The length of a compact string, plus one, is one byte up to here.
_BRIEF_BYTES_MAX: Final = 126
LEGACY_OFFSET: Final = 0
OFFSET: Final = 1
GROUP: Final = 2
_GROUP_VERSION: Final = 3
_OFFSET_VERSION: Final = 3
_OFFSET_VERSION_WITH_TOPIC_ID: Final = 4
_NO_TOPIC_ID: Final = UUID(int=0)


@message(versions=(0, 0))
class OffsetCommitKey:
    """Whose offset it is."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(versions=(0, 4), flexible=4)
class OffsetCommitValue:
    """A committed offset. Version 1 alone carries a time at which it expires."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", tag=0, ignorable=True)


@message(versions=(0, 0))
class GroupMetadataKey:
    """Which group it is."""

    group: str = string()


@structure
class MemberMetadata:
    """One member of a generation."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


@message(versions=(0, 4), flexible=4)
class GroupMetadataValue:
    """A generation of a group; one without members says when the group became empty."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array_of(MemberMetadata)


Key = OffsetCommitKey | GroupMetadataKey | ConsumerKey
Value = OffsetCommitValue | GroupMetadataValue | ConsumerValue


@dataclass(slots=True)
class CoordinatorRecord:
    """A change of a shard's state; without a value, the end of what the key names."""

    key: Key
    value: Value | None


_CLASSES: Final[dict[int, tuple[type[Key], type[Value]]]] = {
    LEGACY_OFFSET: (OffsetCommitKey, OffsetCommitValue),
    OFFSET: (OffsetCommitKey, OffsetCommitValue),
    GROUP: (GroupMetadataKey, GroupMetadataValue),
    **KINDS,
}
_KINDS: Final[dict[type[Key], int]] = {
    classes[0]: kind for kind, classes in _CLASSES.items() if kind != LEGACY_OFFSET
}


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    if type(record.value) is OffsetCommitValue and type(record.key) is OffsetCommitKey:
        brief = _encode_commit(record.key, record.value)
        if brief is not None:
            return brief
    key = _INT16.pack(_KINDS[type(record.key)]) + encode(record.key, 0)
    if record.value is None:
        return key, None
    version = _version_of(record.value)
    return key, _INT16.pack(version) + encode(record.value, version)


def _encode_commit(
    key: OffsetCommitKey, value: OffsetCommitValue
) -> tuple[bytes, bytes | None] | None:
    """The same bytes as by their schemas, for the commit that members make thousands of times a
    second; None for any other."""
    if value.expire_timestamp != -1 or value.topic_id == _NO_TOPIC_ID:
        return None
    try:
        group, topic = key.group.encode(), key.topic.encode()
        metadata = value.metadata.encode()
        if len(metadata) > _BRIEF_BYTES_MAX:
            return None
        return (
            _COMMIT_KEY.pack(OFFSET, len(group)) + group
            + _INT16.pack(len(topic)) + topic + _INT32.pack(key.partition),
            _COMMIT_VALUE.pack(
                _OFFSET_VERSION_WITH_TOPIC_ID, value.offset, value.leader_epoch, len(metadata) + 1
            )
            # One tagged field: number 0, of 16 bytes.
            + metadata + _COMMIT_END.pack(value.commit_timestamp, 1, 0, 16, value.topic_id.bytes),
        )  # fmt: skip
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"a commit of {key.group}: {error}") from error


def _version_of(value: Value) -> int:
    if isinstance(value, GroupMetadataValue):
        return _GROUP_VERSION
    if not isinstance(value, OffsetCommitValue):
        return 0
    if value.expire_timestamp != -1:
        return 1
    known = value.topic_id != _NO_TOPIC_ID
    return _OFFSET_VERSION_WITH_TOPIC_ID if known else _OFFSET_VERSION


def is_of_members(record: CoordinatorRecord) -> bool:
    """Whether it says who is in a group, and not how far."""
    return type(record.key) is not OffsetCommitKey


def decode_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """What a record says; None for a kind that is not known. Bad bytes raise `ProtocolError`."""
    if key is None or len(key) < _INT16.size:
        raise ProtocolError("a record of an internal topic has no key")
    classes = _CLASSES.get(_INT16.unpack_from(key)[0])
    if classes is None:
        return None
    key_class, value_class = classes
    decoded_key, _ = decode(key_class, 0, key, _INT16.size)
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    if len(value) < _INT16.size:
        raise ProtocolError("a value of an internal topic has no version")
    decoded_value, _ = decode(value_class, _INT16.unpack_from(value)[0], value, _INT16.size)
    return CoordinatorRecord(decoded_key, decoded_value)
