"""Which errors are tried again, for how long, and what is asked for in between."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.helpers import ManualClock, drive, known_cluster, metadata_response
from tidelog.client.admin import (
    NewTopic,
    create_topic,
    delete_records,
    delete_topic,
    describe_cluster,
)
from tidelog.client.connection import Call
from tidelog.client.faults import ConnectError, NetworkError, UnsupportedApiError
from tidelog.client.metadata import Cluster
from tidelog.client.offsets import EARLIEST, LATEST, Start, list_offsets, resolve_offsets
from tidelog.client.operation import (
    Action,
    Operation,
    Pause,
    UnknownPartitionError,
    UnknownTopicError,
    action_for,
    backoff_seconds,
    together,
    topic_metadata,
)
from tidelog.client.settings import ClientSettings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Action.REFRESH),
        (ErrorCode.NOT_CONTROLLER, Action.REFRESH),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Action.RETRY),
        (ErrorCode.MESSAGE_TOO_LARGE, Action.FAIL),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Action.FAIL),
        (12345, Action.FAIL),
    ],
)
def test_what_a_client_does_about_an_error(code: int, action: Action) -> None:
    assert action_for(code) is action


def test_the_pause_doubles_up_to_its_limit() -> None:
    cluster, _ = known_cluster()
    pauses = [backoff_seconds(cluster, attempt) for attempt in range(1, 8)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def created(code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="new", error_code=code)])


def test_a_retriable_error_is_tried_again_with_fresh_metadata() -> None:
    cluster, clock = known_cluster()
    script: list[Any] = [created(41), metadata_response(), NetworkError("b", "gone"),
                         metadata_response(), created()]  # fmt: skip
    asked: list[str] = []

    def answer(call: Call) -> Any:
        asked.append(call.api)
        return script.pop(0)

    made = drive(create_topic(cluster, NewTopic("new")), answer, clock)
    assert made.name == "new"
    assert asked == ["CreateTopics", "Metadata", "CreateTopics", "Metadata", "CreateTopics"]


def test_a_final_error_is_raised_at_once() -> None:
    cluster, clock = known_cluster()
    asked: list[Call] = []

    def answer(call: Call) -> Any:
        asked.append(call)
        return created(36)

    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        drive(create_topic(cluster, NewTopic("new")), answer, clock)
    assert len(asked) == 1


def test_retries_end_with_the_time_of_the_operation() -> None:
    cluster, clock = known_cluster()
    began = clock.now

    def answer(call: Call) -> Any:
        return NetworkError("b1:9092", "refused")

    with pytest.raises(NetworkError):
        drive(create_topic(cluster, NewTopic("new")), answer, clock)
    assert 55 < clock.now - began < 61


@pytest.mark.parametrize(("fail_fast", "seconds"), [(True, (3, 5)), (False, (50, 61))])
def test_with_fail_fast_brokers_that_close_every_connection_are_given_up_soon(
    fail_fast: bool, seconds: tuple[int, int]
) -> None:
    clock = ManualClock()
    cluster = Cluster("boot:9092", ClientSettings(fail_fast=fail_fast), clock)

    def answer(call: Call) -> Any:
        return NetworkError("boot:9092", "the broker closed the connection")

    with pytest.raises(NetworkError):
        drive(describe_cluster(cluster), answer, clock)
    assert seconds[0] <= clock.now - 1000.0 <= seconds[1]


@pytest.mark.parametrize("fail_fast", [True, False])
def test_with_fail_fast_a_broker_that_is_not_there_is_told_at_once(fail_fast: bool) -> None:
    clock = ManualClock()
    cluster = Cluster("boot:9092", ClientSettings(fail_fast=fail_fast), clock)
    with pytest.raises(ConnectError):
        drive(describe_cluster(cluster), lambda call: ConnectError("boot", "refused"), clock)
    assert (clock.now == 1000.0) is fail_fast


def test_an_unknown_topic_is_final_unless_it_may_be_created() -> None:
    cluster, clock = known_cluster()
    script = [metadata_response("new", {}, error=3), metadata_response("new", {}, error=5),
              metadata_response("new", {0: 1})]  # fmt: skip
    calls: list[Any] = []

    def answer(call: Call) -> Any:
        calls.append(call.message)
        return script[min(len(calls) - 1, 2)] if calls[-1].topics else metadata_response()

    with pytest.raises(UnknownTopicError, match="'new' does not exist"):
        drive(topic_metadata(cluster, ["new"]), answer, clock)
    assert not calls[0].allow_auto_topic_creation
    calls.clear()
    found = drive(topic_metadata(cluster, ["new"], create=True), answer, clock)
    assert found["new"].partitions[0].leader == 1
    assert calls[0].allow_auto_topic_creation


def test_deleting_a_topic_that_is_not_there_is_final() -> None:
    cluster, clock = known_cluster()
    response = DeleteTopicsResponse(responses=[DeletableTopicResult(name="x", error_code=3)])
    with pytest.raises(UnknownTopicError):
        drive(delete_topic(cluster, "x"), lambda call: response, clock)


def test_a_broker_without_describe_cluster_is_asked_for_metadata() -> None:
    cluster, clock = known_cluster()

    def answer(call: Call) -> Any:
        if call.api == "DescribeCluster":
            return UnsupportedApiError("too old")
        return metadata_response()

    described = drive(describe_cluster(cluster), answer, clock)
    assert described.cluster_id == "cluster"
    assert [broker.id for broker in described.brokers] == [1, 2, 3]


def offsets_answer(bounds: dict[int, tuple[int, int]], timed: dict[int, int]) -> Any:
    def answer(call: Call) -> Any:
        if call.api == "Metadata":
            return metadata_response(leaders={0: 1, 1: 2})
        parts = []
        for part in call.message.topics[0].partitions:  # type: ignore[attr-defined]
            low, high = bounds[part.partition_index]
            offset = {EARLIEST: low, LATEST: high}.get(
                part.timestamp, timed.get(part.partition_index, -1)
            )
            parts.append(
                ListOffsetsPartitionResponse(
                    partition_index=part.partition_index, offset=offset, timestamp=-1
                )
            )
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="orders", partitions=parts)]
        )

    return answer


def test_each_leader_is_asked_once_for_its_partitions() -> None:
    cluster, clock = known_cluster({0: 1, 1: 2})
    nodes: list[int] = []
    answer = offsets_answer({0: (0, 10), 1: (5, 7)}, {})

    def note(call: Call) -> Any:
        nodes.append(call.node)
        return answer(call)

    wanted = {TopicPartition("orders", 0): LATEST, TopicPartition("orders", 1): EARLIEST}
    found = drive(list_offsets(cluster, wanted), note, clock)
    assert {tp.partition: place.offset for tp, place in found.items()} == {0: 10, 1: 5}
    assert nodes == [1, 2]


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Start("start"), 5),
        (Start("end"), 50),
        (Start("offset", 17), 17),
        (Start("tail", 10), 40),
        (Start("tail", 1000), 5),
        (Start("time", 123), 30),
    ],
)
def test_places_become_offsets(start: Start, offset: int) -> None:
    cluster, clock = known_cluster({0: 1, 1: 2})
    answer = offsets_answer({0: (5, 50)}, {0: 30})
    tp = TopicPartition("orders", 0)
    assert drive(resolve_offsets(cluster, {tp: start}), answer, clock) == {tp: offset}


def test_a_time_after_the_last_record_is_the_end() -> None:
    cluster, clock = known_cluster({0: 1, 1: 2})
    tp = TopicPartition("orders", 0)
    answer = offsets_answer({0: (5, 50)}, {})
    assert drive(resolve_offsets(cluster, {tp: Start("time", 9)}), answer, clock) == {tp: 50}


def test_a_partition_that_does_not_exist_is_named() -> None:
    cluster, clock = known_cluster()
    with pytest.raises(UnknownPartitionError, match="no partition 9"):
        drive(
            list_offsets(cluster, {TopicPartition("orders", 9): LATEST}),
            lambda call: metadata_response(),
            clock,
        )


def test_trimming_tries_again_at_the_new_leader() -> None:
    cluster, clock = known_cluster()
    nodes: list[int] = []

    def answer(call: Call) -> Any:
        if call.api == "Metadata":
            return metadata_response(leaders={0: 2}, epoch=1)
        nodes.append(call.node)
        result = DeleteRecordsPartitionResult(
            partition_index=0, low_watermark=8, error_code=6 if call.node == 1 else 0
        )
        topic = DeleteRecordsTopicResult(name="orders", partitions=[result])
        return DeleteRecordsResponse(topics=[topic])

    tp = TopicPartition("orders", 0)
    assert drive(delete_records(cluster, {tp: 8}), answer, clock) == {tp: 8}
    assert nodes == [1, 2]


def test_several_operations_go_on_together_and_each_has_its_own_end() -> None:
    clock = ManualClock()
    cluster = Cluster("h:1", ClientSettings(), clock)
    log: list[str] = []

    def asks(name: str, calls: int, pause_s: float = 0.0) -> Operation[str]:
        for number in range(calls):
            (answer,) = yield [Call(0, name, number)]
            log.append(f"{name}{answer} at {clock.now - 1000:g}")
            if pause_s:
                yield Pause(pause_s)
        if name == "bad":
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return name

    steps = together(cluster, [asks("one", 2), asks("bad", 1), asks("slow", 2, 0.5)])
    found = drive(steps, lambda call: call.message, clock)
    assert [each.result for each in found] == ["one", None, "slow"]
    assert [getattr(each.error, "code", None) for each in found] == [
        None, ErrorCode.PRODUCER_FENCED, None,
    ]  # fmt: skip
    assert log == ["one0 at 0", "bad0 at 0", "slow0 at 0", "one1 at 0", "slow1 at 0.5"]
    assert clock.now == 1001.0
