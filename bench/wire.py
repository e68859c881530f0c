"""Just enough of Kafka's wire protocol for load generators, apart from the broker under test.

Requests use header v1 and bodies that are not flexible: Produce v3 and v7 (the same bytes, and zstd
needs v7) and Metadata v4. A frame is a 4-byte length and its bytes; an answer begins with the
correlation id.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence

from crc32c import crc32c

PRODUCE_V3 = (0, 3)
PRODUCE_V7 = (0, 7)
METADATA_V4 = (3, 4)
SASL_HANDSHAKE_V1 = (17, 1)
SASL_AUTHENTICATE_V1 = (36, 1)
ALTER_CLIENT_QUOTAS_V0 = (49, 0)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def frame(
    api: tuple[int, int], body: bytes, correlation_id: int = 1, client_id: str = "bench"
) -> bytes:
    header = struct.pack(">hhi", *api, correlation_id) + string(client_id)
    return struct.pack(">i", len(header) + len(body)) + header + body


def varint(value: int) -> bytes:
    """Zig-zag variable-length integer, as in records."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record_batch(
    values: Sequence[bytes],
    timestamp_ms: int = 1_700_000_000_000,
    codec: int = 0,
    compress: Callable[[bytes], bytes] = bytes,
) -> bytes:
    """A record batch (magic 2) of `values` without keys, compressed as asked for."""
    records = bytearray()
    for delta, value in enumerate(values):
        # attributes, timestamp delta 0, offset delta, null key, value, no headers
        body = b"\0\0" + varint(delta) + b"\x01" + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
    last = len(values) - 1
    after_crc = struct.pack(
        ">hiqqqhii", codec, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)
    )
    after_crc += compress(bytes(records))
    head = struct.pack(">ibI", -1, 2, crc32c(after_crc))
    return struct.pack(">qi", 0, len(head) + len(after_crc)) + head + after_crc


def batch_of_size(size_bytes: int, record_bytes: int) -> tuple[bytes, int]:
    """A batch of at most `size_bytes` with records of `record_bytes`, and how many there are."""
    count = max(1, (size_bytes - 61) // (record_bytes + 11))
    return record_batch([os.urandom(record_bytes) for _ in range(count)]), count


def produce_frame(
    topic: str,
    batch: bytes,
    *,
    acks: int = -1,
    partition: int = 0,
    api: tuple[int, int] = PRODUCE_V3,
    client_id: str = "bench",
) -> bytes:
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + string(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return frame(api, body, client_id=client_id)


def metadata_frame(topic: str, *, create: bool = False) -> bytes:
    return frame(METADATA_V4, struct.pack(">i", 1) + string(topic) + struct.pack(">?", create))


def fetch_frame(
    topic: str,
    offset: int = 0,
    max_bytes: int = 1 << 20,
    *,
    wait_ms: int = 0,
    client_id: str = "bench",
) -> bytes:
    """Fetch 11 of partition 0, without a session."""
    limits = struct.pack(">iiiibii", -1, wait_ms, 1, max_bytes, 0, 0, -1)
    partition = struct.pack(">iiqqi", 0, -1, offset, -1, max_bytes)
    topics = struct.pack(">i", 1) + string(topic) + struct.pack(">i", 1) + partition
    body = limits + topics + struct.pack(">i", 0) + string("")
    return frame((1, 11), body, client_id=client_id)


def handshake_frame(mechanism: str) -> bytes:
    return frame(SASL_HANDSHAKE_V1, string(mechanism))


def authenticate_frame(token: bytes) -> bytes:
    return frame(SASL_AUTHENTICATE_V1, struct.pack(">i", len(token)) + token)


def handshake_error(answer: bytes) -> int:
    return int(struct.unpack_from(">h", answer, 4)[0])


def authenticate_token(answer: bytes) -> bytes:
    """The broker's token in a SaslAuthenticate answer; RuntimeError where it refuses."""
    error, size = struct.unpack_from(">hh", answer, 4)
    position = 8 + max(size, 0)
    if error:
        raise RuntimeError(f"SaslAuthenticate: error {error}, {answer[8:position].decode()}")
    (size,) = struct.unpack_from(">i", answer, position)
    return answer[position + 4 : position + 4 + size]


def client_quota_frame(client_id: str, name: str, value: float | None) -> bytes:
    """AlterClientQuotas 0 of one client id: one quota is set, or removed where it is None."""
    entity = struct.pack(">i", 1) + string("client-id") + string(client_id)
    change = struct.pack(">i", 1) + string(name) + struct.pack(">d?", value or 0.0, value is None)
    return frame(ALTER_CLIENT_QUOTAS_V0, struct.pack(">i", 1) + entity + change + b"\0")


def client_quota_error(answer: bytes) -> int:
    """The error code of the only entity in an AlterClientQuotas 0 answer."""
    _throttle_ms, entries, error = struct.unpack_from(">iih", answer, 4)
    assert entries == 1, f"{entries} entities were answered"
    return int(error)


def produce_error(answer: bytes, topic: str) -> int:
    """The error code of the only partition in a Produce answer (without its length prefix)."""
    return int(struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0])


def metadata_error(answer: bytes) -> int:
    """The error code of the only topic in a Metadata v4 answer, or 3 while it has no leader."""
    position = 8
    (brokers,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(brokers):
        (host,) = struct.unpack_from(">h", answer, position + 4)
        position += 4 + 2 + host + 4
        (rack,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(rack, 0)
    (cluster_id,) = struct.unpack_from(">h", answer, position)
    position += 2 + max(cluster_id, 0) + 4
    _topics, error, name = struct.unpack_from(">ihh", answer, position)
    position += 8 + name + 1
    (partitions,) = struct.unpack_from(">i", answer, position)
    return int(error) if error or partitions else 3


class Connection:
    """A blocking connection that sends whole frames and reads whole answers."""

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")

    def answer(self) -> bytes:
        prefix = self._reader.read(4)
        if len(prefix) < 4:
            raise ConnectionResetError("closed by the broker")
        size = struct.unpack(">i", prefix)[0]
        answer = self._reader.read(size)
        if len(answer) < size:
            raise ConnectionResetError("closed by the broker within an answer")
        return answer

    def ask(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.answer()

    def close(self) -> None:
        self._reader.close()
        self.socket.close()
