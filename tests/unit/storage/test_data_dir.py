"""Data directories: locks, identity, checkpoints, clean stops, strays."""

from __future__ import annotations

import errno
import subprocess
import sys
import uuid
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.unit.storage.helpers import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    SeededRandom,
    World,
    append,
    batch,
    create_log,
    flush,
    offsets,
    start_over,
)
from tidelog.config import TopicConfig
from tidelog.errors import StorageError
from tidelog.host.clock import SystemClock
from tidelog.host.disk import SystemDisk
from tidelog.model import TopicPartition
from tidelog.storage.checkpoint import (
    encode_offsets,
    format_id,
    parse_id,
    read_offsets,
    write_durably,
)
from tidelog.storage.data_dir import DataDir
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log import Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.testing.disk import CrashMode

DATA = "/data"
MARKER = f"{DATA}/.kafka_cleanshutdown"
OTHER = TopicPartition("other.topic-x", 12)


def opened(
    world: World,
    topics: dict[TopicPartition, uuid.UUID] | None = None,
    deleted: Collection[uuid.UUID] = (),
) -> DataDir:
    known = {PARTITION: TOPIC_ID} if topics is None else topics
    data_dir = DataDir.open(DATA, world.context)
    data_dir.identify("cluster", 4)
    wanted = {each: NewLog(known[each], world.config) for each in known}
    loaded = data_dir.load_logs(wanted, deleted=deleted)
    data_dir.remove_retired(loaded.retired)
    return data_dir


def started(world: World) -> tuple[DataDir, Log]:
    data_dir = opened(world)
    log = data_dir.logs.get(PARTITION)
    return data_dir, log or create_log(data_dir, PARTITION, NewLog(TOPIC_ID, world.config))


def deleted(data_dir: DataDir) -> str:
    """Delete the one partition; its directory's new name."""
    data_dir.drop(PARTITION)
    retired = data_dir.retire_directory(PARTITION, TOPIC_ID)
    assert retired is not None
    return retired


def test_a_clean_stop_leaves_a_marker_and_a_start_takes_it_away() -> None:
    world = World()
    data_dir, log = started(world)
    assert not data_dir.was_clean
    append(log, batch(5))
    assert data_dir.close({PARTITION: 5})
    assert world.disk.content(MARKER) == b'{"version":0,"brokerEpoch":-1}'
    assert world.disk.open_files == []
    data_dir, log = started(world)
    assert data_dir.was_clean
    assert not world.disk.exists(MARKER)
    assert data_dir.high_watermarks == {PARTITION: 5}
    assert offsets(log) == [0, 1, 2, 3, 4]
    # The marker is gone for good before anything is written: a crash now is seen as one.
    world.disk = world.disk.crash(CrashMode.LOSE_ALL)
    world.restart()
    data_dir, _ = started(world)
    assert not data_dir.was_clean


def test_the_files_have_kafkas_bytes() -> None:
    world = World()
    data_dir, log = started(world)
    start_over(log, 3)
    append(log, batch(5), epoch=6)
    flush(log)
    data_dir.checkpoint({PARTITION: 7}).run()
    assert world.disk.content(f"{DATA}/recovery-point-offset-checkpoint") == b"0\n1\norders 0 8\n"
    assert world.disk.content(f"{DATA}/replication-offset-checkpoint") == b"0\n1\norders 0 7\n"
    assert world.disk.content(f"{DATA}/log-start-offset-checkpoint") == b"0\n1\norders 0 3\n"
    assert world.disk.content(f"{DATA}/orders-0/leader-epoch-checkpoint") == b"0\n1\n6 3\n"
    assert world.disk.content(f"{DATA}/orders-0/partition.metadata") == (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAASNA"
    )
    identity = data_dir.identity
    assert identity is not None
    lines = world.disk.content(f"{DATA}/meta.properties").decode().splitlines()
    assert {"version=1", "cluster.id=cluster", "node.id=4"} < set(lines)
    assert f"directory.id={format_id(identity.directory_id)}" in lines


def test_s8_no_marker_where_a_log_failed() -> None:
    world = World()
    data_dir, log = started(world)
    append(log)
    world.disk.fail_next("fdatasync", errno.EIO)
    assert not data_dir.close({})
    assert not world.disk.exists(MARKER)


def test_s8_no_marker_where_the_checkpoints_failed_or_something_failed_before() -> None:
    world = World()
    data_dir, _ = started(world)
    world.disk.fail_next("rename", errno.ENOSPC, after=1)
    assert not data_dir.close({})
    assert not world.disk.exists(MARKER)
    data_dir, _ = started(world)
    data_dir.failed()
    assert not data_dir.close({})
    assert not world.disk.exists(MARKER)


def test_s22_a_second_user_is_refused_and_told_who_holds_it() -> None:
    world = World()
    data_dir, _ = started(world)
    with pytest.raises(StorageError, match=r"in use by process \d+"):
        DataDir.open(DATA, world.context)
    data_dir.close()
    DataDir.open(DATA, world.context).close()


def system_context() -> LogContext:
    disk = SystemDisk()
    return LogContext(
        disk, SystemClock(), FileCache(disk), SeededRandom(), lambda _, f: f(), lambda *_: None
    )


def test_s22_another_process_is_refused(tmp_path: Path) -> None:
    data_dir = DataDir.open(str(tmp_path), system_context())
    program = (
        "import sys\n"
        "from tests.unit.storage.test_data_dir import DataDir, StorageError, system_context\n"
        "try:\n"
        "    DataDir.open(sys.argv[1], system_context())\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    data_dir.close()
    assert f"in use by process {__import__('os').getpid()}" in answer
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_c13_a_directory_of_another_cluster_or_node_is_refused() -> None:
    world = World()
    data_dir, _ = started(world)
    data_dir.close()
    data_dir = DataDir.open(DATA, world.context)
    with pytest.raises(StorageError, match=r"cluster\.id cluster, this broker has other"):
        data_dir.identify("other", 4)
    with pytest.raises(StorageError, match=r"node\.id 4, this broker has 5"):
        data_dir.identify("cluster", 5)
    first = data_dir.identify("cluster", 4)
    data_dir.close()
    data_dir = DataDir.open(DATA, world.context)
    assert data_dir.identify("cluster", 4) == first
    data_dir.close()


@pytest.mark.parametrize("damage", [b"", b"version=2\n", b"\xff\xfe", b"cluster.id=x\nversion=1\n"])
def test_s4_unusable_meta_properties_refuse_the_start(damage: bytes) -> None:
    world = World()
    data_dir, _ = started(world)
    data_dir.close()
    world.disk.replace(f"{DATA}/meta.properties", damage)
    with pytest.raises(StorageError, match=r"meta\.properties"):
        DataDir.open(DATA, world.context)
    world.disk.replace(f"{DATA}/meta.properties", b"")
    world.disk.unlink(f"{DATA}/meta.properties")
    DataDir.open(DATA, world.context).close()


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ],
)
@pytest.mark.parametrize("damage", [b"", b"0\n", b"0\n3\norders 0 5\n", b"7\n0\n", b"\x80\x00"])
def test_s4_a_damaged_checkpoint_costs_no_data(name: str, damage: bytes) -> None:
    world = World()
    data_dir, log = started(world)
    for number in range(40):
        append(log, batch(3, fill=number))
    data_dir.close({PARTITION: 120})
    world.disk.replace(f"{DATA}/{name}", damage)
    data_dir, log = started(world)
    assert offsets(log) == list(range(120))
    # The inventory knows it all.
    assert data_dir.high_watermarks == {PARTITION: 120}


def test_checkpoints_round_trip_and_refuse_every_prefix() -> None:
    world = World()
    wanted = {PARTITION: 5, OTHER: 2**62, TopicPartition("a", 0): 0}
    data = encode_offsets(wanted)
    world.disk.make_dir(DATA)
    path = f"{DATA}/x"
    write_durably(world.disk, path, data)
    assert read_offsets(world.disk, path) == wanted
    for size in range(len(data)):
        world.disk.replace(path, data[:size])
        with pytest.raises(StorageError):
            read_offsets(world.disk, path)
    world.disk.replace(path, b"0\n1\norders 0 -5\n")
    with pytest.raises(StorageError):
        read_offsets(world.disk, path)
    assert parse_id(format_id(TOPIC_ID)) == TOPIC_ID


def test_i29_unknown_partitions_are_put_aside_and_never_unlinked() -> None:
    world = World()
    data_dir, log = started(world)
    append(log, batch(3))
    content = world.disk.content(f"{DATA}/orders-0/{0:020d}.log")
    data_dir.close()
    data_dir = opened(world, {})
    assert data_dir.logs == {}
    (stray,) = [name for name in world.disk.list_dir(DATA) if name.endswith("-stray")]
    assert stray.startswith("orders-0.")
    assert world.disk.content(f"{DATA}/{stray}/{0:020d}.log") == content
    data_dir.close()
    data_dir = opened(world)
    assert [name for name in world.disk.list_dir(DATA) if name.endswith("-stray")] == [stray]
    data_dir.close()


def test_s23_records_of_another_topic_of_that_name_are_put_aside() -> None:
    world = World()
    data_dir, log = started(world)
    append(log, batch(3))
    data_dir.close()
    data_dir = opened(world, {PARTITION: uuid.UUID(int=99)})
    assert data_dir.logs == {}
    assert any(name.endswith("-stray") for name in world.disk.list_dir(DATA))
    create_log(data_dir, PARTITION, NewLog(uuid.UUID(int=99), world.config))
    data_dir.close()


def test_deleting_a_log_renames_its_directory_at_once() -> None:
    world = World()
    data_dir, log = started(world)
    append(log)
    retired = deleted(data_dir)
    (name,) = [name for name in world.disk.list_dir(DATA) if "orders" in name]
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    assert retired == f"{DATA}/{name}"
    log = create_log(data_dir, PARTITION, NewLog(TOPIC_ID, world.config))
    assert append(log).base_offset == 0
    data_dir.remove_retired([retired])
    assert not [name for name in world.disk.list_dir(DATA) if name.endswith("-delete")]
    data_dir.close()


def test_s16_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start() -> None:
    world = World()
    data_dir, log = started(world)
    append(log)
    flush(log)
    deleted(data_dir)
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    world.restart()
    data_dir = opened(world, {}, deleted=[TOPIC_ID])
    assert not [name for name in world.disk.list_dir(DATA) if "orders" in name]
    data_dir.close()


def test_s11_a_log_that_found_no_room_is_created_at_the_next_try() -> None:
    world = World()
    data_dir, _ = started(world)
    calls = world.disk.calls
    create_log(data_dir, TopicPartition("count", 0), NewLog(TOPIC_ID, world.config))
    steps = world.disk.calls - calls
    for step in range(1, steps + 1):
        partition = TopicPartition("full", step)
        world.disk.fail_at(world.disk.calls + step, errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            create_log(data_dir, partition, NewLog(TOPIC_ID, world.config))
        assert (
            append(create_log(data_dir, partition, NewLog(TOPIC_ID, world.config))).base_offset == 0
        )
    assert steps > 5


def test_a_topic_name_with_dashes_and_dots_is_found_again() -> None:
    world = World()
    data_dir = opened(world, {})
    append(create_log(data_dir, OTHER, NewLog(TOPIC_ID, world.config)), batch(4))
    data_dir.close()
    data_dir = opened(world, {OTHER: TOPIC_ID})
    assert data_dir.logs[OTHER].log_end_offset == 4
    with pytest.raises(StorageError, match="is in the way"):
        create_log(data_dir, OTHER, NewLog(TOPIC_ID, world.config))
    data_dir.close()


def test_the_log_start_survives_a_crash_once_it_is_checkpointed() -> None:
    world = World()
    data_dir, log = started(world)
    append(log, batch(10))
    flush(log)
    log.advance_log_start(4)
    data_dir.checkpoint(None).run()
    world.disk = world.disk.crash(CrashMode.LOSE_ALL)
    world.restart()
    _, log = started(world)
    assert (log.log_start_offset, log.log_end_offset) == (4, 10)


def test_a_new_partition_survives_a_power_cut_with_its_first_flush() -> None:
    world = World()
    _, log = started(world)
    append(log, batch(2))
    flush(log)
    world.disk = world.disk.crash(CrashMode.LOSE_ALL)
    world.restart()
    data_dir, log = started(world)
    assert offsets(log) == [0, 1]
    assert not any(name.endswith("-stray") for name in world.disk.list_dir(DATA))
    assert data_dir.logs[PARTITION] is log


def test_a_real_disk_keeps_a_log(tmp_path: Path) -> None:
    context = system_context()
    config = TopicConfig(segment_bytes=2000)
    path = str(tmp_path / "a" / "b")
    for start in (0, 50):
        data_dir = DataDir.open(path, context)
        data_dir.identify("cluster", 4)
        data_dir.load_logs({PARTITION: NewLog(TOPIC_ID, config)})
        log = data_dir.logs.get(PARTITION) or create_log(
            data_dir, PARTITION, NewLog(TOPIC_ID, config)
        )
        assert log.log_end_offset == start
        for number in range(50):
            log.append(batch(fill=number), 1 + start, NOW_MS)
        flush(log)
        assert offsets(log) == list(range(start + 50))
        slices = log.read(0, 1 << 20, log.end_position)
        buffer = memoryview(bytearray(100))
        assert slices.slices[0].read_cached_into(buffer, 0) == 100
        assert bytes(buffer) == slices.slices[0].read(0, 100)
        slices.release()
        assert data_dir.close({PARTITION: start + 50})
    assert len(context.files) == 0
