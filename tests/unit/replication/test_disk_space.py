"""Who may still write while the disk fills up."""

from __future__ import annotations

import pytest

from tests.unit.replication.helpers import Place
from tidelog.errors import KafkaError
from tidelog.replication.partition import Partition
from tidelog.storage.reserve import RESERVE_BYTES
from tidelog.testing.virtual_loop import virtual_time

MIB = 1024**2


class FillingDisk:
    """A client's topic and the offsets topic on a disk whose free space a test chooses."""

    def __init__(self, low_water_bytes: int, size_bytes: int = 1 << 40) -> None:
        self.place = Place()
        self._low_water_bytes = low_water_bytes
        self._size_bytes = size_bytes
        self.orders = self.place.lead("orders")
        self.offsets = self.place.lead("__consumer_offsets")

    async def look_at(self, free_bytes: int) -> tuple[bool, bool]:
        """Whether a client's append and a commit are taken, with that much free."""
        disk = self.place.disk
        disk.capacity_bytes = disk.used_bytes() + free_bytes
        disk.total_bytes = lambda path: self._size_bytes  # type: ignore[method-assign]
        await self.place.space.look(self._low_water_bytes)
        return self._takes(self.orders), self._takes(self.offsets)

    def _takes(self, partition: Partition) -> bool:
        try:
            self.place.put(partition, b"value")
        except KafkaError as error:
            assert "KAFKA_STORAGE_ERROR: the disk is nearly full" in str(error)
            return False
        return True


@virtual_time
async def test_commits_go_on_below_the_low_water_mark_until_the_last_64_mib() -> None:
    disk = FillingDisk(low_water_bytes=1024 * MIB)
    disk.place.disk.capacity_bytes = None
    for free_bytes, taken in (
        (2048 * MIB, (True, True)),
        (1024 * MIB, (True, True)),
        (1024 * MIB - 1, (False, True)),
        (64 * MIB, (False, True)),
        (64 * MIB - 1, (False, False)),
        (9 * MIB, (False, False)),
        (64 * MIB, (False, True)),
        (1024 * MIB, (True, True)),
    ):
        assert await disk.look_at(free_bytes) == taken, free_bytes


@virtual_time
async def test_on_a_small_disk_half_of_the_mark_is_kept() -> None:
    disk = FillingDisk(low_water_bytes=40 * MIB)
    assert await disk.look_at(40 * MIB) == (True, True)
    assert await disk.look_at(20 * MIB) == (False, True)
    assert await disk.look_at(20 * MIB - 1) == (False, False)


@virtual_time
async def test_the_mark_is_the_lesser_of_2_gib_and_a_twentieth_of_the_disk() -> None:
    small = FillingDisk(-1, size_bytes=1000 * MIB)
    assert await small.look_at(50 * MIB) == (True, True)
    assert await small.look_at(50 * MIB - 1) == (False, True)
    assert await small.look_at(25 * MIB - 1) == (False, False)
    large = FillingDisk(-1, size_bytes=1 << 50)
    assert await large.look_at(2048 * MIB) == (True, True)
    assert await large.look_at(2048 * MIB - 1) == (False, True)
    assert await large.look_at(64 * MIB - 1) == (False, False)


@virtual_time
async def test_without_a_mark_only_the_reserve_is_kept_from_clients() -> None:
    disk = FillingDisk(low_water_bytes=0)
    assert await disk.look_at(100 * MIB) == (True, True)
    assert "disk-reserve" in disk.place.disk.list_dir("/data")
    assert await disk.look_at(RESERVE_BYTES) == (True, True)
    # The reserve is given up, and its room is for commits alone.
    assert await disk.look_at(RESERVE_BYTES - 1) == (False, True)
    assert "disk-reserve" not in disk.place.disk.list_dir("/data")
    assert await disk.look_at(2 * RESERVE_BYTES - 1) == (False, True)
    assert await disk.look_at(2 * RESERVE_BYTES) == (True, True)
    assert "disk-reserve" in disk.place.disk.list_dir("/data")


@virtual_time
async def test_the_refusal_says_how_much_is_missing() -> None:
    disk = FillingDisk(low_water_bytes=1024 * MIB)
    await disk.look_at(10 * MIB)
    with pytest.raises(KafkaError, match=r"10485760 bytes free, 1073741824 wanted \(disk.min.free"):
        disk.place.put(disk.orders, b"value")
    with pytest.raises(KafkaError, match=r"10485760 bytes free, 67108864 wanted \(kept for the"):
        disk.place.put(disk.offsets, b"value")


@virtual_time
async def test_a_refusal_names_the_space_that_is_free_now() -> None:
    disk = FillingDisk(low_water_bytes=1024 * MIB)
    for free_bytes in (900 * MIB, 300 * MIB):
        await disk.look_at(free_bytes)
        refusal = disk.place.space.clients.refusal
        assert refusal is not None and f"{free_bytes} bytes free" in refusal.message


@virtual_time
async def test_batches_behind_one_that_a_low_disk_refused_hear_the_same() -> None:
    disk = FillingDisk(low_water_bytes=1024 * MIB)
    assert await disk.look_at(2048 * MIB) == (True, True)
    await disk.look_at(900 * MIB)
    for sequence in (0, 1):
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            disk.place.put_numbered(disk.orders, sequence)
    # With room again, what was sent behind the refused batch must not look like a gap.
    disk.place.disk.capacity_bytes = None
    await disk.place.space.look(0)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        disk.place.put_numbered(disk.orders, 1)
    assert disk.place.put_numbered(disk.orders, 0).base_offset >= 0
    assert disk.place.put_numbered(disk.orders, 1).base_offset >= 1
