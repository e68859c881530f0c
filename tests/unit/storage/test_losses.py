"""What is listed and missing: the partition goes offline and says so, and nothing is used twice."""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Callable

import pytest

from tests.unit.storage.helpers import (
    PARTITION,
    TOPIC_ID,
    World,
    append,
    batch,
    create_log,
    flush,
    offsets,
)
from tidelog.config import TopicConfig
from tidelog.model import TopicPartition
from tidelog.protocol.batches import iterate_batches, seal
from tidelog.storage.checkpoint import encode_offsets
from tidelog.storage.data_dir import DataDir
from tidelog.storage.loading import Loaded
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.testing.disk import CrashMode

DATA = "/data"
HERE = f"{DATA}/orders-0"
INVENTORY = f"{DATA}/partition-inventory"
OTHER = TopicPartition("other", 1)
OTHER_ID = uuid.UUID(int=77)


def loaded(world: World, *, accept_loss: tuple[TopicPartition, ...] = ()) -> tuple[DataDir, Loaded]:
    world.restart()
    data_dir = DataDir.open(DATA, world.context)
    data_dir.identify("cluster", 4)
    wanted = {PARTITION: NewLog(TOPIC_ID, world.config), OTHER: NewLog(OTHER_ID, world.config)}
    outcome = data_dir.load_logs(wanted, accept_loss=accept_loss)
    for partition, new in wanted.items():
        if partition not in outcome.logs and partition not in outcome.offline:
            create_log(data_dir, partition, new)
    return data_dir, outcome


def lived(*, clean: bool, segment_bytes: int = 700) -> World:
    """A world in which two partitions hold 40 records each, in several segments."""
    world = World(config=TopicConfig(segment_bytes=segment_bytes))
    data_dir, _ = loaded(world)
    for partition in (PARTITION, OTHER):
        log = data_dir.logs[partition]
        for number in range(20):
            append(log, batch(2, fill=number))
        flush(log)
    watermarks = {PARTITION: 40, OTHER: 40}
    if clean:
        assert data_dir.close(watermarks)
    else:
        data_dir.checkpoint(watermarks).run()
        world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    return world


def logs_in(world: World) -> list[str]:
    return sorted(name for name in world.disk.list_dir(HERE) if name.endswith(".log"))


def lose_directory(world: World) -> None:
    world.disk.rename(HERE, "/lost")


def lose_logs(world: World) -> None:
    for name in logs_in(world):
        world.disk.unlink(f"{HERE}/{name}")


def lose_first(world: World) -> None:
    world.disk.unlink(f"{HERE}/{logs_in(world)[0]}")


def lose_sealed(world: World) -> None:
    world.disk.unlink(f"{HERE}/{logs_in(world)[2]}")


def lose_active(world: World) -> None:
    world.disk.unlink(f"{HERE}/{logs_in(world)[-1]}")


def empty_sealed(world: World) -> None:
    world.disk.replace(f"{HERE}/{logs_in(world)[2]}", b"")


def flip_topic_id(world: World) -> None:
    data = world.disk.content(f"{HERE}/partition.metadata")
    world.disk.corrupt(f"{HERE}/partition.metadata", len(data) - 5, 2)


def lose_metadata(world: World) -> None:
    world.disk.unlink(f"{HERE}/partition.metadata")


def damage_metadata(world: World) -> None:
    world.disk.replace(f"{HERE}/partition.metadata", b"\xff")


LOSSES: dict[Callable[[World], None], str] = {
    lose_directory: "the directory is missing",
    lose_logs: r"there is no \.log file",
    lose_first: "the segments of offsets 0 to",
    lose_sealed: r"the segments of offsets \d+ to \d+ are missing",
    lose_active: "are missing at its end",
    empty_sealed: r"offsets \d+ to \d+ are missing",
    flip_topic_id: "names another topic",
    lose_metadata: "does not name a topic",
    damage_metadata: "does not name a topic",
}
METADATA_ONLY = (flip_topic_id, lose_metadata, damage_metadata)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("lose", LOSSES, ids=lambda each: each.__name__)
def test_s4_what_is_listed_and_missing_takes_that_partition_offline(
    lose: Callable[[World], None], clean: bool
) -> None:
    world = lived(clean=clean)
    lose(world)
    data_dir, outcome = loaded(world)
    assert list(outcome.offline) == [PARTITION]
    assert re.search(LOSSES[lose], outcome.offline[PARTITION])
    assert "--accept-loss orders-0" in outcome.offline[PARTITION]
    assert offsets(outcome.logs[OTHER]) == list(range(40))
    data_dir.close()
    # It stays so: nothing was created in its place meanwhile.
    data_dir, outcome = loaded(world)
    assert list(outcome.offline) == [PARTITION]
    data_dir.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("lose", LOSSES, ids=lambda each: each.__name__)
def test_an_accepted_loss_serves_what_is_left_and_uses_no_offset_twice(
    lose: Callable[[World], None], clean: bool
) -> None:
    world = lived(clean=clean)
    lose(world)
    data_dir, outcome = loaded(world, accept_loss=(PARTITION,))
    assert outcome.offline == {}
    log = outcome.logs[PARTITION]
    left = offsets(log)
    assert len(left) < 40 or lose in METADATA_ONLY
    assert set(left) <= set(range(40))
    assert append(log, batch(3)).base_offset == 40
    assert data_dir.close({PARTITION: 43, OTHER: 40})
    # The log is whole again: a later start needs no leave.
    data_dir, outcome = loaded(world)
    assert outcome.offline == {}
    assert offsets(outcome.logs[PARTITION]) == [*left, 40, 41, 42]
    data_dir.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_s4_a_segment_that_claims_offsets_of_the_next_is_named(clean: bool) -> None:
    world = lived(clean=clean)
    path, following = (f"{HERE}/{name}" for name in logs_in(world)[2:4])
    data = bytearray(world.disk.content(path))
    *_, (position, last) = iterate_batches(data)
    last.last_offset_delta += 4
    seal(data, position, last)
    world.disk.replace(path, bytes(data))
    data_dir, outcome = loaded(world)
    begins = int(following[-24:-4])
    said = f"{path} claims offsets up to {begins + 3}, but the next segment begins at {begins}"
    assert said in outcome.offline[PARTITION]
    data_dir.close()


def test_s4_a_log_start_checkpoint_that_lies_hides_and_deletes_nothing() -> None:
    for offset in (60, 999_999, 7):
        world = lived(clean=True)
        path = f"{DATA}/log-start-offset-checkpoint"
        world.disk.replace(path, encode_offsets({PARTITION: offset}))
        data_dir, outcome = loaded(world)
        assert offsets(outcome.logs[PARTITION]) == list(range(40))
        data_dir.close()


def test_s4_without_an_inventory_a_log_start_beyond_the_log_takes_it_offline() -> None:
    world = lived(clean=True)
    world.disk.unlink(INVENTORY)
    path = f"{DATA}/log-start-offset-checkpoint"
    world.disk.replace(path, encode_offsets({PARTITION: 999_999}))
    before = logs_in(world)
    data_dir, outcome = loaded(world)
    assert "the log start offset is 999999" in outcome.offline[PARTITION]
    assert logs_in(world) == before
    data_dir.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_directory_of_an_older_version_without_an_inventory_is_taken_over(clean: bool) -> None:
    world = lived(clean=clean)
    world.disk.unlink(INVENTORY)
    data_dir, outcome = loaded(world)
    assert outcome.offline == {}
    assert offsets(outcome.logs[PARTITION]) == offsets(outcome.logs[OTHER]) == list(range(40))
    data_dir.close()
    # And is listed from then on.
    lose_directory(world)
    assert list(loaded(world)[1].offline) == [PARTITION]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_without_an_inventory_the_checkpoints_tell_of_a_missing_directory(clean: bool) -> None:
    world = lived(clean=clean)
    world.disk.unlink(INVENTORY)
    lose_directory(world)
    assert list(loaded(world)[1].offline) == [PARTITION]


def test_s4_a_damaged_inventory_costs_no_data_whichever_byte_it_is() -> None:
    size = len(lived(clean=True).disk.content(INVENTORY))
    tried = 0
    for position in range(size):
        world = lived(clean=True)
        world.disk.corrupt(INVENTORY, position, 1 << position % 8)
        data_dir, outcome = loaded(world)
        assert outcome.offline == {}
        assert offsets(outcome.logs[PARTITION]) == list(range(40))
        data_dir.close()
        tried += 1
    assert tried == size > 80


def test_a_damaged_inventory_still_tells_of_a_missing_directory() -> None:
    for position in (3, 40, 100):
        world = lived(clean=True)
        world.disk.corrupt(INVENTORY, position)
        lose_directory(world)
        assert list(loaded(world)[1].offline) == [PARTITION]


def test_s1_a_torn_append_to_the_inventory_is_no_damage() -> None:
    world = lived(clean=False)
    whole = world.disk.content(INVENTORY)
    for cut in range(1, 40):
        world.disk.replace(INVENTORY, whole + whole.splitlines(keepends=True)[-1][:cut])
        data_dir, outcome = loaded(world)
        assert not data_dir.inventory.damaged
        assert len(outcome.logs) == 2
        data_dir.abandon()


def test_a_batch_that_was_synced_and_is_damaged_is_not_cut_off() -> None:
    world = lived(clean=False, segment_bytes=100_000)
    path = f"{HERE}/{logs_in(world)[0]}"
    size = len(world.disk.content(path))
    world.disk.corrupt(path, size // 2)
    _, outcome = loaded(world)
    assert "is damaged" in outcome.offline[PARTITION]
    assert len(world.disk.content(path)) == size


def test_s16_a_kill_between_retention_and_the_inventory_is_no_loss() -> None:
    world = lived(clean=False)
    data_dir, outcome = loaded(world)
    log: Log = outcome.logs[PARTITION]
    log.advance_log_start(20)
    assert log.apply_retention(world.clock.now_ms, 40)
    for run_deferred in (False, True):
        if run_deferred:
            world.run_deferred()
        world.disk = world.disk.crash(CrashMode.KEEP_ALL)
        world.deferred.clear()
        data_dir, outcome = loaded(world)
        assert outcome.offline == {}
        log = outcome.logs[PARTITION]
        assert log.log_start_offset > 0
        assert offsets(log)[-1] == 39
        log.advance_log_start(30)
        log.apply_retention(world.clock.now_ms, 40)
    # The names that proved it go with the next checkpoint.
    world.run_deferred()
    data_dir.checkpoint(None).run()
    assert not [name for name in world.disk.list_dir(HERE) if name.endswith(".deleted")]


def test_a_partition_that_is_not_listed_is_created_empty() -> None:
    world = lived(clean=True)
    data_dir = DataDir.open(DATA, world.context)
    wanted = {TopicPartition("new", 0): NewLog(uuid.UUID(int=5), world.config)}
    outcome = data_dir.load_logs(wanted)
    assert outcome.offline == {} and outcome.logs == {}
    data_dir.close()


def test_a_creation_that_a_kill_cut_short_is_done_again() -> None:
    for names in ((), ("partition.metadata",), ("partition.metadata", f"{0:020d}.log")):
        world = World()
        world.disk.make_dir(HERE)
        for name in names:
            world.disk.close(world.disk.open(f"{HERE}/{name}", create=True))
        data_dir, outcome = loaded(world)
        assert outcome.offline == {}
        assert append(data_dir.logs[PARTITION]).base_offset == 0
        data_dir.close()


def test_a_directory_that_is_not_ours_is_left_as_it_is() -> None:
    world = World()
    world.disk.make_dir(HERE)
    fd = world.disk.open(f"{HERE}/notes.txt", create=True)
    world.disk.pwritev(fd, (b"mine",), 0)
    world.disk.close(fd)
    data_dir = DataDir.open(DATA, world.context)
    new = NewLog(TOPIC_ID, world.config)
    assert data_dir.load_logs({PARTITION: new}).logs == {}
    outcome = data_dir.create_logs({PARTITION: new, OTHER: NewLog(OTHER_ID, world.config)})
    assert "is in the way" in str(outcome[PARTITION])
    assert isinstance(outcome[OTHER], Log)
    assert world.disk.content(f"{HERE}/notes.txt") == b"mine"
    data_dir.close()
    data_dir = DataDir.open(DATA, world.context)
    data_dir.load_logs({})
    assert world.disk.content(f"{HERE}/notes.txt") == b"mine"
    data_dir.close()


def test_s12_a_disk_that_does_not_sync_after_recovery_takes_all_logs_offline() -> None:
    world = lived(clean=False)
    world.disk.fail_next("sync_all", errno.EIO)
    data_dir, outcome = loaded(world)
    assert set(outcome.offline) == {PARTITION, OTHER}
    assert outcome.logs == {}
    data_dir.abandon()
