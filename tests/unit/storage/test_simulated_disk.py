"""The simulated disk itself: what a crash may take and what it must leave."""

from __future__ import annotations

import errno

import pytest

from tidelog.testing.disk import SECTOR_BYTES, CrashMode, PowerCut, SimulatedDisk


def disk_with(content: bytes, seed: int = 0) -> tuple[SimulatedDisk, int]:
    disk = SimulatedDisk(seed)
    fd = disk.open("/f", create=True)
    disk.pwritev(fd, (content,), 0)
    disk.fdatasync(fd)
    disk.sync_dir("/")
    return disk, fd


def test_what_was_synced_is_there_and_the_rest_is_lost_or_kept() -> None:
    for mode, wanted in ((CrashMode.LOSE_ALL, b"old"), (CrashMode.KEEP_ALL, b"oldnew")):
        disk, fd = disk_with(b"old")
        disk.pwritev(fd, (b"new",), 3)
        assert disk.crash(mode).content("/f") == wanted


def test_a_random_crash_tears_reorders_and_loses() -> None:
    seen = set()
    for seed in range(300):
        disk, fd = disk_with(b"o" * SECTOR_BYTES, seed)
        for number in range(1, 4):
            disk.pwritev(fd, (bytes([number]) * SECTOR_BYTES,), number * SECTOR_BYTES)
        content = disk.crash().content("/f")
        assert content[:SECTOR_BYTES] == b"o" * SECTOR_BYTES
        sectors = [
            content[start : start + SECTOR_BYTES] == bytes([start // SECTOR_BYTES]) * SECTOR_BYTES
            for start in range(SECTOR_BYTES, 4 * SECTOR_BYTES, SECTOR_BYTES)
        ]
        seen.add(tuple(sectors))
    assert (True, True, True) in seen
    assert (False, False, False) in seen
    assert (True, False, False) in seen
    assert (False, True, True) in seen


def test_a_name_that_was_not_synced_may_be_lost_with_its_synced_bytes() -> None:
    disk = SimulatedDisk()
    fd = disk.open("/f", create=True)
    disk.pwritev(fd, (b"x",), 0)
    disk.fdatasync(fd)
    assert not disk.crash(CrashMode.LOSE_ALL).exists("/f")


def test_a_rename_without_sync_leaves_either_name() -> None:
    found = set()
    for seed in range(40):
        disk, _ = disk_with(b"x", seed)
        disk.rename("/f", "/g")
        after = disk.crash()
        found.add((after.exists("/f"), after.exists("/g")))
    assert found == {(True, False), (False, True)}


def test_the_same_seed_gives_the_same_crash() -> None:
    for seed in range(20):
        contents = []
        for _ in range(2):
            disk, fd = disk_with(b"a" * 5000, seed)
            disk.pwritev(fd, (b"b" * 5000,), 2500)
            contents.append(disk.crash().content("/f"))
        assert contents[0] == contents[1]


def test_faults_strike_the_call_they_were_asked_for() -> None:
    disk, fd = disk_with(b"")
    disk.fail_next("pwritev", errno.EIO, after=1)
    assert disk.pwritev(fd, (b"a",), 0) == 1
    with pytest.raises(OSError, match="Input/output"):
        disk.pwritev(fd, (b"a",), 0)
    disk.fail_at(disk.calls + 1, "short")
    assert disk.pwritev(fd, (b"abcdef",), 0) == 2
    disk.fail_at(disk.calls + 1, "crash")
    with pytest.raises(PowerCut):
        disk.pwritev(fd, (b"a",), 0)
    with pytest.raises(PowerCut):
        disk.pread(fd, 1, 0)


def test_a_disk_fills_up_in_the_middle_of_a_write() -> None:
    disk, fd = disk_with(b"1234")
    disk.capacity_bytes = 10
    assert disk.pwritev(fd, (b"x" * 8,), 4) == 6
    with pytest.raises(OSError, match="No space"):
        disk.pwritev(fd, (b"x",), 10)
    assert disk.pwritev(fd, (b"over",), 0) == 4
    disk.truncate(fd, 2)
    assert disk.free_bytes("/") == 8


def test_open_files_outlive_their_names() -> None:
    disk, fd = disk_with(b"abc")
    disk.unlink("/f")
    assert disk.pread(fd, 3, 0) == b"abc"
    disk.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.pread(fd, 1, 0)
    assert disk.open_files == []
