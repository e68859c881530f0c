"""Answers about replicas and leaders, as three brokers of Apache Kafka give them.

`tests/e2e/test_cluster_answers_agreement.py` compares many more, with Kafka running.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tests.unit.server.cluster_answers import Asking, broker, image, state, topic
from tidelog.cluster.commands import Command, ElectLeader
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.testing.virtual_loop import virtual_time

BROKERS = [broker(0), broker(1)]
LED = topic(state(0), state(1, partition=1), name="led")
LONE = topic(state(-1, (2,), ()), name="lone")


def asking() -> Asking:
    async def submit_all(commands: Sequence[Command], *_: object) -> list[KafkaError]:
        assert all(isinstance(each, ElectLeader) for each in commands)
        return [KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE) for _ in commands]

    known = image(BROKERS, [LED, LONE], absent=[broker(2)])
    return Asking(known, submitter=SimpleNamespace(submit_all=submit_all))


def test_that_nobody_leads_is_no_error_of_a_described_partition() -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("lone")])
    (told,) = asking().ask("DescribeTopicPartitions", 0, request).topics
    (partition,) = told.partitions
    assert (partition.error_code, partition.leader_id) == (0, -1)
    assert partition.offline_replicas == [2]


@pytest.mark.parametrize(
    ("named", "cursor", "codes"),
    [
        (["led"], Cursor("led", 1), [0]),
        ([], Cursor("gone", 3), [0, 0]),
        (["led"], Cursor("gone", 0), [ErrorCode.INVALID_REQUEST]),
        (["led"], Cursor("lone", 0), [ErrorCode.INVALID_REQUEST]),
        (["led", "lone"], Cursor("led", -1), [ErrorCode.INVALID_REQUEST] * 2),
    ],
)
def test_a_cursor_is_in_one_of_the_topics_that_are_named(
    named: list[str], cursor: Cursor, codes: list[int]
) -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest(each) for each in named], cursor=cursor)
    answer = asking().ask("DescribeTopicPartitions", 0, request)
    assert [each.error_code for each in answer.topics] == codes


def test_what_may_be_done_is_told_of_a_topic_that_does_not_exist() -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("unknown"), TopicRequest("led")])
    told = asking().ask("DescribeTopicPartitions", 0, request).topics
    assert len({each.topic_authorized_operations for each in told}) == 1


@virtual_time
async def test_an_election_answers_for_every_topic_that_was_asked_for() -> None:
    named = [TopicPartitions("led", []), TopicPartitions("lone", [0])]
    answer = await asking().call("ElectLeaders", 2, ElectLeadersRequest(1, named))
    told = {
        each.topic: [part.partition_id for part in each.partition_result]
        for each in answer.replica_election_results
    }
    assert told == {"led": [], "lone": [0]}
    answer = await asking().call("ElectLeaders", 2, ElectLeadersRequest(1, None))
    assert {each.topic for each in answer.replica_election_results} == {"led", "lone"}


@virtual_time
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_one_feature_that_cannot_be_set_refuses_all(version: int) -> None:
    async def answer(*updates: FeatureUpdateKey) -> tuple[int, list[str]]:
        request = UpdateFeaturesRequest(feature_updates=list(updates))
        told = await asking().call("UpdateFeatures", version, request)
        return told.error_code, [each.feature for each in told.results or ()]

    kept = FeatureUpdateKey("group.version", 1)
    assert await answer(kept) == (0, [] if version == 2 else ["group.version"])
    refused = (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert await answer(kept, FeatureUpdateKey("metadata.version", 99)) == refused
    assert await answer(FeatureUpdateKey("no.such", 1)) == refused
    if version:
        assert await answer(FeatureUpdateKey("group.version", 1, upgrade_type=7)) == refused
