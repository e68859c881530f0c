"""A few requests by hand over a plain socket: what the matrix prepares and checks without a client.

Written against the wire format alone, so that it shares no code with the broker under test. Only
old, non-flexible versions that every broker since Kafka 2.1 serves: CreateTopics 2, DeleteTopics 1,
DeleteRecords 0, CreatePartitions 0, Metadata 1, Produce 3, Fetch 11.
"""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import crc32c

from tests.compat.connection import Address, Connection, Reader, array, string

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
SETTLE_TIMEOUT_S = 30.0
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


@dataclass(frozen=True)
class Fetched:
    """One partition's part of an answer; `aborted` are pairs of producer id and first offset."""

    high_watermark: int
    stable_offset: int
    aborted: list[tuple[int, ...]]
    data: bytes


class WireError(Exception):
    """The broker answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error code {code}")
        self.code = code


@dataclass(frozen=True)
class Layout:
    """Who holds a partition, as a broker tells it."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Wire:
    """Each request goes to the broker that has to answer it; one at a time."""

    def __init__(self, bootstrap_servers: str, replicas: int = 1) -> None:
        """Topics are created with so many `replicas`."""
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self.address = (host.strip("[]"), int(port))
        self.replicas = replicas
        self._connections = {self.address: Connection(self.address)}
        self._nodes: dict[int, Address] = {}

    def connect(self) -> None:
        self._connections[self.address].connect()
        self._metadata(self.address, [])

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def call(
        self, api_key: int, version: int, body: bytes, address: Address | None = None
    ) -> Reader:
        """At the broker of this address, or at the bootstrap server: any will do then."""
        to = address or self.address
        if to not in self._connections:
            self._connections[to] = Connection(to)
        return self._connections[to].call(api_key, version, body)

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and return once it has leaders."""
        settings = [string(name) + string(value) for name, value in (configs or {}).items()]
        head = string(topic) + struct.pack(">ihi", partitions, self.replicas, 0)
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
        reader = self.call(21, 0, body, self._leader(topic, partition))
        reader.take("ii")
        reader.string()
        _, _, _, code = reader.take("iiqh")
        if code:
            raise WireError(f"delete records of {topic}", code)

    def _metadata(self, address: Address, topics: Sequence[str]) -> dict[int, Layout]:
        """The partitions of the one topic asked for, as the broker at this address knows them."""
        reader = self.call(3, 1, array([string(topic) for topic in topics]), address)
        for _ in range(reader.take("i")[0]):
            (node,) = reader.take("i")
            host = reader.string() or ""
            (port,) = reader.take("i")
            reader.string()
            self._nodes[node] = (host, port)
        reader.take("i")
        found = {}
        for _ in range(reader.take("i")[0]):
            reader.take("h")
            reader.string()
            _, partitions = reader.take("bi")
            for _ in range(partitions):
                code, partition, leader = reader.take("hii")
                layout = Layout(leader, reader.ints(), reader.ints())
                if code == 0:
                    found[partition] = layout
        return found

    def layout(self, topic: str) -> dict[int, Layout]:
        """What all brokers say of a topic, once they say the same; empty where none knows it."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            known = self._metadata(self.address, [topic])
            others = [address for address in self._nodes.values() if address != self.address]
            if all(self._metadata(address, [topic]) == known for address in others):
                return known
            if time.monotonic() > deadline:
                raise TimeoutError(f"brokers tell {topic} differently for {SETTLE_TIMEOUT_S} s")
            time.sleep(0.01)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> leader, of the partitions that have one."""
        return {number: layout.leader for number, layout in self.layout(topic).items()}

    def _leader(self, topic: str, partition: int) -> Address:
        found = self._metadata(self.address, [topic]).get(partition)
        # One that is not there is for the broker to refuse.
        return self.address if found is None else self._nodes[found.leader]

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
        body += array([string(topic) + array([data])])
        reader = self.call(0, 3, body, self._leader(topic, partition))
        reader.take("i")
        reader.string()
        _, _, code, base_offset = reader.take("iihq")
        return code, base_offset

    def fetch_batches(self, topic: str, partition: int = 0, offset: int = 0) -> list[StoredBatch]:
        """The batch headers from `offset` to the high watermark."""
        found: list[StoredBatch] = []
        while True:
            fetched = self._fetch(topic, partition, offset)
            batches = read_headers(fetched.data)
            found += batches
            if not batches or batches[-1].last_offset + 1 >= fetched.high_watermark:
                return found
            offset = batches[-1].last_offset + 1

    def fetch_records(self, topic: str, partition: int = 0) -> list[Record]:
        """Every record of a partition that was stored uncompressed or as gzip."""
        return decode_records(self._fetch(topic, partition, 0).data)

    def fetch_committed(self, topic: str, partition: int = 0) -> Fetched:
        """What a reader of committed records is given from the start of a partition."""
        return self._fetch(topic, partition, 0, isolation=1)

    def fetch_here(self, topic: str, partition: int, offset: int) -> Fetched:
        """What the bootstrap server itself gives such a reader, whether it leads or follows."""
        return self._fetch(topic, partition, offset, isolation=1, address=self.address)

    def _fetch(
        self, topic: str, partition: int, offset: int, *,
        isolation: int = 0, address: Address | None = None,
    ) -> Fetched:  # fmt: skip
        size = 16 << 20
        wanted = struct.pack(">iiqqi", partition, -1, offset, -1, size)
        body = struct.pack(">iiiibii", -1, 0, 0, size, isolation, 0, -1)
        body += array([string(topic) + array([wanted])]) + array([]) + string("")
        reader = self.call(1, 11, body, address or self._leader(topic, partition))
        _, code, _, topics = reader.take("ihii")
        if code or topics != 1:
            raise WireError(f"fetch {topic}", code)
        reader.string()
        _, _, code, high_watermark, stable_offset, _, aborted = reader.take("iihqqqi")
        if code:
            raise WireError(f"fetch {topic}-{partition} at {offset}", code)
        aborts = [(reader.take("qq")) for _ in range(max(aborted, 0))]
        _, length = reader.take("ii")
        return Fetched(high_watermark, stable_offset, aborts, reader.raw(max(length, 0)))


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
        reader = Reader(gzip.decompress(payload) if batch.codec == "gzip" else payload)
        for _ in range(batch.record_count):
            record = _decode_record(reader, batch.base_offset, base_timestamp)
            if batch.log_append_time:
                record.timestamp_ms = batch.max_timestamp_ms
            found.append(record)
    return found


def _decode_record(reader: Reader, base_offset: int, base_timestamp: int) -> Record:
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
