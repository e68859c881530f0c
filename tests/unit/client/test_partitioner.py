"""Keyed records land where Java's producer puts them; unkeyed ones fill a batch and move on."""

from __future__ import annotations

import random

from tidelog.client.partitioner import StickyPartitioner, partition_for_key


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
