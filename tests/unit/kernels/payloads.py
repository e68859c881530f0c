"""Payloads of records for the kernel tests, written by a few lines that share nothing with them."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field
from types import ModuleType

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)


@dataclass
class Row:
    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)


def varint(value: int) -> bytes:
    bits = value * 2 if value >= 0 else -value * 2 - 1
    encoded = b""
    while bits > 127:
        encoded += bytes([bits % 128 + 128])
        bits //= 128
    return encoded + bytes([bits])


def sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def body(row: Row, offset_delta: int) -> bytes:
    headers = b"".join(sized(key) + sized(value) for key, value in row.headers)
    return (
        b"\0"
        + varint(row.timestamp_delta)
        + varint(offset_delta)
        + sized(row.key)
        + sized(row.value)
        + varint(len(row.headers))
        + headers
    )


def payload(rows: list[Row]) -> bytes:
    bodies = [body(row, offset_delta) for offset_delta, row in enumerate(rows)]
    return b"".join(varint(len(each)) + each for each in bodies)


def random_bytes(chance: random.Random, length_max: int) -> bytes | None:
    if chance.random() < 0.2:
        return None
    return chance.randbytes(chance.choice((0, 1, 63, 64, chance.randrange(length_max))))


def random_rows(chance: random.Random, count: int, length_max: int = 200) -> list[Row]:
    return [
        Row(
            chance.choice((0, 1, -1, chance.randrange(-(1 << 40), 1 << 40))),
            random_bytes(chance, length_max),
            random_bytes(chance, length_max),
            [
                (chance.randbytes(chance.randrange(9)), random_bytes(chance, 70))
                for _ in range(chance.choice((0, 0, 0, 1, 3)))
            ],
        )
        for _ in range(count)
    ]


def index(
    kernel: ModuleType, data: bytes, count: int, base_timestamp: int = 0
) -> tuple[tuple[int, int], array[int], array[int]]:
    rows = array("i", bytes(4 * kernel.ROW_FIELDS * count))
    timestamps = array("q", bytes(8 * count))
    answer = kernel.index(data, count, base_timestamp, rows, timestamps)
    return answer, rows, timestamps


def validate(kernel: ModuleType, data: bytes, count: int) -> tuple[int, int, int, int]:
    answer: tuple[int, int, int, int] = kernel.validate(data, count, 0, INT64_MIN, INT64_MAX, False)
    return answer
