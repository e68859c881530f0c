"""The cache of open descriptors."""

from __future__ import annotations

import errno
import random
import threading

import pytest

from tidelog.storage.file_cache import FileCache
from tidelog.testing.disk import SimulatedDisk


def cache(limit: int = 16) -> FileCache:
    return FileCache(SimulatedDisk(), limit)


def test_descriptors_stay_within_the_limit_and_come_back_when_needed() -> None:
    files = cache(20)
    disk = files.disk
    handles = [files.file(f"/{number}", create=True) for number in range(200)]
    chance = random.Random(3)
    written: dict[int, int] = {}
    for _ in range(2000):
        number = chance.randrange(200)
        fd = handles[number].pin()
        disk.pwritev(fd, (bytes([number]),), written.get(number, 0))
        handles[number].unpin()
        written[number] = written.get(number, 0) + 1
        assert len(files) <= 20
    for number, size in written.items():
        fd = handles[number].pin()
        assert disk.pread(fd, 100, 0) == bytes([number]) * size
        handles[number].unpin()
    for handle in handles:
        handle.close()
    assert disk.open_files == []


def test_pinned_descriptors_are_never_closed_under_their_user() -> None:
    files = cache(16)
    held = [files.file(f"/held{number}", create=True) for number in range(30)]
    descriptors = [handle.pin() for handle in held]
    for number in range(100):
        handle = files.file(f"/{number}", create=True)
        handle.pin()
        handle.unpin()
    assert [handle.pin() for handle in held] == descriptors
    for handle in held:
        handle.close()
        handle.unpin()
    assert len(files) >= 30
    for handle in held:
        handle.unpin()
    assert not any("held" in path for path in files.disk.open_files)


def test_a_file_that_is_in_use_is_seldom_the_one_to_go() -> None:
    files = cache(16)
    busy = files.file("/busy", create=True)
    descriptors = set()
    for number in range(320):
        handle = files.file(f"/{number}", create=True)
        handle.pin()
        handle.unpin()
        descriptors.add(busy.pin())
        busy.unpin()
    assert len(descriptors) <= 3


def test_s14_a_process_without_descriptors_closes_idle_ones() -> None:
    disk = SimulatedDisk()
    files = FileCache(disk, 100)
    first = files.file("/first", create=True)
    first.pin()
    first.unpin()
    disk.fail_next("open", errno.EMFILE)
    second = files.file("/second", create=True)
    second.pin()
    assert disk.open_files == ["/second"]
    disk.fail_next("open", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        files.file("/third", create=True).pin()
    second.unpin()


def test_a_renamed_file_is_opened_by_its_new_name() -> None:
    files = cache()
    handle = files.file("/old", create=True)
    files.disk.pwritev(handle.pin(), (b"x",), 0)
    handle.unpin()
    files.disk.rename("/old", "/new")
    handle.moved_to("/new")
    for number in range(50):
        other = files.file(f"/{number}", create=True)
        other.pin()
        other.unpin()
    assert files.disk.pread(handle.pin(), 1, 0) == b"x"
    handle.unpin()


def test_threads_share_the_cache() -> None:
    files = cache(16)
    handles = [files.file(f"/{number}", create=True) for number in range(64)]
    for number, handle in enumerate(handles):
        files.disk.pwritev(handle.pin(), (bytes([number]),), 0)
        handle.unpin()
    faults: list[BaseException] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(1500):
                number = chance.randrange(64)
                fd = handles[number].pin()
                assert files.disk.pread(fd, 1, 0) == bytes([number])
                handles[number].unpin()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    for handle in handles:
        handle.close()
    assert len(files) == 0
