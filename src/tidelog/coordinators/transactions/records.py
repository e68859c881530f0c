"""The records of `__transaction_state`, in Kafka's own formats.

A key is an int16, 0, then the transactional id; a value is an int16 version, then all that is known
of the id. A record without a value is a tombstone: the id was forgotten. Keys of other kinds are
left alone. Values are written in version 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tidelog.errors import ProtocolError
from tidelog.protocol.schema import (
    array_of,
    decode,
    encode,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
)

_INT16: Final = struct.Struct(">h")
_TRANSACTION: Final = 0
_VALUE_VERSION: Final = 1


@message(versions=(0, 0))
class TransactionLogKey:
    """Which transactional id it is."""

    transactional_id: str = string()


@structure
class PartitionsSchema:
    """Partitions of one topic."""

    topic: str = string()
    partition_ids: list[int] = array_of("int32")


@message(versions=(0, 1), flexible=1)
class TransactionLogValue:
    """All that is known of a transactional id."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1, ignorable=True)
    next_producer_id: int = int64("1+", tag=1, default=-1, ignorable=True)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", tag=3, default=-1, ignorable=True)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array_of(
        PartitionsSchema, nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2, ignorable=True)


@dataclass(slots=True)
class TransactionRecord:
    """What is known of an id from now on; without a value, the end of it."""

    transactional_id: str
    value: TransactionLogValue | None


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    key = _INT16.pack(_TRANSACTION) + encode(TransactionLogKey(record.transactional_id), 0)
    if record.value is None:
        return key, None
    return key, _INT16.pack(_VALUE_VERSION) + encode(record.value, _VALUE_VERSION)


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """What a record says; None for a kind that is not known. Bad bytes raise `ProtocolError`."""
    if key is None or len(key) < _INT16.size:
        raise ProtocolError("a record of an internal topic has no key")
    if _INT16.unpack_from(key)[0] != _TRANSACTION:
        return None
    decoded, _ = decode(TransactionLogKey, 0, key, _INT16.size)
    if value is None:
        return TransactionRecord(decoded.transactional_id, None)
    if len(value) < _INT16.size:
        raise ProtocolError("a value of an internal topic has no version")
    version = _INT16.unpack_from(value)[0]
    held, _ = decode(TransactionLogValue, version, value, _INT16.size)
    return TransactionRecord(decoded.transactional_id, held)
