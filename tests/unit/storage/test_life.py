"""What a data directory can say of the broker's last life: whole, or perhaps not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.unit.storage.helpers import PARTITION, TOPIC_ID, World, append, batch, create_log, flush
from tidelog.config import TopicConfig
from tidelog.host.disk import SystemDisk
from tidelog.host.page_cache import PageCache, page_cache_of
from tidelog.storage.checkpoint import write_plainly
from tidelog.storage.data_dir import DataDir
from tidelog.storage.life import Known, _checked
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.testing.disk import CrashMode, PowerCut, SimulatedDisk

NEW = NewLog(TOPIC_ID, TopicConfig())
LIFE = "/data/broker-life"


def started(world: World) -> DataDir:
    world.restart()
    data_dir = DataDir.open("/data", world.context)
    data_dir.identify("cluster", 4)
    data_dir.load_logs({PARTITION: NEW})
    if PARTITION not in data_dir.logs:
        create_log(data_dir, PARTITION, NEW)
    return data_dir


def lived(epoch: int = 5) -> tuple[World, DataDir, Log]:
    """A broker that has registered, and one record."""
    world = World()
    data_dir = started(world)
    assert (data_dir.life.intact_epoch, data_dir.life.lossy) == (-1, False)
    data_dir.life.registered(epoch)
    log = data_dir.logs[PARTITION]
    append(log, batch(3))
    return world, data_dir, log


def crashed(world: World, mode: CrashMode) -> DataDir:
    world.disk = world.disk.crash(mode)
    return started(world)


def test_a_kill_loses_nothing_while_the_kernel_lives() -> None:
    world, _, _ = lived()
    data_dir = crashed(world, CrashMode.KEEP_ALL)
    assert (data_dir.life.intact_epoch, data_dir.life.lossy) == (5, False)
    # Nor do two kills, the second one before the broker had registered.
    data_dir = crashed(world, CrashMode.KEEP_ALL)
    assert data_dir.life.intact_epoch == 5
    data_dir.life.registered(9)
    assert crashed(world, CrashMode.KEEP_ALL).life.intact_epoch == 9


@pytest.mark.parametrize("mode", [CrashMode.LOSE_ALL, CrashMode.RANDOM])
def test_a_loss_of_power_is_a_loss_whatever_is_left(mode: CrashMode) -> None:
    world, data_dir, log = lived()
    flush(log)
    data_dir.checkpoint({PARTITION: 3}).run()
    data_dir = crashed(world, mode)
    assert data_dir.life.lossy
    assert "the machine was started again" in data_dir.life.loss
    assert data_dir.life.intact_epoch == -1
    # And stays one: a kill after it proves nothing of the life before it.
    assert crashed(world, CrashMode.KEEP_ALL).life.intact_epoch == -1


def test_a_file_system_that_was_mounted_again_is_a_loss() -> None:
    world, _, _ = lived()
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    world.disk.cache = world.disk.cache._replace(mount_id="2")
    assert "mounted again" in started(world).life.loss


@pytest.mark.parametrize("unknown", [PageCache("", "1"), PageCache("boot", ""), PageCache()])
def test_every_kill_is_a_loss_where_the_kernel_cannot_tell(unknown: PageCache) -> None:
    world = World(disk=SimulatedDisk())
    world.disk.cache = unknown
    started(world).life.registered(5)
    assert "cannot tell" in crashed(world, CrashMode.KEEP_ALL).life.loss


def test_a_clean_stop_is_no_loss_on_whatever_machine_it_goes_on() -> None:
    world, data_dir, _ = lived()
    assert data_dir.close({PARTITION: 3})
    marker = world.disk.content("/data/.kafka_cleanshutdown")
    assert marker == b'{"version":0,"brokerEpoch":5}'
    data_dir = crashed(world, CrashMode.LOSE_ALL)
    assert (data_dir.life.intact_epoch, data_dir.life.lossy) == (5, False)
    # What was clean once stays so over a kill of the new life, which has not registered.
    assert crashed(world, CrashMode.KEEP_ALL).life.intact_epoch == 5
    # But not over a loss of power: the new life may have written.
    assert crashed(world, CrashMode.LOSE_ALL).life.lossy


@pytest.mark.parametrize("is_there", [True, False], ids=["damaged", "missing"])
def test_without_its_list_of_partitions_a_directory_does_not_vouch_for_them(
    is_there: bool,
) -> None:
    world, data_dir, _ = lived()
    assert data_dir.close({PARTITION: 3})
    for name in ("partition-inventory", "replication-offset-checkpoint"):
        world.disk.unlink(f"/data/{name}")
    world.disk.unlink("/data/recovery-point-offset-checkpoint")
    if is_there:
        write_plainly(world.disk, "/data/partition-inventory", b"damaged")
    # Shorter than it was, and nothing is left that says so.
    write_plainly(world.disk, f"/data/{PARTITION}/00000000000000000000.log", b"")
    data_dir = started(world)
    assert "partition-inventory is missing or damaged" in data_dir.life.loss
    assert data_dir.life.intact_epoch == -1
    data_dir.life.registered(6)
    assert data_dir.close({PARTITION: 0})
    assert started(world).life.intact_epoch == 6


def test_a_stop_before_the_registration_keeps_the_epoch_that_was_clean() -> None:
    world, data_dir, _ = lived()
    assert data_dir.close({PARTITION: 3})
    assert started(world).close({PARTITION: 3})
    assert started(world).life.intact_epoch == 5


def test_a_sync_that_failed_makes_even_a_kill_a_loss() -> None:
    world, data_dir, log = lived()
    world.context.on_offline = lambda path, error: data_dir.failed(error)
    log._faults._on_offline = world.context.on_offline
    world.disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(Exception, match="offline"):
        flush(log)
    data_dir = crashed(world, CrashMode.KEEP_ALL)
    assert data_dir.life.loss == "a sync of the disk had failed"
    # The next life starts anew.
    data_dir.life.registered(7)
    assert crashed(world, CrashMode.KEEP_ALL).life.intact_epoch == 7


def test_a_broken_assertion_is_no_fault_of_the_disk() -> None:
    world, data_dir, log = lived()
    log._faults._on_offline = lambda path, error: data_dir.failed(error)
    log.give_up("something is not true")
    assert not data_dir.close({PARTITION: 3})
    assert crashed(world, CrashMode.KEEP_ALL).life.intact_epoch == 5


def test_committed_records_that_are_missing_are_a_loss() -> None:
    """The page cache is the same, but somebody cut the file."""
    world, data_dir, _ = lived()
    data_dir.checkpoint({PARTITION: 3}).run()
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    world.disk.replace("/data/orders-0/00000000000000000000.log", b"")
    data_dir = started(world)
    assert data_dir.life.loss == "committed records of orders-0 are missing"
    assert crashed(world, CrashMode.KEEP_ALL).life.intact_epoch == -1


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"12345678 tidelog-life 1 5 a b\n", None])
def test_a_damaged_life_vouches_for_nothing(damage: bytes | None) -> None:
    world, _, _ = lived()
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    if damage is None:
        world.disk.unlink(LIFE)
    else:
        world.disk.replace(LIFE, damage)
    life = started(world).life
    assert (life.intact_epoch, life.lossy) == (-1, True)
    assert "missing or damaged" in life.loss


def test_every_bit_of_the_life_is_covered_by_its_checksum() -> None:
    world, _, _ = lived()
    good = world.disk.content(LIFE)
    for position in range(len(good) - 1):
        here = World(disk=world.disk.crash(CrashMode.KEEP_ALL))
        here.disk.corrupt(LIFE, position)
        assert started(here).life.lossy


def test_a_crash_at_each_call_of_a_start_never_makes_a_loss_whole() -> None:
    world, _, _ = lived()
    survivor = world.disk.crash(CrashMode.LOSE_ALL)
    crashes = 0
    while True:
        here = World(disk=survivor.crash(CrashMode.KEEP_ALL))
        here.disk.fail_at(crashes + 1, "crash")
        try:
            started(here)
        except PowerCut:
            crashes += 1
            assert crashed(here, CrashMode.KEEP_ALL).life.intact_epoch == -1
        else:
            break
    assert crashes > 30


def test_a_crash_at_each_call_of_a_start_keeps_what_was_clean() -> None:
    world, data_dir, _ = lived()
    assert data_dir.close({PARTITION: 3})
    survivor = world.disk
    crashes = 0
    while True:
        here = World(disk=survivor.crash(CrashMode.KEEP_ALL))
        here.disk.fail_at(crashes + 1, "crash")
        try:
            started(here)
        except PowerCut:
            crashes += 1
            assert crashed(here, CrashMode.KEEP_ALL).life.intact_epoch == 5
        else:
            break
    assert crashes > 20


def test_a_full_disk_has_the_life_vouch_for_nothing_rather_than_for_another() -> None:
    world, data_dir, _ = lived()
    world.disk.capacity_bytes = world.disk.used_bytes()
    data_dir.life.registered(9)
    world.disk.capacity_bytes = None
    assert crashed(world, CrashMode.KEEP_ALL).life.intact_epoch == -1


def test_c13_an_old_copy_of_the_directory_does_not_pass_for_the_directory() -> None:
    """Copied on the same machine, so that boot and mount are the same."""
    world, _, _ = lived()
    copy = World(disk=world.disk.crash(CrashMode.KEEP_ALL))
    old = started(copy).vouch(Known(9, ""))
    assert (old.boot_id, old.mount_id, old.clean_epoch) == ("", "", 5)
    same = started(World(disk=copy.disk.crash(CrashMode.KEEP_ALL))).vouch(Known(5, ""))
    assert (same.boot_id, same.clean_epoch) == (copy.disk.cache.boot_id, 5)
    assert same.directory_id == old.directory_id
    first = started(World(disk=copy.disk.crash(CrashMode.KEEP_ALL))).vouch(None)
    assert first.boot_id


def test_c13_a_kill_between_a_registration_and_its_epoch_on_disk_is_no_loss() -> None:
    """The broker was known in a life that its directory was not, left the ISRs, and who had lost
    records led."""
    world, _, _ = lived()
    copy = World(disk=world.disk.crash(CrashMode.KEEP_ALL), lives=100)
    # It registers as 9 and is killed; so is the next one, before it registers.
    incarnation = crashed(world, CrashMode.KEEP_ALL).vouch(Known(5, "")).incarnation
    crashed(world, CrashMode.KEEP_ALL)
    lost = World(disk=world.disk.crash(CrashMode.LOSE_ALL))
    whole = crashed(world, CrashMode.KEEP_ALL).vouch(Known(9, incarnation))
    assert (whole.clean_epoch, whole.boot_id) == (9, world.disk.cache.boot_id)
    for other in (copy, lost):
        found = started(other).vouch(Known(9, incarnation))
        assert found.clean_epoch != 9 and not found.boot_id
    # Once the epoch is on the disk, what came before it does not count.
    data_dir = crashed(world, CrashMode.KEEP_ALL)
    data_dir.life.registered(12)
    again = crashed(world, CrashMode.KEEP_ALL).vouch(Known(9, incarnation))
    assert (again.clean_epoch, again.boot_id) == (12, "")


def test_lives_without_an_incarnation_are_not_taken_for_each_other() -> None:
    world, _, _ = lived()
    line = world.disk.content(LIFE)[9:-1].rpartition(b" ")[0]
    world.disk.replace(LIFE, _checked(line))
    data_dir = crashed(world, CrashMode.KEEP_ALL)
    assert data_dir.life.intact_epoch == 5
    assert data_dir.vouch(Known(9, "")).clean_epoch == 5


def test_so_many_kills_before_a_registration_leave_a_short_file() -> None:
    world, _, _ = lived()
    for _ in range(100):
        data_dir = crashed(world, CrashMode.KEEP_ALL)
    assert data_dir.life.intact_epoch == 5
    assert len(world.disk.content(LIFE)) < 600


def test_the_page_cache_of_this_machine(tmp_path: Path) -> None:
    here = page_cache_of(str(tmp_path))
    assert here == SystemDisk().page_cache(str(tmp_path))
    if os.path.exists("/proc/sys/kernel/random/boot_id"):
        assert len(here.boot_id) == 36
    assert page_cache_of(str(tmp_path / "missing")).mount_id == ""


def test_a_loss_is_not_forgotten_by_a_life_that_was_killed_before_it_registered() -> None:
    world = World()
    started(world).life.registered(5)
    incarnation = crashed(world, CrashMode.KEEP_ALL).vouch(Known(5, "")).incarnation
    # The power goes; the next life finds that, and is killed before it could say so.
    assert crashed(world, CrashMode.LOSE_ALL).life.lossy
    found = crashed(world, CrashMode.KEEP_ALL).vouch(Known(9, incarnation))
    assert (found.clean_epoch, found.boot_id) == (-1, "")
