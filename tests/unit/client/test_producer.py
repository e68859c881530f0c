"""When batches leave, and how they are split and retried."""

from __future__ import annotations

import pytest

from tests.unit.client.helpers import drive, known_cluster, metadata_response
from tests.unit.client.producing import new_core, response
from tidelog.client.batching import Batch, Delivery, Identity, ProducerRecord, split
from tidelog.client.faults import NetworkError, RequestTimeoutError
from tidelog.client.operation import UnknownPartitionError
from tidelog.client.partitioner import partition_for_key
from tidelog.client.producer import ProduceCall, init_producer_id
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec, TopicPartition
from tidelog.protocol.batches import Record, decode_records, read_header
from tidelog.protocol.messages.init_producer_id import InitProducerIdResponse


def batches_of(call: ProduceCall) -> list[tuple[int, list[bytes]]]:
    """The values in a request, by partition, as a broker would read them."""
    return [
        (part.index, [record.value or b"" for record in decode_records(part.records)])
        for topic in call.call.message.topic_data  # type: ignore[attr-defined]
        for part in topic.partition_data
    ]


def test_records_wait_for_linger_and_leave_together() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=10)
    for number in range(3):
        core.append(ProducerRecord("orders", b"%d" % number), clock.now)
    assert core.calls(clock.now) == []
    wakeup = core.next_wakeup(clock.now)
    assert wakeup == pytest.approx(clock.now + 0.01)
    [call] = core.calls(wakeup + 0.001)
    assert batches_of(call) == [(0, [b"0", b"1", b"2"])]
    assert call.call.node == 1


def test_a_batch_leaves_at_the_very_moment_for_which_it_asked_to_be_woken() -> None:
    # Where `created + linger - created` is less than `linger`, as it is for most numbers.
    for created in (1000.02586313347, 1.1, 12345.678):
        cluster, _ = known_cluster()
        core = new_core(cluster, linger_ms=5)
        core.append(ProducerRecord("orders", b"x"), created)
        wakeup = core.next_wakeup(created)
        assert wakeup is not None
        assert len(core.calls(wakeup)) == 1


def test_a_full_batch_does_not_wait() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=10_000, batch_bytes=200)
    core.append(ProducerRecord("orders", b"x" * 100), clock.now)
    assert not core.batch_filled
    core.append(ProducerRecord("orders", b"y" * 100), clock.now)
    assert core.batch_filled
    [call] = core.calls(clock.now)
    assert batches_of(call) == [(0, [b"x" * 100])]


def test_flush_does_not_wait_and_idle_tells_when_all_is_done() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=10_000)
    delivery = core.append(ProducerRecord("orders", b"x"), clock.now)
    core.flushing = True
    [call] = core.calls(clock.now)
    assert not core.idle
    core.finish(call, response({0: (0, 41)}), clock.now)
    assert core.idle
    assert delivery.done
    assert delivery.result() == 41
    assert core.buffered_bytes == 0


def test_keys_choose_the_partition_and_a_chosen_one_wins() -> None:
    cluster, clock = known_cluster({0: 1, 1: 2, 2: 3})
    core = new_core(cluster)
    keyed = core.append(ProducerRecord("orders", b"v", key=b"k"), clock.now)
    assert keyed.partition.partition == partition_for_key(b"k", 3)
    chosen = core.append(ProducerRecord("orders", b"v", key=b"k", partition=2), clock.now)
    assert chosen.partition == TopicPartition("orders", 2)
    with pytest.raises(UnknownPartitionError, match="no partition 3"):
        core.append(ProducerRecord("orders", b"v", partition=3), clock.now)


def test_one_request_per_leader_and_no_more_than_allowed_under_way() -> None:
    cluster, clock = known_cluster({0: 1, 1: 2, 2: 1})
    core = new_core(cluster, batch_bytes=120, linger_ms=0, in_flight_max=3, idempotent=False)
    for _ in range(5):
        for partition in range(3):
            core.append(ProducerRecord("orders", b"x" * 100, partition=partition), clock.now)
    calls = core.calls(clock.now)
    nodes = [call.call.node for call in calls]
    assert nodes.count(1) == nodes.count(2) == 3
    assert core.calls(clock.now) == []
    core.finish(calls[0], response({0: (0, 0), 2: (0, 0)}), clock.now)
    assert [call.call.node for call in core.calls(clock.now)] == [1]


def test_sequence_numbers_follow_each_other_across_batches() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, batch_bytes=150, linger_ms=0)
    for _ in range(6):
        core.append(ProducerRecord("orders", b"x" * 30), clock.now)
    [first] = core.calls(clock.now)
    core.finish(first, response({0: (0, 0)}), clock.now)
    headers = [
        read_header(call.call.message.topic_data[0].partition_data[0].records)  # type: ignore[attr-defined]
        for call in (first, *core.calls(clock.now))
    ]
    assert [header.base_sequence for header in headers] == [0, 1, 2, 3, 4, 5]
    assert {header.producer_id for header in headers} == {7}


def test_the_first_batch_to_a_leader_goes_alone_since_any_sequence_would_be_taken() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, batch_bytes=100, linger_ms=0)
    for value in (b"a", b"b", b"c"):
        core.append(ProducerRecord("orders", value * 90, partition=0), clock.now)
    [first] = core.calls(clock.now)
    core.finish(first, response({0: (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)}), clock.now)
    core.take_stale_topics()
    cluster.apply(metadata_response())
    clock.now += 1
    [again] = core.calls(clock.now)
    assert batches_of(again) == batches_of(first)
    core.finish(again, response({0: (0, 0)}), clock.now)
    assert [batches_of(call) for call in core.calls(clock.now)] == [
        [(0, [b"b" * 90])],
        [(0, [b"c" * 90])],
    ]


def test_without_idempotence_no_producer_id_is_asked_for() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, acks=1, linger_ms=0)
    core.identity = None
    core.append(ProducerRecord("orders", b"x"), clock.now)
    assert not core.needs_identity
    [call] = core.calls(clock.now)
    header = read_header(call.call.message.topic_data[0].partition_data[0].records)  # type: ignore[attr-defined]
    assert header.producer_id == header.base_sequence == -1


def test_with_acks_0_a_record_is_delivered_once_it_is_sent() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, acks=0, linger_ms=0)
    delivery = core.append(ProducerRecord("orders", b"x"), clock.now)
    [call] = core.calls(clock.now)
    assert not call.call.answered
    core.finish(call, None, clock.now)
    assert (delivery.done, delivery.offset, delivery.error) == (True, -1, None)


def test_the_codec_is_that_of_the_settings() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, codec=Codec.ZSTD, linger_ms=0)
    core.append(ProducerRecord("orders", b"x" * 500), clock.now)
    [call] = core.calls(clock.now)
    records = call.call.message.topic_data[0].partition_data[0].records  # type: ignore[attr-defined]
    assert read_header(records).codec is Codec.ZSTD
    assert decode_records(records)[0].value == b"x" * 500


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=0)
    deliveries = [core.append(ProducerRecord("orders", b"%d" % n), clock.now) for n in range(8)]
    stored: list[bytes] = []
    for _ in range(40):
        for call in core.calls(clock.now):
            [(_, values)] = batches_of(call)
            if len(values) > 2:
                core.finish(call, response({0: (10, -1)}), clock.now)
            else:
                core.finish(call, response({0: (0, len(stored))}), clock.now)
                stored += values
    assert stored == [b"%d" % n for n in range(8)]
    assert [delivery.result() for delivery in deliveries] == list(range(8))
    assert core.buffered_bytes == 0


def test_a_single_record_that_is_too_large_fails() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=0)
    delivery = core.append(ProducerRecord("orders", b"x" * 100_000), clock.now)
    [call] = core.calls(clock.now)
    core.finish(call, response({0: (10, -1)}), clock.now)
    assert isinstance(delivery.error, KafkaError)
    assert delivery.error.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError):
        delivery.result()


def test_records_that_are_not_delivered_in_time_are_given_up() -> None:
    cluster, clock = known_cluster({0: -1})
    core = new_core(cluster, linger_ms=0, delivery_timeout_ms=1000)
    delivery = core.append(ProducerRecord("orders", b"x"), clock.now)
    assert core.calls(clock.now) == []
    assert core.take_stale_topics() == {"orders"}
    assert core.calls(clock.now + 0.01) == []
    assert core.take_stale_topics() == set(), "no leader: metadata is asked for with pauses"
    assert core.calls(clock.now + 1.001) == []
    assert isinstance(delivery.error, RequestTimeoutError)
    assert core.idle


def test_a_partition_that_the_broker_leaves_out_fails() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=0)
    delivery = core.append(ProducerRecord("orders", b"x"), clock.now)
    [call] = core.calls(clock.now)
    core.finish(call, response({}), clock.now)
    assert isinstance(delivery.error, KafkaError)


def test_a_forgotten_producer_id_fails_a_batch_whose_fate_is_not_known() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, linger_ms=0)
    delivery = core.append(ProducerRecord("orders", b"x"), clock.now)
    [call] = core.calls(clock.now)
    core.finish(call, NetworkError("b1", "reset"), clock.now)
    clock.now += 1
    [call] = core.calls(clock.now)
    core.finish(call, response({0: (59, -1)}), clock.now)
    assert isinstance(delivery.error, KafkaError)
    assert delivery.error.code is ErrorCode.UNKNOWN_PRODUCER_ID


def test_the_buffer_has_a_limit_but_takes_any_first_record() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster, buffer_bytes=1000)
    assert core.has_room(5000)
    core.append(ProducerRecord("orders", b"x" * 800), clock.now)
    assert not core.has_room(200)
    assert core.has_room(40)


def test_a_topic_is_looked_up_before_its_first_record_and_renewed_in_passing() -> None:
    cluster, clock = known_cluster()
    core = new_core(cluster)
    assert core.ready_for("orders")
    assert core.take_stale_topics() == set()
    assert not core.ready_for("unheard-of")
    clock.now += 301
    assert core.ready_for("orders"), "old metadata holds nobody up"
    assert core.take_stale_topics() == {"orders", "unheard-of"}


def test_a_producer_id_is_asked_for_until_a_broker_has_one() -> None:
    cluster, clock = known_cluster()
    script = [InitProducerIdResponse(error_code=15), InitProducerIdResponse(producer_id=12)]
    identity = drive(
        init_producer_id(cluster),
        lambda call: script.pop(0) if call.api == "InitProducerId" else metadata_response(),
        clock,
    )
    assert identity == Identity(12, 0)


def test_halves_of_a_batch_keep_their_place() -> None:
    batch = Batch(TopicPartition("t", 0), (7,), 0.0, 1.0)
    batch.records = [Record(value=b"%d" % number) for number in range(4)]
    batch.stamp(Identity(1, 0), 0x7FFFFFFE)
    first, second = split(batch)
    assert batch.order < first.order < split(first)[1].order < second.order < (8,)
    assert (first.base_sequence, second.base_sequence) == (0x7FFFFFFE, 0)
    assert Delivery(batch, 3).batch is second
