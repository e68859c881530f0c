"""What must exist before `authorization_requests` are sent, created by an administrator."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any
from uuid import UUID

from tests.e2e.authorization_requests import (
    CONSUMERS,
    DOOMED,
    GROUP,
    OPEN_ID,
    TOPIC,
    TRANSACTIONAL_ID,
)
from tests.e2e.produce_requests import batch, produce
from tidelog.model import CoordinatorType
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

Request = tuple[str, int, object]
Steps = Generator[Request, Any, Any]
_TRIES = 600


def build(call: Callable[[str, int, object], Any]) -> dict[str, UUID]:
    """Do all steps one by one; the ids of the topics."""
    steps = world()
    request, last = next(steps), None
    while True:
        if request is last:
            time.sleep(0.05)  # The broker was not ready: ask it again.
        last, answer = request, call(*request)
        try:
            request = steps.send(answer)
        except StopIteration as end:
            topic_ids: dict[str, UUID] = end.value
            return topic_ids


def world() -> Generator[Request, Any, dict[str, UUID]]:
    """The requests, each to be sent when the one before is answered."""
    names = [TOPIC, DOOMED.format("id"), *(DOOMED.format(each) for each in range(1, 7))]
    # The records that are sent are old.
    kept = [CreatableTopicConfig("retention.ms", "-1")]
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=kept)
        for name in names
    ]
    created = yield "CreateTopics", 7, CreateTopicsRequest(topics=topics)
    yield from _until(
        ("Produce", 9, produce(TOPIC, batch([b"first"]))),
        lambda answer: answer.responses[0].partition_responses[0].error_code,
    )
    for key, kind in (
        (GROUP, CoordinatorType.GROUP),
        (TRANSACTIONAL_ID, CoordinatorType.TRANSACTION),
    ):
        yield from _until(("FindCoordinator", 3, FindCoordinatorRequest(key, kind)), _code)
    partitions = [OffsetCommitRequestPartition(0, 1)]
    commit = OffsetCommitRequest(
        GROUP, topics=[OffsetCommitRequestTopic(TOPIC, partitions=partitions)]
    )
    yield from _until(
        ("OffsetCommit", 9, commit), lambda answer: answer.topics[0].partitions[0].error_code
    )
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=CONSUMERS,
        member_id="member",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    yield from _until(("ConsumerGroupHeartbeat", 1, heartbeat), _code)
    for transactional_id in (TRANSACTIONAL_ID, OPEN_ID):
        init = InitProducerIdRequest(transactional_id, 600_000)
        began = yield from _until(("InitProducerId", 4, init), _code)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=OPEN_ID,
        v3_and_below_producer_id=began.producer_id,
        v3_and_below_producer_epoch=began.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [0])],
    )
    yield "AddPartitionsToTxn", 3, add
    return {each.name: each.topic_id for each in created.topics}


def _until(request: Request, code: Callable[[Any], int]) -> Steps:
    """Send a request until it succeeds; the answer."""
    for _ in range(_TRIES):
        answer = yield request
        if not code(answer):
            return answer
    raise AssertionError(answer)


def _code(answer: Any) -> int:
    return int(answer.error_code)
