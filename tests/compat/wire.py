"""A few requests by hand over a plain socket: what the matrix prepares and checks without a client.

Written against the wire format alone, so that it shares no code with the broker under test. Only
old, non-flexible versions that every broker since Kafka 2.1 serves: CreateTopics 2, DeleteTopics 1,
DeleteRecords 0, CreatePartitions 0, Metadata 1, Produce 3, Fetch 11. One node only: the bootstrap
server leads every partition.
"""

from __future__ import annotations

import gzip
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CONNECT_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 10.0
# UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER
_NOT_YET_LEADER = (3, 5, 6)

_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")


@dataclass
class Record:
    """A record as the cases speak of it; a timestamp of None is the client's own clock."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int | None = None
    partition: int | None = None
    offset: int = -1
    topic: str = ""


@dataclass
class StoredBatch:
    """The header of a batch as the broker keeps it."""

    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> str:
        return CODEC_NAMES[self.attributes & 7]

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & 8)


class WireError(Exception):
    """The broker answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error code {code}")
        self.code = code


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return values

    def raw(self, length: int) -> bytes:
        start = self.position
        self.position += length
        return self.data[start : self.position]

    def string(self) -> str | None:
        (length,) = self.take("h")
        return None if length < 0 else self.raw(length).decode()

    def varint(self) -> int:
        zigzag = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            zigzag |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (zigzag >> 1) ^ -(zigzag & 1)

    def sized(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.raw(length)

    def ints(self) -> tuple[int, ...]:
        (count,) = self.take("i")
        return self.take(f"{count}i")


class Wire:
    """One connection, opened on first use; requests go out one at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self.address = (host.strip("[]"), int(port))
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self.address, CONNECT_TIMEOUT_S)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, api_key: int, version: int, body: bytes) -> _Reader:
        self.connect()
        assert self._socket is not None
        header = struct.pack(">hhi", api_key, version, 7) + string("tidelog-compat")
        self._socket.sendall(struct.pack(">i", len(header + body)) + header + body)
        (size,) = struct.unpack(">i", self._exactly(4))
        reader = _Reader(self._exactly(size))
        assert reader.take("i") == (7,), "answers came out of order"
        return reader

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < count:
            piece = self._socket.recv(count - len(received))
            if not piece:
                self.close()
                raise ConnectionResetError("the broker closed the connection")
            received += piece
        return bytes(received)

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and return once it has leaders."""
        settings = [string(name) + string(value) for name, value in (configs or {}).items()]
        head = string(topic) + struct.pack(">ihi", partitions, 1, 0)
        reader = self.call(19, 2, array([head + array(settings)]) + struct.pack(">ib", 30_000, 0))
        reader.take("ii")
        reader.string()
        (code,) = reader.take("h")
        if code:
            raise WireError(f"create {topic}", code)
        self.wait_for_leaders(topic, partitions)

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete what is there of these topics; what is not is no error."""
        self.call(20, 1, array([string(topic) for topic in topics]) + struct.pack(">i", 30_000))

    def create_partitions(self, topic: str, total: int) -> None:
        """Add partitions and return once they have leaders."""
        body = array([string(topic) + struct.pack(">ii", total, -1)])
        reader = self.call(37, 0, body + struct.pack(">ib", 30_000, 0))
        reader.take("ii")
        reader.string()
        (code,) = reader.take("h")
        if code:
            raise WireError(f"add partitions to {topic}", code)
        self.wait_for_leaders(topic, total)

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        place = struct.pack(">iq", partition, offset)
        body = array([string(topic) + array([place])]) + struct.pack(">i", 30_000)
        reader = self.call(21, 0, body)
        reader.take("ii")
        reader.string()
        _, _, _, code = reader.take("iiqh")
        if code:
            raise WireError(f"delete records of {topic}", code)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> leader of one topic; empty when the broker does not know it (yet)."""
        reader = self.call(3, 1, array([string(topic)]))
        for _ in range(reader.take("i")[0]):
            reader.take("i")
            reader.string()
            reader.take("i")
            reader.string()
        reader.take("iih")
        reader.string()
        _, partitions = reader.take("bi")
        found = {}
        for _ in range(partitions):
            code, partition, leader = reader.take("hii")
            reader.ints()
            reader.ints()
            if code == 0:
                found[partition] = leader
        return found

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while len(self.leaders(topic)) < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has no leaders after {SETTLE_TIMEOUT_S} s")
            time.sleep(0.01)

    def produce(
        self, topic: str, records: Sequence[Record], partition: int = 0, codec: int = NONE
    ) -> int:
        """Append `records` as one batch with acks=all and return its base offset.

        Kafka names the leader of a new topic a moment before that leader serves it.
        """
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        batch = encode_batch(records, codec)
        while True:
            code, base_offset = self._produce(topic, partition, batch)
            if code == 0:
                return base_offset
            if code not in _NOT_YET_LEADER or time.monotonic() > deadline:
                raise WireError(f"produce to {topic}", code)
            time.sleep(0.01)

    def _produce(self, topic: str, partition: int, batch: bytes) -> tuple[int, int]:
        data = struct.pack(">ii", partition, len(batch)) + batch
        body = string(None) + struct.pack(">hi", -1, 30_000)
        reader = self.call(0, 3, body + array([string(topic) + array([data])]))
        reader.take("i")
        reader.string()
        _, _, code, base_offset = reader.take("iihq")
        return code, base_offset

    def fetch_batches(self, topic: str, partition: int = 0, offset: int = 0) -> list[StoredBatch]:
        """The batch headers from `offset` to the high watermark."""
        found: list[StoredBatch] = []
        while True:
            high_watermark, records = self._fetch(topic, partition, offset)
            batches = list(read_headers(records))
            found += batches
            if not batches or batches[-1].last_offset + 1 >= high_watermark:
                return found
            offset = batches[-1].last_offset + 1

    def fetch_records(self, topic: str, partition: int = 0) -> list[Record]:
        """Every record of a partition that was stored uncompressed or as gzip."""
        _, data = self._fetch(topic, partition, 0)
        return decode_records(data)

    def _fetch(self, topic: str, partition: int, offset: int) -> tuple[int, bytes]:
        size = 16 << 20
        wanted = struct.pack(">iiqqi", partition, -1, offset, -1, size)
        body = struct.pack(">iiiibii", -1, 0, 0, size, 0, 0, -1)
        body += array([string(topic) + array([wanted])]) + array([]) + string("")
        reader = self.call(1, 11, body)
        _, code, _, topics = reader.take("ihii")
        if code or topics != 1:
            raise WireError(f"fetch {topic}", code)
        reader.string()
        _, _, code, high_watermark, _, _, aborted = reader.take("iihqqqi")
        if code:
            raise WireError(f"fetch {topic}-{partition} at {offset}", code)
        reader.take("qq" * max(aborted, 0))
        _, length = reader.take("ii")
        return high_watermark, reader.raw(max(length, 0))


def read_headers(data: bytes) -> list[StoredBatch]:
    """The headers of the whole batches in `data`; a fetch may end within one."""
    found = []
    position = 0
    while position + _BATCH_HEADER.size <= len(data):
        header = _BATCH_HEADER.unpack_from(data, position)
        base_offset, length, _, magic, _, attributes, last_delta, _, max_timestamp = header[:9]
        producer_id, producer_epoch, base_sequence, record_count = header[9:]
        position += 12 + length
        if position > len(data):
            break
        found.append(
            StoredBatch(
                base_offset=base_offset,
                last_offset=base_offset + last_delta,
                magic=magic,
                attributes=attributes,
                max_timestamp_ms=max_timestamp,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                record_count=record_count,
            )
        )
    return found


def decode_records(data: bytes) -> list[Record]:
    """The records of the whole batches in `data`, in order."""
    found = []
    position = 0
    for batch in read_headers(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        payload = data[position + _BATCH_HEADER.size : position + 12 + length]
        (base_timestamp,) = struct.unpack_from(">q", data, position + 27)
        position += 12 + length
        if batch.codec not in ("none", "gzip"):
            raise ValueError(f"no decoder for {batch.codec}")
        reader = _Reader(gzip.decompress(payload) if batch.codec == "gzip" else payload)
        for _ in range(batch.record_count):
            record = _decode_record(reader, batch.base_offset, base_timestamp)
            if batch.log_append_time:
                record.timestamp_ms = batch.max_timestamp_ms
            found.append(record)
    return found


def _decode_record(reader: _Reader, base_offset: int, base_timestamp: int) -> Record:
    reader.varint()
    reader.take("b")
    timestamp_ms = base_timestamp + reader.varint()
    offset = base_offset + reader.varint()
    key, value = reader.sized(), reader.sized()
    headers = [((reader.sized() or b"").decode(), reader.sized()) for _ in range(reader.varint())]
    return Record(value, key, headers, timestamp_ms, offset=offset)


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    body = b"\0" + _varint(timestamp_delta) + _varint(offset_delta)
    body += _sized(record.key) + _sized(record.value) + _varint(len(record.headers))
    for name, value in record.headers:
        body += _sized(name.encode()) + _sized(value)
    return _varint(len(body)) + body


def encode_batch(records: Sequence[Record], codec: int = NONE) -> bytes:
    """A record batch v2; only the codecs of the standard library."""
    timestamps = [record.timestamp_ms or int(time.time() * 1000) for record in records]
    base = timestamps[0]
    payload = b"".join(
        _encode_record(record, index, timestamp - base)
        for index, (record, timestamp) in enumerate(zip(records, timestamps, strict=True))
    )
    if codec == GZIP:
        payload = gzip.compress(payload, mtime=0)
    elif codec != NONE:
        raise ValueError(f"no encoder for {CODEC_NAMES[codec]}")
    count = len(records)
    checked = struct.pack(">hiqqqhii", codec, count - 1, base, max(timestamps), -1, -1, -1, count)
    checked += payload
    length = len(checked) + 9
    return struct.pack(">qiibI", 0, length, -1, 2, crc32c.crc32c(checked)) + checked
