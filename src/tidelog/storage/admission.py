"""What a produced record batch must be before a log takes it: the *prepare* stage of a produce.

Pure and without I/O, so that a large batch may be prepared on a thread. The rules and the error
codes are those of Kafka's broker:

    INVALID_RECORD                  not one whole batch; magic 0 or 1; base offset not 0; offsets
                                    and record count that disagree; more records than the bytes can
                                    hold; a control batch; a producer id without epoch or sequence;
                                    a stream that does not inflate; bad records, named by index
    MESSAGE_TOO_LARGE               a batch above `max_message_bytes`, before or after compressing,
                                    or one that inflates to more than `max_decompressed_bytes`
    CORRUPT_MESSAGE                 a wrong checksum, a nonsensical length, an unknown magic
    INVALID_TIMESTAMP               timestamps out of range, named by index; LogAppendTime claimed
    UNSUPPORTED_COMPRESSION_TYPE    an unknown codec, or zstd from a client too old to say so

Uncompressed records are walked, always. Compressed ones are inflated (bounded) where the topic
needs it: full validation, compaction, another codec, or a timestamp that the header puts in doubt.
The framing of their stream is walked always, and their count held against what it can become.
LogAppendTime and a wrong max timestamp change the header and its checksum, never the records. Left
out: producer sequences and epochs, which only the log can judge.

Codecs run off the loop (`takes_a_codec` foresees it). The exception is a request with up to
`LOOP_CODEC_BYTES` of compressed batches, each of which inflates to `LOOP_INFLATED_BYTES` at most
(`config_on_loop`). The worst that were tried took 0.6 ms: 190 empty snappy blocks, and records that
had to be compressed again with gzip's level 9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tidelog._kernels import batch_rows
from tidelog._kernels import records as kernel
from tidelog.config.topic_config import TopicConfig
from tidelog.errors import (
    ErrorCode,
    InvalidRecordsError,
    KafkaError,
    ProtocolError,
    RecordError,
)
from tidelog.model import NO_TIMESTAMP, Codec, TimestampType
from tidelog.protocol import batches, streams
from tidelog.protocol.batches import BatchHeader
from tidelog.protocol.checksum import crc32c

INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)
LOOP_CHECKED_BYTES: Final = 4 * 1024 * 1024
# A thread costs more than inflating a small batch does. But a kilobyte of zstd may be 32 MiB.
LOOP_CODEC_BYTES: Final = 1024
LOOP_INFLATED_BYTES: Final = 16 * 1024
RECORD_ERRORS_MAX: Final = 1000
_RECORD_ERRORS_SHOWN: Final = 3
# Half a microsecond each. What follows so many is taken for as large as its codec allows.
_PLAUSIBLE_BLOCKS: Final = 64


@dataclass(slots=True)
class Admitted:
    """A batch that a log may stamp and append: writable bytes and what their header says."""

    buffer: memoryview
    header: BatchHeader


def admit(
    records: memoryview,
    config: TopicConfig,
    now_ms: int,
    *,
    allow_zstd: bool = True,
    from_client: bool = True,
) -> Admitted:
    """Judge the records of one partition of a produce request; raises `KafkaError`.

    The result shares the bytes of `records` where those are writable and need no change of size.
    `from_client` is False for the batches of coordinators, which may be control batches.
    """
    header = _read_only_batch(records)
    _check_header(header, config, from_client)
    if not batches.check_crc(records, 0, len(records)):
        raise _corrupt(f"The record batch does not match its checksum {header.crc}")
    codec = _codec(header, allow_zstd)
    target = codec if config.target_codec is None else config.target_codec
    max_timestamp = header.max_timestamp
    if codec is Codec.NONE:
        payload: batches.Buffer | None = records[batches.HEADER_BYTES :]
    else:
        _check_plausible(records, header, codec, config.max_decompressed_bytes)
        payload = None
        if takes_a_codec(records, config, now_ms):
            payload = _inflate(records, header, config.max_decompressed_bytes)
    if payload is not None:
        max_timestamp = _check_records(payload, header, config, now_ms)
    if target is not codec and payload is not None and not header.is_control:
        return _recompressed(header, payload, config, (target, max_timestamp, now_ms))
    buffer = memoryview(bytearray(records)) if records.readonly else records
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        header.attributes |= batches.ATTRIBUTES_LOG_APPEND_TIME
        max_timestamp = now_ms
    if max_timestamp != header.max_timestamp or config.message_timestamp_type:
        header.max_timestamp = max_timestamp
        batches.seal(buffer, 0, header)
    return Admitted(buffer, header)


def admit_plain(records: memoryview, config: TopicConfig, now_ms: int) -> Admitted | None:
    """As `admit`, for what most clients send; None for anything else, which may be wrong or not.

    That is an uncompressed batch outside of transactions, with times of the client's own, for a
    topic that stores it as it is.
    """
    size = len(records)
    if size < batches.HEADER_BYTES or size > min(config.max_message_bytes, LOOP_CHECKED_BYTES):
        return None
    header = BatchHeader(*batch_rows.read(records, 0))
    count = header.record_count
    if (
        header.base_offset
        or header.attributes
        or header.magic != batches.MAGIC
        or header.batch_length + batches.LOG_OVERHEAD != size
        or count <= 0
        or count != header.last_offset_delta + 1
        or (header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0))
        or config.target_codec
        or config.message_timestamp_type
        or crc32c(records[batches.CHECKED_POSITION :]) != header.crc
    ):
        return None
    fault, _, max_timestamp, _ = kernel.validate(
        records[batches.HEADER_BYTES :],
        count,
        header.first_timestamp,
        max(now_ms - config.message_timestamp_before_max_ms, INT64_MIN),
        min(now_ms + config.message_timestamp_after_max_ms, INT64_MAX),
        config.cleanup_compact,
    )
    if fault or max_timestamp != header.max_timestamp or records.readonly:
        return None
    return Admitted(records, header)


def takes_a_codec(records: batches.Buffer, config: TopicConfig, now_ms: int) -> bool:
    """True where `admit` inflates or compresses the batch, whether it then takes it or not."""
    if len(records) < batches.HEADER_BYTES:
        return False
    codec = records[batches.ATTRIBUTES_POSITION] & batches.ATTRIBUTES_CODEC
    if config.target_codec is not None and config.target_codec != codec:
        return True
    if codec == Codec.NONE:
        return False
    if config.full_validation or config.cleanup_compact:
        return True
    if config.message_timestamp_type is not TimestampType.CREATE_TIME:
        return False
    header = BatchHeader(*batch_rows.read(records, 0))
    newest = max(header.first_timestamp, header.max_timestamp)
    return (
        config.message_timestamp_before_max_ms != INT64_MAX
        or newest > now_ms + config.message_timestamp_after_max_ms
    )


def config_on_loop(config: TopicConfig) -> TopicConfig:
    """The same rules, but MESSAGE_TOO_LARGE also for what takes too long to inflate on the loop."""
    inflated_bytes_max = min(config.max_decompressed_bytes, LOOP_INFLATED_BYTES)
    return replace(config, max_decompressed_bytes=inflated_bytes_max)


def _invalid(message: str) -> KafkaError:
    return InvalidRecordsError(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def _read_only_batch(records: memoryview) -> BatchHeader:
    """The header of the one batch that fills the given bytes."""
    size = len(records)
    if size < batches.HEADER_BYTES:
        raise _invalid("A produce request must hold one record batch for each partition")
    magic = records[batches.MAGIC_POSITION]
    if magic != batches.MAGIC:
        message = f"Record batches must have magic 2, not {magic}"
        raise _invalid(message) if magic < batches.MAGIC else _corrupt(message)
    try:
        header = batches.read_header(records)
    except ProtocolError as error:
        raise _corrupt(str(error)) from None
    if header.batch_length + batches.LOG_OVERHEAD != size:
        raise _invalid("A produce request must hold one whole record batch for each partition")
    return header


def _check_header(header: BatchHeader, config: TopicConfig, from_client: bool) -> None:
    size = header.batch_length + batches.LOG_OVERHEAD
    if from_client and header.base_offset != 0:
        raise _invalid(f"The base offset of a produced batch is 0, not {header.base_offset}")
    if size > config.max_message_bytes:
        raise _too_large(size, config.max_message_bytes)
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise _invalid(
            f"The record batch holds {count} records, but its last offset delta is "
            f"{header.last_offset_delta}"
        )
    if not from_client:
        return
    if header.attributes & (batches.ATTRIBUTES_CONTROL | batches.ATTRIBUTES_DELETE_HORIZON):
        raise _invalid("Clients may not write control batches or delete horizons")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise _invalid(
                f"The record batch of producer {header.producer_id} has epoch "
                f"{header.producer_epoch} and sequence {header.base_sequence}"
            )
    elif header.attributes & batches.ATTRIBUTES_TRANSACTIONAL:
        raise _invalid("A transactional record batch needs a producer id")
    if header.attributes & batches.ATTRIBUTES_LOG_APPEND_TIME:
        raise InvalidRecordsError(
            ErrorCode.INVALID_TIMESTAMP, "A producer may not set the timestamp type LogAppendTime"
        )


def _too_large(size: int, max_message_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch of {size} bytes exceeds the maximum of {max_message_bytes}",
    )


def _codec(header: BatchHeader, allow_zstd: bool) -> Codec:
    try:
        codec = header.codec
    except ProtocolError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None
    if codec is Codec.ZSTD and not allow_zstd:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"
        )
    return codec


def _check_plausible(
    records: memoryview, header: BatchHeader, codec: Codec, max_bytes: int
) -> None:
    """Hold the framing and the record count against the bytes, without inflating them.

    Garbage must not stop readers, and a count that the bytes cannot hold must not move the log end.
    """
    stream = records[batches.HEADER_BYTES :]
    try:
        bound = streams.bound(codec, stream, _PLAUSIBLE_BLOCKS)
    except KafkaError as error:
        raise _unreadable(error) from None
    inflated_bytes = header.record_count * kernel.RECORD_BYTES_MIN
    if inflated_bytes > bound.inflated_bytes:
        raise _invalid(
            f"The record batch claims {header.record_count} records, more than its {len(stream)} "
            f"bytes of {codec.name.lower()} can hold"
        )
    if inflated_bytes > max_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{header.record_count} records inflate to more than {max_bytes} bytes",
        )


def _inflate(records: memoryview, header: BatchHeader, max_bytes: int) -> batches.Buffer:
    try:
        return batches.inflate(records, 0, header, max_bytes)
    except KafkaError as error:
        raise _unreadable(error) from None


def _unreadable(error: KafkaError) -> KafkaError:
    """The checksum is right, so sending the same bytes again cannot help.

    The code that says "corrupt" would make clients retry until they time out.
    """
    return _invalid(error.message) if error.code is ErrorCode.CORRUPT_MESSAGE else error


def _timestamp_range(config: TopicConfig, now_ms: int) -> tuple[int, int]:
    if config.message_timestamp_type is not TimestampType.CREATE_TIME:
        return INT64_MIN, INT64_MAX
    return (
        max(now_ms - config.message_timestamp_before_max_ms, INT64_MIN),
        min(now_ms + config.message_timestamp_after_max_ms, INT64_MAX),
    )


def _check_records(
    payload: batches.Buffer, header: BatchHeader, config: TopicConfig, now_ms: int
) -> int:
    """Walk the records; the highest timestamp among them."""
    lowest, highest = _timestamp_range(config, now_ms)
    fault, record, max_timestamp, _ = kernel.validate(
        payload,
        header.record_count,
        header.first_timestamp,
        lowest,
        highest,
        config.cleanup_compact,
    )
    if fault:
        _refuse(payload, header, config, (fault, record, now_ms))
    return max_timestamp


def _refuse(
    payload: batches.Buffer,
    header: BatchHeader,
    config: TopicConfig,
    first: tuple[int, int, int],
) -> None:
    """Raise with every bad record named (KIP-467), or with the first that cannot be read."""
    fault, record, now_ms = first
    if fault not in (kernel.KEY_MISSING, kernel.TIMESTAMP_RANGE):
        message = f"Record {record} of the batch is bad: {kernel.FAULT_MESSAGES[fault]}"
        raise InvalidRecordsError(ErrorCode.INVALID_RECORD, message, [RecordError(record, message)])
    try:
        rows, timestamps = batches.index_records(
            payload, header.record_count, header.first_timestamp
        )
    except ProtocolError as error:
        raise _invalid(str(error)) from None
    lowest, highest = _timestamp_range(config, now_ms)
    code = ErrorCode.INVALID_RECORD
    errors = []
    for index, timestamp in enumerate(timestamps):
        if config.cleanup_compact and rows[index * kernel.ROW_FIELDS + kernel.KEY_LENGTH] < 0:
            errors.append(RecordError(index, "A compacted topic takes no record without a key"))
        elif timestamp != NO_TIMESTAMP and not lowest <= timestamp <= highest:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append(
                RecordError(index, f"Timestamp {timestamp} is out of range [{lowest}, {highest}]")
            )
        if len(errors) == RECORD_ERRORS_MAX:
            break
    shown = "; ".join(
        f"record {error.batch_index}: {error.message}" for error in errors[:_RECORD_ERRORS_SHOWN]
    )
    raise InvalidRecordsError(code, f"{len(errors)} records are refused: {shown}", errors)


def _recompressed(
    header: BatchHeader,
    payload: batches.Buffer,
    config: TopicConfig,
    change: tuple[Codec, int, int],
) -> Admitted:
    """The same records under the codec that the topic asks for."""
    target, max_timestamp, now_ms = change
    header.attributes = header.attributes & ~batches.ATTRIBUTES_CODEC | target
    header.max_timestamp = max_timestamp
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        header.attributes |= batches.ATTRIBUTES_LOG_APPEND_TIME
        header.max_timestamp = now_ms
    batch = batches.build_batch(header, payload, config.compression_level)
    if len(batch) > config.max_message_bytes:
        raise _too_large(len(batch), config.max_message_bytes)
    return Admitted(memoryview(batch), header)
