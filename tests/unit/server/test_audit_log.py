"""The audit log on a disk that fails: the broker goes on, and the log says what happened to it."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from tidelog.audit import audit
from tidelog.host.host import Host
from tidelog.security.audit_chain import DIRECTORY, HEAD_FILE, audit_files, decode_head, verify
from tidelog.server.audit_file import AuditFiles, FileLimits
from tidelog.server.audit_log import ADMIN, DECISION, DENIED, AuditEvent, AuditLog, AuditSettings
from tidelog.testing.disk import CrashMode, SimulatedDisk
from tidelog.testing.virtual_loop import run_virtual, virtual_host

T = TypeVar("T")

DATA = "/data"
LIMITS = FileLimits(64 * 1024, 1 << 20)
ALL = frozenset((ADMIN, DENIED, DECISION))


def new_log(host: Host, limits: FileLimits = LIMITS, *, fail_closed: bool = False) -> AuditLog:
    host.disk.make_dir(DATA)
    host.disk.sync_dir("/")
    files = AuditFiles(DATA, host.disk, limits)
    return AuditLog(lambda: files, host, 1, AuditSettings(ALL, fail_closed))


def contents(disk: Any) -> dict[str, bytes]:
    directory = f"{DATA}/{DIRECTORY}"
    names = audit_files(disk.list_dir(directory)) if disk.exists(directory) else []
    return {name: read(disk, f"{directory}/{name}") for name in names}


def read(disk: Any, path: str) -> bytes:
    fd = disk.open(path)
    data: bytes = disk.pread(fd, disk.size(fd), 0)
    disk.close(fd)
    return data


def entries(disk: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for data in contents(disk).values() for line in data.splitlines()]


def actions(disk: Any) -> list[str]:
    return [each["action"] for each in entries(disk)]


def problems(disk: Any) -> Sequence[Any]:
    files = [(name, data.splitlines(keepends=True)) for name, data in contents(disk).items()]
    path = f"{DATA}/{HEAD_FILE}"
    head = decode_head(read(disk, path)) if disk.exists(path) else None
    return verify(files, head).problems


async def record(log: AuditLog, *names: str) -> bool:
    for name in names:
        log.record(AuditEvent(name, "User:alice", "10.0.0.1"))
    return await log.settle()


def on_a_machine(scene: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], T]:
    """A scene that is run on a virtual loop."""

    def run() -> T:
        return run_virtual(scene(), limit_seconds=3600)

    run.__name__ = scene.__name__
    return run


def test_what_was_recorded_is_durable_when_it_has_settled() -> None:
    async def main() -> SimulatedDisk:
        host = virtual_host()
        assert await record(new_log(host), "A", "B")
        assert isinstance(host.disk, SimulatedDisk)
        return host.disk.crash(CrashMode.LOSE_ALL)

    disk = on_a_machine(main)()
    assert actions(disk) == ["A", "B"]
    assert entries(disk)[0]["principal"] == "User:alice"


@on_a_machine
async def test_a_full_disk_leaves_the_broker_running_and_no_half_line() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host)
    assert await record(log, "A")
    disk.capacity_bytes = disk.used_bytes() + 20
    assert not await record(log, "B", "C")
    assert isinstance(log.fault, OSError) and log.fault.errno == errno.ENOSPC
    assert actions(disk) == ["A"] and problems(disk) == []
    disk.capacity_bytes = None
    assert await log.settle()
    assert actions(disk) == ["A", "B", "C"] and problems(disk) == []
    await log.close()


@on_a_machine
async def test_the_log_is_tried_again_by_itself() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host)
    disk.fail_next("pwritev", errno.ENOSPC)
    assert not await record(log, "A")
    await asyncio.sleep(2)
    assert log.fault is None
    assert actions(disk) == ["A"] and problems(disk) == []


@on_a_machine
async def test_what_waits_is_bounded_and_what_is_dropped_is_counted() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host, FileLimits(1 << 30, 1 << 30))
    disk.capacity_bytes = 0
    for _ in range(25_000):
        log.record(AuditEvent("A"))
    assert log.dropped == 5_000
    assert not await log.settle()
    disk.capacity_bytes = None
    assert await log.settle()
    assert await record(log, "B")
    assert actions(disk)[-2:] == ["AuditEventsDropped", "B"]
    assert entries(disk)[-2]["count"] == 5_000
    assert len(entries(disk)) == 20_002 and problems(disk) == []


@on_a_machine
async def test_x32_events_about_many_things_leave_room_for_those_of_others() -> None:
    log = new_log(virtual_host(), FileLimits(1 << 30, 1 << 30))
    names = [f"Topic:{number}" for number in range(500)]
    for _ in range(100):
        log.record(AuditEvent("Large", resource=names))
    assert log.dropped > 50, "nothing was written meanwhile"
    dropped = log.dropped
    for _ in range(5_000):
        log.record(AuditEvent("Small"))
    assert log.dropped == dropped
    for _ in range(100):
        event = AuditEvent("Large", resource=names)
        await log.has_room(event)
        log.record(event)
    assert log.dropped == dropped, "who waits loses nothing"
    assert await log.settle()


@on_a_machine
async def test_a_directory_that_was_removed_is_made_again_and_noticed() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host)
    assert await record(log, "A")
    for name in contents(disk):
        disk.unlink(f"{DATA}/{DIRECTORY}/{name}")
    disk.remove_dir(f"{DATA}/{DIRECTORY}")
    assert await record(log, "B")
    assert actions(disk) == ["AuditFileMissing", "B"]
    (problem,) = problems(disk)
    assert problem.what == "lines 1 to 1 are missing"


@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_crash_leaves_a_log_that_goes_on_without_a_gap(mode: CrashMode) -> None:
    async def before(seed: int) -> SimulatedDisk:
        host = virtual_host(seed)
        log = new_log(host)
        assert await record(log, "A", "B")
        log.record(AuditEvent("C"))
        await asyncio.sleep(0.001 * (seed % 15))
        assert isinstance(host.disk, SimulatedDisk)
        crashed = host.disk.crash(mode)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        return crashed

    async def after(disk: SimulatedDisk) -> SimulatedDisk:
        host = virtual_host(1, disk)
        log = new_log(host)
        assert await record(log, "D")
        await log.close()
        return disk

    for seed in range(15):
        disk = run_virtual(after(run_virtual(before(seed))))
        found = [each for each in actions(disk) if not each.startswith("Audit")]
        assert found in (["A", "B", "D"], ["A", "B", "C", "D"]), (seed, found)
        assert problems(disk) == [], seed


@on_a_machine
async def test_a_damaged_file_is_left_alone_and_the_log_goes_on_behind_it() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host)
    assert await record(log, "A", "B")
    await log.close()
    (name,) = contents(disk)
    fd = disk.open(f"{DATA}/{DIRECTORY}/{name}")
    disk.pwritev(fd, [b"x"], disk.size(fd) - 10)
    damaged = read(disk, f"{DATA}/{DIRECTORY}/{name}")
    log = new_log(host)
    assert await record(log, "C")
    assert contents(disk)[name] == damaged
    newest = contents(disk)[list(contents(disk))[-1]]
    said = [json.loads(line)["action"] for line in newest.splitlines()]
    assert said == ["AuditDamageFound", "C"]
    assert [(each.file, each.line) for each in problems(disk)] == [(name, 2)]


@on_a_machine
async def test_files_that_were_taken_away_while_the_broker_was_down_are_noticed() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host)
    assert await record(log, "A", "B")
    await log.close()
    for name in contents(disk):
        disk.unlink(f"{DATA}/{DIRECTORY}/{name}")
    log = new_log(host)
    assert await record(log, "C")
    assert actions(disk) == ["AuditFilesMissing", "C"]
    assert problems(disk)[0].what == "lines 1 to 2 are missing"


@on_a_machine
async def test_a_sync_that_failed_is_not_tried_again_and_its_lines_are_written_once_more() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host)
    assert await record(log, "A")
    disk.fail_next("fdatasync", errno.EIO)
    assert not await record(log, "B")
    assert await log.settle()
    assert actions(disk) == ["A", "B", "AuditSyncFailed", "B"]
    assert len(contents(disk)) == 2 and problems(disk) == []


@on_a_machine
async def test_the_log_is_rotated_and_the_oldest_files_go() -> None:
    host = virtual_host()
    disk: Any = host.disk
    log = new_log(host, FileLimits(2_000, 6_000))
    for number in range(100):
        assert await record(log, f"A{number}")
    sizes = [len(data) for data in contents(disk).values()]
    assert 2 <= len(sizes) <= 4 and max(sizes) <= 2_000
    assert actions(disk)[-1] == "A99" and "AuditFilesRemoved" in actions(disk)
    assert problems(disk) == []
    oldest = sorted(contents(disk))[0]
    disk.unlink(f"{DATA}/{DIRECTORY}/{oldest}")
    assert problems(disk), "a file that the log did not announce"


@on_a_machine
async def test_a_clock_that_jumps_back_does_not_matter() -> None:
    host = virtual_host()
    log = new_log(host)
    assert await record(log, "A")
    clock: Any = host.clock
    now = clock.wall_ms()
    host.clock = type("Back", (), {"wall_ms": lambda _: now - 86_400_000})()
    assert await record(log, "B")
    first, second = entries(host.disk)
    assert first["time"] > second["time"] and problems(host.disk) == []


@on_a_machine
async def test_what_a_client_can_bring_about_at_will_is_written_at_a_rate() -> None:
    host = virtual_host()
    log = new_log(host)
    for _ in range(1_000):
        log.record_at_rate(AuditEvent("Fetch", kind=DENIED), "one client")
    await asyncio.sleep(11)
    log.record_at_rate(AuditEvent("Fetch", kind=DENIED), "one client")
    assert await log.settle()
    assert [each.get("stands_for") for each in entries(host.disk)] == [None, 1_000]


@on_a_machine
async def test_decisions_of_the_broker_are_lines_of_the_log() -> None:
    host = virtual_host()
    log = new_log(host)
    log.start()
    audit("segments lost", partition="t-0", count=3)
    await log.close()
    audit("after the end")
    (entry,) = entries(host.disk)
    assert (entry["kind"], entry["action"]) == ("decision", "segments lost")
    assert entry["facts"] == {"partition": "t-0", "count": 3}


@on_a_machine
async def test_kinds_that_are_not_asked_for_and_a_log_that_is_off_write_nothing() -> None:
    host = virtual_host()
    host.disk.make_dir(DATA)
    files = AuditFiles(DATA, host.disk, LIMITS)
    log = AuditLog(lambda: files, host, 1, AuditSettings(frozenset((DENIED,))))
    off = AuditLog(None, host, 1, AuditSettings(ALL))
    assert await record(log, "A") and await record(off, "A")
    await log.close()
    await off.close()
    assert not host.disk.exists(f"{DATA}/{DIRECTORY}")
