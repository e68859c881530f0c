"""T3: the last five batches of a producer stay known, far from the log's end or without records."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    append,
    batch,
    close,
    flush,
    idempotent,
    stored_batches,
    truncate,
)
from tests.unit.storage.test_producers import refused
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, StorageError
from tidelog.storage.checkpoint import write_plainly
from tidelog.storage.log import Log
from tidelog.storage.producers import BATCHES_KEPT, ProducerStates
from tidelog.storage.replicated import check_replicated
from tidelog.storage.snapshot_windows import decode_windows, encode_windows
from tidelog.storage.snapshots import encode_snapshot
from tidelog.testing.disk import CrashMode, PowerCut

# No index entry comes near to the batches of the producer, and they lie in segments of their own.
CONFIG = TopicConfig(segment_bytes=2_000, index_interval_bytes=64)
SENT = 9
PRODUCERS = (7, 8, 9)


def fill(log: Log, others: int = 100) -> None:
    """Batches of some producers, then many of nobody."""
    for sequence in range(SENT):
        for producer_id in PRODUCERS:
            append(log, idempotent(sequence, producer_id=producer_id))
    for _ in range(others):
        append(log, batch(size=200))


def knows_its_producers(log: Log) -> None:
    """A retry of any of the last five is known, of the one before it is not, and they go on."""
    end = log.log_end_offset
    for place, producer_id in enumerate(PRODUCERS):
        for sequence in range(SENT - BATCHES_KEPT, SENT):
            again = append(log, idempotent(sequence, producer_id=producer_id))
            assert (again.duplicate, again.base_offset) == (True, sequence * 3 + place)
        before = idempotent(SENT - BATCHES_KEPT - 1, producer_id=producer_id)
        assert refused(log, before) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(SENT, producer_id=PRODUCERS[0])).base_offset == end


def names(world: World, suffix: str) -> list[str]:
    return [each for each in world.disk.list_dir(DIRECTORY) if each.endswith(suffix)]


def test_after_a_clean_restart_and_another() -> None:
    world = World(config=CONFIG)
    log = world.open()
    fill(log)
    for _ in range(2):
        end = log.log_end_offset
        close(log)
        log = world.open(clean=True, recovery_point=end)
    knows_its_producers(log)


@pytest.mark.parametrize("mode", list(CrashMode))
@pytest.mark.parametrize("synced", [0.0, 0.5, 1.0])
def test_after_a_kill_or_a_loss_of_power(mode: CrashMode, synced: float) -> None:
    """What was synced is not walked again, and the walk begins behind the producer's batches."""
    world = World(config=CONFIG)
    log = world.open()
    fill(log)
    flush(log)
    bases = log.segments.bases
    recovery_point = bases[int((len(bases) - 1) * synced)]
    log = world.reopen_after(world.disk.crash(mode), recovery_point=recovery_point)
    knows_its_producers(log)


def test_after_a_kill_at_each_call_of_a_roll_and_a_stop() -> None:
    """The walk begins with the last segment, and what is before it is known from files alone."""
    world = World(config=CONFIG)
    log = world.open()
    fill(log)
    flush(log)
    before, recovery_point, kills = world.disk, log.log_end_offset, 0
    while True:
        world.disk = before.crash(CrashMode.KEEP_ALL)
        world.restart()
        log = world.open(recovery_point=recovery_point)
        world.disk.fail_at(world.disk.calls + 1 + kills, "crash")
        try:
            for _ in range(12):
                append(log, batch(size=200))
            close(log)
        except PowerCut:
            kills += 1
        else:
            break
        left = world.disk.crash(CrashMode.KEEP_ALL)
        knows_its_producers(world.reopen_after(left, recovery_point=recovery_point))
    assert kills > 30


def test_at_a_follower_that_was_restarted_and_leads() -> None:
    leader, world = World(config=CONFIG).open(), World(config=CONFIG)
    follower = world.open()
    fill(leader)
    for data in stored_batches(leader):
        follower.append_checked(check_replicated(memoryview(data), follower.continuation(99)))
    assert follower.log_end_offset == leader.log_end_offset
    close(follower)
    knows_its_producers(world.open(clean=True, recovery_point=leader.log_end_offset))


@pytest.mark.parametrize("is_clean", [True, False])
def test_where_retention_has_removed_the_batches(is_clean: bool) -> None:
    config = TopicConfig(
        segment_bytes=2_000, index_interval_bytes=64, retention_bytes=4_000, file_delete_delay_ms=0
    )
    world = World(config=config)
    log = world.open()
    fill(log)
    assert log.apply_retention(NOW_MS, log.log_end_offset) > 0
    world.run_deferred()
    start, end = log.log_start_offset, log.log_end_offset
    assert start > SENT * len(PRODUCERS)
    if is_clean:
        close(log)
        log = world.open(clean=True, recovery_point=end, log_start=start)
    else:
        flush(log)
        left = world.disk.crash(CrashMode.LOSE_ALL)
        log = world.reopen_after(left, recovery_point=end, log_start=start)
    knows_its_producers(log)


def test_after_a_cut_to_before_the_newest_snapshot() -> None:
    world = World(config=CONFIG)
    log = world.open()
    fill(log)
    snapshots = len(names(world, ".window"))
    truncate(log, log.segments.bases[-2] + 1)
    knows_its_producers(log)
    assert 0 < len(names(world, ".window")) < snapshots


@pytest.mark.parametrize("damage", ["missing", "rotten", "of another snapshot"])
def test_a_window_in_doubt_is_looked_for_in_the_log(damage: str) -> None:
    world = World(config=CONFIG)
    log = world.open()
    fill(log, others=0)
    end = log.log_end_offset
    close(log)
    path = f"{DIRECTORY}/{end:020d}.window"
    content = world.disk.content(path)
    if damage == "missing":
        world.disk.unlink(path)
    elif damage == "rotten":
        world.disk.corrupt(path, len(content) // 2)
    else:
        other = names(world, ".window")[0]
        world.disk.replace(path, world.disk.content(f"{DIRECTORY}/{other}"))
    log = world.open(clean=True, recovery_point=end)
    assert append(log, idempotent(SENT - 2)).duplicate
    assert not world.disk.exists(path)


def states(batches: Iterable[int]) -> ProducerStates:
    log = World().open()
    for producer_id, count in enumerate(batches):
        for sequence in range(count):
            append(log, idempotent(sequence, producer_id=producer_id))
    return log.producers


def test_no_prefix_flip_or_other_snapshot_is_taken_for_a_window() -> None:
    producers = states([1, 2, 7])
    snapshot = encode_snapshot(producers)
    data = encode_windows(producers, snapshot)
    found = decode_windows(data, snapshot, "w")
    assert {each: len(state.batches) for each, state in found.items()} == {1: 2, 2: 5}
    assert all(found[each].batches == producers.states[each].batches for each in found)
    wrong = [data[:size] for size in range(len(data))]
    wrong += [bytes((*data[:at], data[at] ^ 1, *data[at + 1 :])) for at in range(len(data))]
    for each in wrong:
        with pytest.raises(StorageError):
            decode_windows(each, snapshot, "w")
    with pytest.raises(StorageError):
        decode_windows(data, encode_snapshot(states([1, 2, 6])), "w")
    assert len(wrong) == 2 * len(data)


def test_where_a_snapshot_says_all_there_is_no_window() -> None:
    world = World()
    log = world.open()
    append(log, idempotent(0))
    close(log)
    assert not names(world, ".window")
    assert not encode_windows(ProducerStates(), b"")


def test_windows_go_with_their_snapshots() -> None:
    world = World(config=TopicConfig(segment_bytes=400))
    for start in range(12):
        log = world.open(clean=start > 0, recovery_point=start)
        append(log, idempotent(start))
        close(log)
    # As where Kafka has removed a snapshot and left this behind.
    write_plainly(world.disk, f"{DIRECTORY}/{3:020d}.window", b"x")
    world.open(clean=True, recovery_point=12)
    kept = {each[:20] for each in names(world, ".snapshot")}
    assert {each[:20] for each in names(world, ".window")} <= kept
    assert f"{12:020d}.window" in names(world, ".window")
