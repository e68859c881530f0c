"""A partition: who may write and read it when, what is committed, who is told."""

from __future__ import annotations

import errno

import pytest

from tests.unit.replication.helpers import Place, in_seconds, read, state
from tidelog.errors import ErrorCode, KafkaError, PartitionBrokenError, StorageError
from tidelog.protocol.batches import Record, encode_batch, read_header
from tidelog.replication.partition import Partition
from tidelog.storage.admission import Admitted
from tidelog.storage.verification import Origin
from tidelog.testing.virtual_loop import virtual_time


@virtual_time
async def test_a_partition_is_whole_when_made_and_serves_when_it_leads() -> None:
    place = Place()
    partition = place.build(durability="fsync")
    assert partition.config.durability_fsync
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        place.put(partition, b"early")
    partition.follow_image(state(epoch=3), 1)
    partition.check_leader(3)
    for epoch, code in ((2, "FENCED_LEADER_EPOCH"), (4, "UNKNOWN_LEADER_EPOCH")):
        with pytest.raises(KafkaError, match=code):
            partition.check_leader(epoch)
    assert place.put(partition, b"now").base_offset == 0


@virtual_time
async def test_a_partition_begins_with_what_the_checkpoint_says_is_committed() -> None:
    place = Place()
    partition = place.lead()
    log = partition.log
    place.put(partition, b"a", b"b", b"c")
    log.checkpointed_watermark = 2
    room = place.space.room_for("orders")
    again = Partition(log, partition.config, place.disk_work, room, place.standing)
    assert (again.high_watermark, log.log_end_offset) == (2, 3)


@virtual_time
async def test_on_an_fsync_topic_nothing_is_shown_before_it_is_on_the_disk() -> None:
    place = Place()
    partition = place.lead(durability="fsync")
    result = place.put(partition, b"a", b"b")
    assert (partition.high_watermark, read(partition)) == (0, [])
    await partition.committed(result.last_offset, in_seconds(10))
    assert (partition.high_watermark, read(partition)) == (2, [b"a", b"b"])
    assert partition.log.flushed_offset == 2


@virtual_time
async def test_a_wait_for_what_is_committed_or_cannot_be_ends_at_once() -> None:
    place = Place()
    partition = place.lead()
    result = place.put(partition, b"a")
    await partition.committed(result.last_offset, in_seconds(10))
    partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted")
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        await partition.committed(5, in_seconds(10))


@virtual_time
async def test_a_stop_tells_those_who_wait_why() -> None:
    place = Place()
    partition = place.lead(durability="fsync")
    wait = partition.committed(place.put(partition, b"a").last_offset, in_seconds(10))
    partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic orders was deleted")
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: topic orders was deleted"):
        await wait


@virtual_time
async def test_a_failed_write_out_takes_the_partition_offline_for_good() -> None:
    place = Place()
    partition = place.lead(durability="fsync")
    place.disk.fail_next("fdatasync", errno.EIO)
    wait = partition.committed(place.put(partition, b"a").last_offset, in_seconds(10))
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        await wait
    assert "Input/output error" in str(partition.offline_reason)
    partition.follow_image(state(epoch=1), 1)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        place.put(partition, b"b")
    partition.flush()
    await partition.settle()
    assert partition.high_watermark == 0


@virtual_time
async def test_what_is_refused_over_and_over_does_not_pile_up_frames() -> None:
    """An error raised again keeps the frames of every time, and the requests that they hold."""
    partition = Place().lead()
    partition.go_offline(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk has failed"))
    errors = []
    for _ in range(3):
        with pytest.raises(KafkaError) as raised:
            partition.check_leader()
        errors.append(raised.value)
    depths = []
    for error in errors:
        frame, depth = error.__traceback__, 0
        while frame is not None:
            frame, depth = frame.tb_next, depth + 1
        depths.append(depth)
    assert len(set(depths)) == 1


@virtual_time
async def test_leader_epochs_do_not_fall_and_the_in_sync_are_replicas() -> None:
    for wrong, why in ((state(epoch=4), "do not fall"), (state(epoch=6, isr=(0, 1)), "a replica")):
        partition = Place().lead(epoch=5)
        with pytest.raises(PartitionBrokenError, match=why):
            partition.follow_image(wrong, 1)
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            partition.check_leader()


@virtual_time
async def test_metadata_that_is_older_than_the_log_is_refused() -> None:
    """Written in an epoch that falls, records would be cut off by the next recovery."""
    partition = Place().build()
    partition.log.epochs.assign(5, 0)
    with pytest.raises(StorageError, match="leader epoch 4, its log has 5"):
        partition.follow_image(state(epoch=4), 1)
    partition.follow_image(state(epoch=5), 1)


@virtual_time
async def test_t10_a_batch_that_opens_a_transaction_is_taken_only_with_what_was_verified() -> None:
    place = Place()
    partition = place.lead()

    def batch(sequence: int) -> Admitted:
        data = encode_batch(
            [Record(value=b"x")],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        return Admitted(memoryview(data), read_header(data))

    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        partition.append(batch(0), -1, 0)
    token = partition.log.producers.begin_verification(batch(0).header)
    # Another broker has led meanwhile: the question has to be asked again.
    partition.follow_image(state(epoch=partition.leader_epoch + 1), 1)
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        partition.append(batch(0), -1, 0, Origin(verification=token))
    token = partition.log.producers.begin_verification(batch(0).header)
    assert partition.append(batch(0), -1, 0, Origin(verification=token)).base_offset == 0
    assert partition.append(batch(1), -1, 0).base_offset == 1
