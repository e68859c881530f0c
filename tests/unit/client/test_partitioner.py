"""Keyed records land where Java's producer puts them; unkeyed ones fill a batch and move on."""

from __future__ import annotations

import random

import pytest

from tidelog._kernels.records import murmur2
from tidelog.client.partitioner import StickyPartitioner, partition_for_key

# The vectors of Kafka's own UtilsTest, as signed 32-bit integers.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


@pytest.mark.parametrize(("data", "expected"), JAVA_VECTORS.items())
def test_murmur2_gives_the_values_of_java(data: bytes, expected: int) -> None:
    assert signed(murmur2(data)) == expected


def test_murmur2_takes_bytes_above_127_and_every_tail_length() -> None:
    values = {murmur2(bytes([255] * length)) for length in range(9)}
    assert len(values) == 9
    assert all(0 <= value < 1 << 32 for value in values)


def test_partition_for_key_drops_the_sign_bit_before_the_modulo() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


class SeededRandom:
    def __init__(self) -> None:
        self._random = random.Random(5)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> None:  # pragma: no cover - never drawn here
        raise AssertionError


def test_sticky_stays_until_a_batch_is_full_and_then_moves() -> None:
    sticky = StickyPartitioner(SeededRandom(), switch_bytes=100)
    chosen = [sticky.choose([0, 1, 2], 50) for _ in range(6)]
    assert chosen[0] == chosen[1]
    assert chosen[2] == chosen[3] != chosen[1]
    assert chosen[4] == chosen[5] != chosen[3]


def test_sticky_leaves_a_partition_that_lost_its_leader() -> None:
    sticky = StickyPartitioner(SeededRandom(), switch_bytes=1_000_000)
    first = sticky.choose([0, 1], 1)
    other = 1 - first
    assert sticky.choose([other], 1) == other


def test_sticky_keeps_the_only_partition() -> None:
    sticky = StickyPartitioner(SeededRandom(), switch_bytes=10)
    assert {sticky.choose([4], 50) for _ in range(5)} == {4}
