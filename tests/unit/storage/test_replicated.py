"""A follower's log: what it takes of its leader, what it refuses, and how it goes over segments."""

from __future__ import annotations

import errno
import random
from types import ModuleType

import pytest

from tests.unit.kernels.forms import BATCH_WALK_FORMS
from tests.unit.storage.helpers import (
    DIRECTORY,
    World,
    append,
    batch,
    close,
    flush,
    marker,
    offsets,
    stored_batches,
    transactional,
)
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.model import Codec
from tidelog.protocol.batches import LOG_OVERHEAD, Record, encode_batch
from tidelog.storage import replicated
from tidelog.storage.log import Log
from tidelog.storage.replicated import Continuation, check_replicated
from tidelog.storage.verification import COORDINATOR
from tidelog.testing.disk import PowerCut

LIVES = 25


@pytest.fixture(params=BATCH_WALK_FORMS, autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(replicated, "kernel", BATCH_WALK_FORMS[request.param])
    return BATCH_WALK_FORMS[request.param]


def chunk(*batches: bytes | memoryview | bytearray) -> memoryview:
    return memoryview(b"".join(bytes(each) for each in batches))


def at(offset: int, epoch: int = 3, *, count: int = 1, size: int = 20) -> memoryview:
    return batch(count, size=size, base_offset=offset, leader_epoch=epoch).buffer


def a_leaders_life(chance: random.Random, log: Log) -> None:
    """Producers, transactions, gaps and epochs, as a leader may have them."""
    sequences = dict.fromkeys(range(4), 0)
    epoch = 0
    for _ in range(chance.choice((3, 30, 120))):
        epoch += chance.random() < 0.05
        producer = chance.choice((None, *sequences))
        if producer is None:
            codec = chance.choice((Codec.NONE, Codec.NONE, Codec.GZIP))
            append(log, batch(chance.randint(1, 4), codec=codec), epoch=epoch)
        elif chance.random() < 0.2 and sequences[producer]:
            append_marker_in(log, chance.randrange(2), producer, epoch)
        else:
            item = transactional(sequences[producer], producer_id=producer)
            append(log, item, epoch=epoch)
            sequences[producer] += 1


def append_marker_in(log: Log, kind: int, producer: int, epoch: int) -> None:
    log.append(marker(kind, producer_id=producer), epoch, 0, COORDINATOR)


def known_of(log: Log) -> object:
    """What a log has learned of its batches."""
    aborted = log.segments.aborted_between(0, log.log_end_offset)
    states = {
        key: (state.epoch, state.batches, state.transaction_first_offset, state.coordinator_epoch)
        for key, state in log.producers.states.items()
    }
    return log.epochs.entries, states, aborted, log.producers.first_unstable_offset


def test_a_follower_knows_what_its_leader_knows_whatever_the_chunks() -> None:
    lives = 0
    for seed in range(LIVES):
        chance = random.Random(seed)
        leader = World(config=TopicConfig(segment_bytes=1 << 20)).open()
        a_leaders_life(chance, leader)
        world = World(config=TopicConfig(segment_bytes=chance.choice((300, 900, 1 << 20))))
        follower = world.open()
        data = b"".join(stored_batches(leader))
        place = 0
        while place < len(data):
            size = chance.choice((70, 500, 4000, len(data)))
            before = follower.log_end_offset
            checked = check_replicated(
                memoryview(data)[place : place + size], follower.continuation(99)
            )
            follower.append_checked(checked)
            place += len(checked.records)
            if not checked.count:
                # Not one whole batch in so few bytes.
                assert follower.log_end_offset == before
                whole = check_replicated(memoryview(data)[place:], follower.continuation(99))
                follower.append_checked(whole)
                place += len(whole.records)
        assert b"".join(stored_batches(follower)) == data
        assert known_of(follower) == known_of(leader)
        limit = follower.config.segment_bytes
        assert all(each.size_bytes <= max(limit, 400) for each in follower.segments)
        close(follower)
        opened = world.open(clean=True, recovery_point=follower.log_end_offset)
        assert b"".join(stored_batches(opened)) == data
        assert opened.epochs.entries == leader.epochs.entries
        lives += 1
    assert lives == LIVES


def test_a_chunk_larger_than_a_segment_is_split_at_batches() -> None:
    world = World(config=TopicConfig(segment_bytes=400))
    log = world.open()
    data = chunk(*(at(number) for number in range(40)))
    assert len(data) > 5 * 400
    log.append_as_follower(data, 3)
    assert len(log.segments) > 5
    assert all(segment.size_bytes <= 400 for segment in log.segments)
    assert offsets(log) == list(range(40))
    flush(log)
    again = world.reopen_after(world.disk.crash(), recovery_point=log.flushed_offset)
    assert offsets(again) == list(range(40))


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    """The leader's topic may have had larger segments when it took the batch."""
    log = World(config=TopicConfig(segment_bytes=200)).open()
    log.append_as_follower(chunk(at(0), at(1, size=500), at(2)), 3)
    assert offsets(log) == [0, 1, 2]
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_more_batches_than_one_call_of_the_kernel_takes_rows_for() -> None:
    log = World(config=TopicConfig(segment_bytes=1 << 20)).open()
    log.append_as_follower(chunk(*(at(2 * number) for number in range(700))), 3)
    assert offsets(log) == list(range(0, 1400, 2))


def test_trap_13_an_epoch_above_the_leaders_is_refused() -> None:
    log = World().open()
    log.append_as_follower(at(0, 3), 3)
    for records in (at(1, 4), chunk(at(1, 3), at(2, 4))):
        with pytest.raises(KafkaError, match="newer than that of the leader") as caught:
            log.append_as_follower(records, 3)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.epochs.entries) == (1, [(3, 0)])


def test_trap_13_an_epoch_below_the_last_one_is_refused() -> None:
    log = World().open()
    log.append_as_follower(at(0, 3), 3)
    for records in (at(1, 2), chunk(at(1, 3), at(2, 2))):
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(records, 3)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.epochs.entries) == (1, [(3, 0)])


def test_offsets_that_fall_or_repeat_are_refused() -> None:
    log = World().open()
    log.append_as_follower(at(5), 3)
    for records in (at(5), at(0), chunk(at(6), at(6)), chunk(at(9), at(8))):
        with pytest.raises(KafkaError, match="below the one expected"):
            log.append_as_follower(records, 3)
    assert log.log_end_offset == 6
    log.append_as_follower(at(6), 3)


def test_damage_of_any_byte_never_gets_other_records_into_the_log() -> None:
    """What the checksum does not cover is judged by itself, or harmless: base offset and epoch."""
    data = bytes(chunk(at(0, count=2), at(2, count=3), at(5)))
    good = [bytes(each) for each in (at(0, count=2), at(2, count=3), at(5))]
    refused = 0
    for position in range(len(data)):
        for mask in (1, 0x80):
            damaged = bytearray(data)
            damaged[position] ^= mask
            log = World().open()
            try:
                log.append_as_follower(memoryview(damaged), 3)
            except KafkaError as error:
                assert error.code is ErrorCode.CORRUPT_MESSAGE
                assert log.log_end_offset == 0
                refused += 1
                continue
            for stored, sent in zip(stored_batches(log), good, strict=False):
                assert stored[LOG_OVERHEAD + 4 :] == sent[LOG_OVERHEAD + 4 :]
    assert refused > len(data)


def test_batches_that_were_checked_for_another_end_are_refused() -> None:
    """The check runs on a thread; the log may be another when it comes back."""
    log = World().open()
    checked = check_replicated(chunk(at(0), at(1)), log.continuation(3))
    log.append_checked(checked)
    with pytest.raises(StorageError, match="ends at 2"):
        log.append_checked(checked)
    early = check_replicated(at(2), log.continuation(3))
    log.epochs.assign(4, 2)
    with pytest.raises(StorageError, match="epoch 4"):
        log.append_checked(early)
    assert offsets(log) == [0, 1]


def test_a_control_batch_that_cannot_be_read_is_refused_before_it_is_written() -> None:
    world = World()
    log = world.open()
    unreadable = encode_batch(
        [Record(key=b"0", value=b"")], producer_id=4, producer_epoch=0, control=True
    )
    with pytest.raises(KafkaError, match="control batch") as caught:
        log.append_as_follower(memoryview(unreadable), 3)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert world.disk.content(f"{DIRECTORY}/{0:020d}.log") == b""


def test_nothing_of_an_empty_or_partial_chunk() -> None:
    log = World().open()
    for records in (b"", b"\0" * 60, bytes(at(0))[:-1]):
        assert check_replicated(memoryview(records), Continuation(0, -1, 3)).count == 0
        log.append_as_follower(memoryview(records), 3)
    assert log.log_end_offset == 0


def test_s10_a_full_disk_keeps_the_batches_that_fit_and_goes_on_later() -> None:
    world = World(config=TopicConfig(segment_bytes=400))
    log = world.open()
    data = chunk(*(at(number) for number in range(40)))
    world.disk.capacity_bytes = world.disk.used_bytes() + 1500
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(data, 3)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.offline
    end = log.log_end_offset
    assert 0 < end < 40
    assert offsets(log) == list(range(end))
    world.disk.capacity_bytes = None
    log.append_as_follower(chunk(*(at(number) for number in range(end, 40))), 3)
    assert offsets(log) == list(range(40))


def test_a_disk_that_fails_under_a_followers_append_takes_the_log_offline() -> None:
    world = World()
    log = world.open()
    log.append_as_follower(at(0), 3)
    world.disk.fail_next("pwritev", errno.EIO)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(at(1), 3)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    with pytest.raises(KafkaError, match="is offline"):
        log.append_as_follower(at(1), 3)


def test_a_crash_at_every_call_leaves_whole_batches_of_the_leader() -> None:
    data = chunk(*(at(number) for number in range(12)))
    crashes = 0
    while True:
        world = World(config=TopicConfig(segment_bytes=400))
        log = world.open()
        world.disk.fail_at(world.disk.calls + crashes + 1, "crash")
        try:
            log.append_as_follower(data, 3)
            flush(log)
            close(log)
        except PowerCut:
            pass
        if not world.disk.down:
            break
        crashes += 1
        known = log.flushed_offset
        again = world.reopen_after(world.disk.crash(), recovery_point=known)
        found = offsets(again)
        assert found == list(range(len(found)))
        assert len(found) >= known
    assert crashes > 20


def test_without_descriptors_a_followers_append_is_refused_and_works_later() -> None:
    world = World(descriptors=4)
    log = world.open()
    log.append_as_follower(chunk(*(at(number) for number in range(200))), 3)
    close(log)
    log = world.open(clean=True, recovery_point=200)
    log.segments.active.close()
    world.disk.descriptors_max = 0
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(at(200), 3)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.offline) == (200, False)
    world.disk.descriptors_max = None
    log.append_as_follower(at(200), 3)
    assert log.log_end_offset == 201
