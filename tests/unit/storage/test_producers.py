"""Idempotent and transactional producers, as the log judges and remembers them."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    append,
    append_marker,
    batch,
    close,
    flush,
    idempotent,
    marker,
    stored_batches,
    transactional,
)
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.protocol.batches import CONTROL_ABORT, CONTROL_COMMIT
from tidelog.storage.admission import Admitted
from tidelog.storage.log import Log
from tidelog.storage.producers import ProducerStates
from tidelog.storage.snapshots import decode_snapshot, encode_snapshot
from tidelog.storage.verification import CLIENT, COORDINATOR, Origin
from tidelog.testing.disk import CrashMode

DAY_MS = 86_400_000


def refused(log: Log, item: Admitted, origin: Origin = CLIENT) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.append(item, 0, NOW_MS, origin)
    assert log.log_end_offset == end
    return caught.value.code


def test_t1_a_retry_gets_the_offsets_of_the_first_try() -> None:
    log = World().open()
    first = append(log, idempotent(0, count=3))
    append(log, idempotent(3))
    again = append(log, idempotent(0, count=3))
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 2, True)
    assert not first.duplicate
    assert log.log_end_offset == 4


def test_t2_the_window_holds_exactly_five_batches() -> None:
    log = World().open()
    for sequence in range(6):
        append(log, idempotent(sequence))
    for sequence in range(1, 6):
        result = append(log, idempotent(sequence))
        assert (result.duplicate, result.base_offset) == (True, sequence)
    assert refused(log, idempotent(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_with_other_bounds_is_no_repetition() -> None:
    log = World().open()
    append(log, idempotent(0, count=3))
    assert refused(log, idempotent(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, idempotent(2, count=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequences_is_out_of_order() -> None:
    log = World().open()
    append(log, idempotent(0))
    assert refused(log, idempotent(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not append(log, idempotent(1)).duplicate


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    log = World().open()
    assert append(log, idempotent(41)).base_offset == 0
    assert append(log, idempotent(42)).base_offset == 1


def test_t8_a_new_epoch_begins_with_sequence_zero() -> None:
    log = World().open()
    append(log, idempotent(0, count=4))
    assert refused(log, idempotent(4, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(0, epoch=1))
    assert refused(log, idempotent(4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not append(log, idempotent(1, epoch=1)).duplicate


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    log = World().open()
    last = 2**31 - 1
    append(log, idempotent(last - 1, count=4))
    assert append(log, idempotent(2)).base_offset == 4
    assert append(log, idempotent(last - 1, count=4)).duplicate
    append(log, idempotent(3, count=1))
    other = World().open()
    append(other, idempotent(last))
    assert append(other, idempotent(0)).base_offset == 1


def test_producers_do_not_disturb_each_other() -> None:
    log = World().open()
    append(log, idempotent(0, producer_id=1))
    append(log, idempotent(0, producer_id=2))
    append(log, idempotent(1, producer_id=1))
    assert append(log, idempotent(0, producer_id=2)).base_offset == 1


def test_t4_batches_behind_a_refused_one_get_the_same_error() -> None:
    """The first batch finds the disk full; those in flight behind it must not seem out of order."""
    world = World()
    log = world.open()
    for start in (0, 5):
        if start:
            append(log, idempotent(start - 1))
        world.disk.capacity_bytes = world.disk.used_bytes()
        assert refused(log, idempotent(start)) is ErrorCode.KAFKA_STORAGE_ERROR
        world.disk.capacity_bytes = None
        assert refused(log, idempotent(start + 1)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refused(log, idempotent(start + 2)) is ErrorCode.KAFKA_STORAGE_ERROR
        for sequence in range(start, start + 4):
            assert not append(log, idempotent(sequence)).duplicate
    assert refused(log, idempotent(20)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_t7_expired_producers_are_forgotten_and_open_transactions_are_not() -> None:
    world = World(config=TopicConfig(producer_id_expiration_ms=1000))
    log = world.open()
    append(log, idempotent(0, producer_id=1))
    append(log, transactional(0, producer_id=2))
    world.run_for(999)
    log.apply_retention(world.clock.now_ms, 0)
    assert len(log.producers.states) == 2
    world.run_for(1)
    log.apply_retention(world.clock.now_ms, 0)
    assert list(log.producers.states) == [2]
    assert append(log, idempotent(5, producer_id=1)).base_offset == 2


def test_t7_old_events_do_not_make_a_live_producer_old() -> None:
    """Kafka takes the events' time for the producer's; here its last append counts."""
    world = World(config=TopicConfig(producer_id_expiration_ms=DAY_MS))
    log = world.open()
    for sequence in range(3):
        item = batch(
            timestamp=NOW_MS - 900 * DAY_MS, producer_id=1, producer_epoch=0, base_sequence=sequence
        )
        log.append(item, 0, world.clock.now_ms)
        world.run_for(DAY_MS - 1)
        log.apply_retention(world.clock.now_ms, 0)
        assert list(log.producers.states) == [1]
    world.run_for(1)
    log.apply_retention(world.clock.now_ms, 0)
    assert not log.producers.states


@pytest.mark.parametrize("jump_ms", [9 * DAY_MS, -9 * DAY_MS, 3650 * DAY_MS, 1000 - NOW_MS])
def test_t7_a_jump_of_the_clock_forgets_no_producer_and_keeps_none_for_ever(jump_ms: int) -> None:
    world = World(config=TopicConfig(producer_id_expiration_ms=DAY_MS))
    log = world.open()
    append(log, idempotent(0, producer_id=1))
    world.run_for(DAY_MS // 2)
    world.clock.now_ms += jump_ms
    log.append(idempotent(0, producer_id=2), 0, world.clock.now_ms)
    log.apply_retention(world.clock.now_ms, 0)
    assert list(log.producers.states) == [1, 2]
    world.run_for(DAY_MS // 2)
    log.apply_retention(world.clock.now_ms, 0)
    assert list(log.producers.states) == [2]
    world.clock.now_ms -= jump_ms
    log.apply_retention(world.clock.now_ms, 0)
    assert list(log.producers.states) == [2]
    world.run_for(DAY_MS // 2)
    log.apply_retention(world.clock.now_ms, 0)
    assert not log.producers.states


def test_t7_after_a_stop_a_producer_is_as_old_as_it_was_and_after_a_crash_no_older() -> None:
    world = World(config=TopicConfig(producer_id_expiration_ms=DAY_MS))
    log = world.open()
    append(log, idempotent(0, producer_id=1))
    world.run_for(DAY_MS // 2)
    close(log)
    # The broker is down for nine days, which do not count.
    world.clock.now_ms += 9 * DAY_MS
    log = world.open(clean=True)
    log.append(idempotent(0, producer_id=2), 0, world.clock.now_ms)
    world.run_for(DAY_MS // 2 - 1)
    log.apply_retention(world.clock.now_ms, 0)
    assert list(log.producers.states) == [1, 2]
    world.run_for(1)
    log.apply_retention(world.clock.now_ms, 0)
    assert list(log.producers.states) == [2]
    log.append(idempotent(5, producer_id=1), 0, world.clock.now_ms)
    flush(log)
    log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL))
    # In the log are the events' times only: both begin again.
    world.run_for(DAY_MS - 1)
    log.apply_retention(world.clock.now_ms, 0)
    assert sorted(log.producers.states) == [1, 2]
    world.run_for(1)
    log.apply_retention(world.clock.now_ms, 0)
    assert not log.producers.states


@pytest.mark.parametrize("mode", list(CrashMode))
def test_t3_retries_are_known_after_a_crash(mode: CrashMode) -> None:
    world = World()
    log = world.open()
    for sequence in range(5):
        append(log, idempotent(sequence))
    flush(log)
    log = world.reopen_after(world.disk.crash(mode))
    for sequence in range(5):
        assert append(log, idempotent(sequence)).duplicate
    assert append(log, idempotent(5)).base_offset == 5


def test_t3_retries_are_known_after_a_clean_restart() -> None:
    """A snapshot holds one batch of a producer; the others are found in the log's last stretch."""
    world = World(config=TopicConfig(segment_bytes=1 << 20, index_interval_bytes=64))
    log = world.open()
    for number in range(200):
        append(log, batch(size=100))
        append(log, idempotent(number))
    close(log)
    log = world.open(clean=True, recovery_point=400)
    for sequence in range(195, 200):
        assert append(log, idempotent(sequence)).base_offset == 2 * sequence + 1
    assert append(log, idempotent(200)).base_offset == 400


def test_t3_state_survives_when_its_batches_are_gone() -> None:
    world = World(config=TopicConfig(segment_bytes=300, retention_bytes=0, file_delete_delay_ms=0))
    log = world.open()
    append(log, idempotent(0))
    for _ in range(4):
        append(log, batch(size=100))
    log.apply_retention(NOW_MS, log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset
    flush(log)
    log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL), recovery_point=5, log_start=5)
    assert refused(log, idempotent(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(1)).base_offset == 5


def test_s9_a_snapshot_newer_than_the_log_is_not_used() -> None:
    world = World()
    log = world.open()
    append(log, idempotent(0))
    flush(log)
    append(log, idempotent(1))
    close(log)
    snapshot = world.disk.content(f"{DIRECTORY}/{2:020d}.snapshot")
    segment = f"{DIRECTORY}/{0:020d}.log"
    content = world.disk.content(segment)
    world.disk.replace(segment, content[: len(content) // 2])
    assert snapshot
    log = world.open()
    assert not world.disk.exists(f"{DIRECTORY}/{2:020d}.snapshot")
    result = append(log, idempotent(1))
    assert (result.duplicate, result.base_offset) == (False, 1)


def test_s9_an_older_snapshot_is_brought_up_to_the_log() -> None:
    world = World(config=TopicConfig(segment_bytes=200))
    log = world.open()
    for sequence in range(6):
        append(log, idempotent(sequence))
    assert len(log.segments) > 2
    stored = stored_batches(log)
    close(log)
    for name in world.disk.list_dir(DIRECTORY):
        if name.endswith(".snapshot") and not name.startswith(f"{2:020d}"):
            world.disk.unlink(f"{DIRECTORY}/{name}")
    log = world.open(clean=True, recovery_point=6)
    assert append(log, idempotent(5)).duplicate
    assert append(log, idempotent(6)).base_offset == 6
    assert stored_batches(log)[:-1] == stored


def test_snapshots_of_earlier_stops_do_not_pile_up() -> None:
    world = World(config=TopicConfig(segment_bytes=400))
    for start in range(12):
        log = world.open(clean=start > 0, recovery_point=start)
        append(log, idempotent(start))
        close(log)
    log = world.open(clean=True, recovery_point=12)
    names = [name for name in world.disk.list_dir(DIRECTORY) if name.endswith(".snapshot")]
    kept = {f"{base:020d}.snapshot" for base in [*log.segments.bases[1:], 12]}
    assert set(names) == kept


def test_s4_a_damaged_snapshot_is_passed_over() -> None:
    for position in range(0, 60, 7):
        world = World(config=TopicConfig(segment_bytes=200))
        log = world.open()
        for sequence in range(6):
            append(log, idempotent(sequence))
        close(log)
        world.disk.corrupt(f"{DIRECTORY}/{6:020d}.snapshot", position % 56)
        log = world.open(clean=True, recovery_point=6)
        assert append(log, idempotent(5)).duplicate
        assert append(log, idempotent(6)).base_offset == 6


def test_the_snapshot_has_kafkas_bytes() -> None:
    log = World().open()
    append(log, idempotent(3, count=4, producer_id=77, epoch=2))
    append(log, transactional(0, producer_id=78))
    data = encode_snapshot(log.producers)
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 77, 2, 6, 3, 3, NOW_MS, -1, -1)
    body += struct.pack(">qhiqiqiq", 78, 0, 0, 4, 0, NOW_MS, -1, 4)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    states = decode_snapshot(data, "x")
    assert [(state.producer_id, state.transaction_first_offset) for state in states] == [
        (77, -1),
        (78, 4),
    ]
    (kept,) = states[0].batches
    assert (kept.first_sequence, kept.last_sequence, kept.first_offset) == (3, 6, 0)


def test_no_prefix_or_flip_of_a_snapshot_is_taken() -> None:
    log = World().open()
    append(log, idempotent(0))
    data = encode_snapshot(log.producers)
    cases = [data[:size] for size in range(len(data))]
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            cases.append(bytes(flipped))
    assert len(cases) > 400
    for case in cases:
        with pytest.raises(StorageError):
            decode_snapshot(case, "x")


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    log = World(config=TopicConfig(segment_bytes=400)).open()
    append(log, batch(5))
    assert log.first_unstable_offset is None
    append(log, transactional(0, producer_id=1))
    append(log, transactional(0, producer_id=2))
    append(log, batch(5))
    held = log.first_unstable_offset
    assert held is not None
    assert held.offset == 5
    assert held == log.locate(5)
    append_marker(log, marker(CONTROL_COMMIT, producer_id=1))
    # Decided for readers only once the marker itself is below the high watermark.
    assert log.first_unstable_offset == held
    log.producers.high_watermark_moved(12)
    assert log.first_unstable_offset == held
    log.producers.high_watermark_moved(13)
    unstable = log.first_unstable_offset
    assert unstable is not None
    assert unstable.offset == 6
    append_marker(log, marker(CONTROL_ABORT, producer_id=2))
    log.producers.high_watermark_moved(log.log_end_offset)
    assert log.first_unstable_offset is None
    assert log.segments.aborted_transactions(0, log.log_end_offset) == [(2, 6)]
    assert log.segments.aborted_transactions(0, 6) == []


def test_t18_the_aborted_index_has_kafkas_bytes_and_is_rebuilt() -> None:
    world = World()
    log = world.open()
    append(log, transactional(0, producer_id=9, count=2))
    append_marker(log, marker(CONTROL_ABORT, producer_id=9))
    append(log, transactional(2, producer_id=9))
    append_marker(log, marker(CONTROL_COMMIT, producer_id=9))
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    assert world.disk.content(path) == struct.pack(">hqqqq", 0, 9, 0, 2, 3)
    for damage in (b"", b"\0" * 34, b"\xff" * 34, world.disk.content(path) * 2):
        world.disk.replace(path, damage)
        log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
        assert log.segments.aborted_transactions(0, 5) == [(9, 0)]


def test_t13_a_late_marker_is_refused_by_its_epoch() -> None:
    log = World().open()
    append(log, transactional(0))
    late = marker(CONTROL_COMMIT, epoch=0)
    origin = Origin(from_client=False, transaction_version=2)
    assert refused(log, late, origin) is ErrorCode.INVALID_PRODUCER_EPOCH
    log.append(marker(CONTROL_COMMIT, epoch=1), 0, NOW_MS, origin)
    # A marker that is sent again after its transaction has ended is harmless.
    log.append(marker(CONTROL_COMMIT, epoch=1), 0, NOW_MS, origin)
    assert refused(log, transactional(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, idempotent(0, epoch=1))


def test_t15_a_deposed_coordinator_is_refused() -> None:
    producers = ProducerStates()
    world = World()
    log = world.open()
    append(log, transactional(0))
    append_marker(log, marker(CONTROL_COMMIT))
    log.producers.states[7].coordinator_epoch = 5
    with pytest.raises(KafkaError) as caught:
        append_marker(log, marker(CONTROL_COMMIT))
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producers.first_unstable_offset == -1


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    log = World().open()
    append(log, transactional(0))
    assert refused(log, idempotent(1)) is ErrorCode.INVALID_TXN_STATE


def test_open_transactions_survive_a_restart() -> None:
    for clean in (True, False):
        world = World(config=TopicConfig(segment_bytes=300))
        log = world.open()
        append(log, batch(3))
        append(log, transactional(0))
        for _ in range(5):
            append(log, batch(2))
        if clean:
            close(log)
        else:
            world.disk = world.disk.crash(CrashMode.KEEP_ALL)
            world.restart()
        log = world.open(clean=clean, recovery_point=14)
        held = log.first_unstable_offset
        assert held is not None
        assert held.offset == 3
        assert held == log.locate(3)


def test_coordinators_append_without_sequences() -> None:
    log = World().open()
    for _ in range(3):
        item = batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        log.append(item, 0, NOW_MS, COORDINATOR)
    assert log.log_end_offset == 3
