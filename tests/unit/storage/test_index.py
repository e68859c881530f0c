"""Sparse indexes against a plain list."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right

import pytest

from tidelog.storage.file_cache import FileCache
from tidelog.storage.index import IndexDamagedError, SparseIndex, offset_index, time_index
from tidelog.testing.disk import SimulatedDisk


def make(kind: str, disk: SimulatedDisk) -> SparseIndex:
    files = FileCache(disk)
    return offset_index(files, "/x") if kind == "offset" else time_index(files, "/x")


def rising(count: int, seed: int, step: int) -> list[int]:
    chance = random.Random(seed)
    values, value = [], 0
    for _ in range(count):
        value += chance.randint(1, step)
        values.append(value)
    return values


@pytest.mark.parametrize("kind", ["offset", "time"])
@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 3000])
def test_look_ups_agree_with_a_list_in_memory_and_from_the_file(kind: str, count: int) -> None:
    disk = SimulatedDisk()
    index = make(kind, disk)
    keys = rising(count, 1, 10**9 if kind == "time" else 1000)
    values = rising(count, 2, 700)
    for key, value in zip(keys, values, strict=True):
        index.append(key, value)
    check(index, keys, values)
    index.write()
    check(index, keys, values)
    again = make(kind, disk)
    again.load(disk.file_size("/x"))
    check(again, keys, values)
    form = ">ii" if kind == "offset" else ">qi"
    packed = b"".join(struct.pack(form, *entry) for entry in zip(keys, values, strict=True))
    assert disk.content("/x") == packed


def check(index: SparseIndex, keys: list[int], values: list[int]) -> None:
    assert index.entries == len(keys)
    assert index.last() == ((keys[-1], values[-1]) if keys else None)
    chance = random.Random(7)
    for column, look_up in ((keys, index.floor_by_key), (values, index.floor_by_value)):
        highest = column[-1] if column else 10
        for _ in range(200):
            bound = chance.randint(-1, highest + 5)
            place = bisect_right(column, bound) - 1
            assert look_up(bound) == ((keys[place], values[place]) if place >= 0 else None)


@pytest.mark.parametrize("keep", [0, 1, 400, 512, 700, 1000])
def test_truncation_drops_the_tail_in_memory_and_in_the_file(keep: int) -> None:
    disk = SimulatedDisk()
    index = make("offset", disk)
    for number in range(1000):
        index.append(10 * number, 100 * number)
    index.truncate_to(key_below=10 * keep, value_below=10**9)
    assert index.entries == keep
    index.append(10 * keep + 5, 100 * keep + 5)
    index.write()
    assert disk.file_size("/x") == 8 * (keep + 1)
    assert index.floor_by_key(10**6) == (10 * keep + 5, 100 * keep + 5)


def test_a_file_that_is_shorter_than_known_is_damaged() -> None:
    disk = SimulatedDisk()
    index = make("offset", disk)
    for number in range(1000):
        index.append(number, number)
    index.write()
    disk.replace("/x", b"\0" * 80)
    with pytest.raises(IndexDamagedError):
        index.floor_by_key(900)
    torn = make("offset", disk)
    torn.load(81)
    assert not torn.entries


def test_memory_stays_within_two_pages_of_entries() -> None:
    index = make("offset", SimulatedDisk())
    for number in range(50_000):
        index.append(number, number)
    index.floor_by_key(17)
    assert len(index._keys) + len(index._page_keys) <= 1024
