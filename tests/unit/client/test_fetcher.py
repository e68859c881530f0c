"""What is fetched, what of it is shown, and what errors do to a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.client.helpers import TOPIC_ID, known_cluster, metadata_response
from tidelog.client.faults import NetworkError, UnreadableBatchError
from tidelog.client.fetcher import FetchCall, FetcherCore
from tidelog.client.operation import UnknownTopicError
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec, Isolation, TopicPartition
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    Record,
    encode_batch,
    encode_control_batch,
    read_header,
    seal,
    stamp,
)
from tidelog.protocol.compression import compress
from tidelog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

TP = TopicPartition("orders", 0)


def batch(base_offset: int, count: int, **options: Any) -> bytes:
    records = [Record(value=b"%d" % (base_offset + n), timestamp=1) for n in range(count)]
    return bytes(encode_batch(records, base_offset=base_offset, **options))


def response(records: bytes | None, partition: int = 0, **fields: Any) -> FetchResponse:
    view = None if records is None else memoryview(records)
    data = PartitionData(partition_index=partition, records=view, **fields)
    topic = FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[data])
    return FetchResponse(responses=[topic])


def new_core(leaders: dict[int, int] | None = None, **options: Any) -> tuple[FetcherCore, Any]:
    cluster, clock = known_cluster(leaders)
    return FetcherCore(ConsumerSettings(**options), cluster), clock


def fetched_offsets(call: FetchCall) -> dict[int, int]:
    return {
        part.partition: part.fetch_offset
        for topic in call.call.message.topics  # type: ignore[attr-defined]
        for part in topic.partitions
    }


def values(core: FetcherCore) -> list[bytes | None]:
    found: list[bytes | None] = []
    while (taken := core.take()) is not None:
        found += [record.value for record in taken[1]]
    return found


def test_a_fetch_goes_on_where_the_last_one_ended() -> None:
    core, clock = new_core()
    core.assign({TP: 5})
    [call] = core.calls(clock.now)
    assert fetched_offsets(call) == {0: 5}
    core.finish(call, response(batch(5, 3) + batch(8, 2), high_watermark=10), clock.now)
    [call] = core.calls(clock.now)
    assert fetched_offsets(call) == {0: 10}
    assert values(core) == [b"5", b"6", b"7", b"8", b"9"]
    assert core.positions[TP].position == 10
    assert core.positions[TP].high_watermark == 10


@pytest.mark.parametrize("codec", list(Codec))
def test_records_before_the_offset_asked_for_are_not_shown(codec: Codec) -> None:
    core, clock = new_core()
    core.assign({TP: 6})
    [call] = core.calls(clock.now)
    core.finish(call, response(batch(4, 5, codec=codec)), clock.now)
    assert values(core) == [b"6", b"7", b"8"]


def test_a_batch_cut_off_at_the_end_is_fetched_again() -> None:
    core, clock = new_core()
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    core.finish(call, response(batch(0, 2) + batch(2, 5)[:40]), clock.now)
    assert values(core) == [b"0", b"1"]
    [call] = core.calls(clock.now)
    assert fetched_offsets(call) == {0: 2}


def test_offsets_may_have_gaps() -> None:
    core, clock = new_core()
    core.assign({TP: 3})
    [call] = core.calls(clock.now)
    core.finish(call, response(batch(10, 1) + batch(20, 1)), clock.now)
    assert values(core) == [b"10", b"20"]
    assert core.positions[TP].position == 21


def test_one_fetch_per_leader_and_two_chunks_at_most() -> None:
    core, clock = new_core({0: 1, 1: 2, 2: 1})
    core.assign({TopicPartition("orders", number): 0 for number in range(3)})
    calls = core.calls(clock.now)
    assert {call.call.node: set(fetched_offsets(call)) for call in calls} == {1: {0, 2}, 2: {1}}
    assert core.calls(clock.now) == []
    second = next(call for call in calls if call.call.node == 2)
    core.finish(second, response(batch(0, 1), partition=1), clock.now)
    [again] = core.calls(clock.now)
    core.finish(again, response(batch(1, 1), partition=1), clock.now)
    assert core.calls(clock.now) == [], "two chunks are waiting to be read"
    assert values(core) == [b"0", b"1"]
    assert len(core.calls(clock.now)) == 1


def test_a_fetch_waits_for_data_only_while_there_is_nothing_to_read() -> None:
    core, clock = new_core(max_wait_ms=500)
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    assert call.call.message.max_wait_ms == 500  # type: ignore[attr-defined]
    core.finish(call, response(batch(0, 1)), clock.now)
    [call] = core.calls(clock.now)
    assert call.call.message.max_wait_ms == 0  # type: ignore[attr-defined]


def test_a_damaged_batch_is_an_error_that_names_its_offset() -> None:
    core, clock = new_core()
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    core.finish(call, response(bytes(damaged)), clock.now)
    with pytest.raises(KafkaError, match="offsets 0 to 1 cannot be read: its checksum is wrong"):
        core.take()
    assert core.calls(clock.now + 1000) == []


def unreadable(base_offset: int, count: int) -> bytes:
    """A batch with the right checksum around a gzip stream that holds no records."""
    good = batch(base_offset, count, codec=Codec.GZIP)
    made = bytearray(good[:61]) + compress(Codec.GZIP, b"no records at all")
    header = read_header(good)
    header.batch_length = len(made) - 12
    seal(made, 0, header)
    return bytes(made)


def wrong_checksum(base_offset: int, count: int) -> bytes:
    made = bytearray(batch(base_offset, count))
    made[-1] ^= 1
    return bytes(made)


@pytest.mark.parametrize("bad", [unreadable, wrong_checksum])
def test_what_comes_before_a_batch_that_cannot_be_read_is_shown_and_seek_goes_past_it(
    bad: Callable[[int, int], bytes],
) -> None:
    """Records before it, in the same answer, were never shown."""
    core, clock = new_core()
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    core.finish(call, response(batch(0, 3) + bad(3, 2) + batch(5, 1)), clock.now)
    assert core.has_output
    taken = core.take()
    assert taken is not None
    assert [record.value for record in taken[1]] == [b"0", b"1", b"2"]
    assert core.positions[TP].position == 3, "what was shown, and no more, may be committed"
    with pytest.raises(UnreadableBatchError, match="offsets 3 to 4 cannot be read") as caught:
        core.take()
    assert caught.value.partition == TP
    assert core.calls(clock.now + 1000) == []
    core.seek(TP, caught.value.next_offset)
    [call] = core.calls(clock.now)
    assert fetched_offsets(call) == {0: 5}
    core.finish(call, response(batch(5, 1)), clock.now)
    assert values(core) == [b"5"]


def test_a_lost_connection_is_tried_again_with_fresh_metadata() -> None:
    core, clock = new_core()
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    core.finish(call, NetworkError("b1:9092", "reset"), clock.now)
    assert core.take_stale_topics() == {"orders"}
    assert core.trouble is not None
    assert core.calls(clock.now) == []
    wakeup = core.next_wakeup(clock.now)
    assert wakeup is not None
    core.cluster.apply(metadata_response(leaders={0: 3}, epoch=1))
    [call] = core.calls(wakeup)
    assert call.call.node == 3
    core.finish(call, response(None), wakeup)
    assert core.trouble is None


@pytest.mark.parametrize("code", [6, 74, 75, 100, 103])
def test_a_leader_that_is_none_any_more_makes_metadata_stale(code: int) -> None:
    core, clock = new_core()
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    core.finish(call, response(None, error_code=code), clock.now)
    assert core.take_stale_topics() == {"orders"}
    assert len(core.calls(clock.now + 1)) == 1


def test_a_final_error_is_raised_after_what_came_before_it() -> None:
    core, clock = new_core()
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    core.finish(call, response(batch(0, 1)), clock.now)
    [call] = core.calls(clock.now)
    core.finish(call, response(None, error_code=29), clock.now)
    assert core.has_output
    assert core.take() is not None
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        core.take()
    assert core.take() is None


def test_an_offset_out_of_range_is_an_error_or_a_reset_as_set() -> None:
    strict, clock = new_core()
    strict.assign({TP: 99})
    [call] = strict.calls(clock.now)
    strict.finish(call, response(None, error_code=1), clock.now)
    with pytest.raises(KafkaError) as caught:
        strict.take()
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    lenient, clock = new_core(out_of_range="earliest")
    lenient.assign({TP: 99})
    [call] = lenient.calls(clock.now)
    lenient.finish(call, response(None, error_code=1), clock.now)
    assert lenient.take_out_of_range() == [TP]
    lenient.seek(TP, 4)
    [call] = lenient.calls(clock.now)
    assert fetched_offsets(call) == {0: 4}


def test_an_answer_to_a_fetch_from_before_a_seek_is_dropped() -> None:
    core, clock = new_core()
    core.assign({TP: 0})
    [call] = core.calls(clock.now)
    core.seek(TP, 50)
    core.finish(call, response(batch(0, 5)), clock.now)
    assert values(core) == []
    [call] = core.calls(clock.now)
    assert fetched_offsets(call) == {0: 50}


def test_a_topic_that_is_gone_for_good_is_an_error_and_one_that_comes_is_not() -> None:
    core, clock = new_core()
    core.assign({TP: 0})
    core.cluster.apply(metadata_response(leaders={}, error=3))
    searches = 0
    while not core.has_output:
        clock.now += 1
        core.calls(clock.now)
        searches += 1
    assert searches > 3
    with pytest.raises(UnknownTopicError):
        core.take()


def test_read_committed_hides_aborted_records_and_no_one_sees_markers() -> None:
    def log() -> bytes:
        return (
            batch(0, 2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
            + batch(2, 2, producer_id=6, producer_epoch=0, base_sequence=0, transactional=True)
            + bytes(marker(4, 5, commit=False))
            + batch(5, 1, producer_id=5, producer_epoch=0, base_sequence=2, transactional=True)
            + bytes(marker(6, 6, commit=True))
            + bytes(marker(7, 5, commit=True))
            + batch(8, 1)
        )

    shown: dict[Isolation, list[bytes | None]] = {}
    for isolation in Isolation:
        core, clock = new_core(isolation=isolation)
        core.assign({TP: 0})
        [call] = core.calls(clock.now)
        assert call.call.message.isolation_level == isolation  # type: ignore[attr-defined]
        aborted = [AbortedTransaction(producer_id=5, first_offset=0)]
        core.finish(call, response(log(), aborted_transactions=aborted), clock.now)
        shown[isolation] = values(core)
        assert core.positions[TP].position == 9
    assert shown[Isolation.READ_UNCOMMITTED] == [b"0", b"1", b"2", b"3", b"5", b"8"]
    assert shown[Isolation.READ_COMMITTED] == [b"2", b"3", b"5", b"8"]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    kind = CONTROL_COMMIT if commit else CONTROL_ABORT
    made = encode_control_batch(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    stamp(made, 0, offset, 0)
    return made


def test_partitions_take_turns() -> None:
    other = TopicPartition("orders", 1)
    core, clock = new_core({0: 1, 1: 2})
    core.assign({TP: 0, other: 0})
    for _ in range(2):
        for call in core.calls(clock.now):
            partition = next(iter(fetched_offsets(call)))
            offset = fetched_offsets(call)[partition]
            core.finish(call, response(batch(offset, 1), partition=partition), clock.now)
    order = []
    while (chunk := core.take_chunk()) is not None:
        order.append(chunk.partition.partition)
    assert order == [0, 1, 0, 1]
