"""What clients rely on in the messages and versions that are offered."""

from __future__ import annotations

import pytest

from tidelog.errors import ProtocolError
from tidelog.protocol.apis import APIS, api
from tidelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.schema import ELEMENTS_MAX, decode, encode


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("Produce", 3),
        ("Produce", 7),
        ("Fetch", 4),
        ("Fetch", 10),
        ("ListOffsets", 1),
        ("FindCoordinator", 0),
        ("InitProducerId", 0),
    ],
)
def test_the_exact_versions_that_librdkafka_looks_for_are_served(name: str, version: int) -> None:
    first, last = api(name).served
    assert first <= version <= last


def test_produce_is_advertised_from_zero_and_served_from_the_first_with_batches() -> None:
    assert api("Produce").advertised[0] == 0
    assert api("Produce").served[0] == 3


def test_only_produce_advertises_more_than_it_serves_and_one_serves_more() -> None:
    differ = [each.name for each in APIS if each.advertised != each.served]
    assert differ == ["Produce", "InitProducerId"]
    assert (api("InitProducerId").advertised, api("InitProducerId").offered) == ((0, 5), (0, 6))


def test_null_asks_metadata_for_all_topics_from_version_one_on() -> None:
    assert encode(MetadataRequest(topics=[]), 0) == b"\0\0\0\0"
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics"):
        encode(MetadataRequest(topics=None), 0)


def test_the_replica_id_of_a_fetch_moves_into_a_tagged_field() -> None:
    follower = FetchRequest(replica_state=ReplicaState(replica_id=2, replica_epoch=9))
    assert decode(FetchRequest, 15, encode(follower, 15))[0] == follower
    with pytest.raises(ProtocolError, match=r"FetchRequest\.replica_state .* version 14"):
        encode(follower, 14)
    with pytest.raises(ProtocolError, match=r"FetchRequest\.replica_id .* version 15"):
        encode(FetchRequest(replica_id=2), 15)


def test_the_current_leader_is_named_only_where_it_is_set() -> None:
    partition = PartitionProduceResponse(index=1, error_code=6)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[partition])]
    )
    silent = encode(response, 10)
    partition.current_leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=8)
    assert len(encode(response, 10)) == len(silent) + 2 + 9
    assert decode(ProduceResponse, 10, encode(response, 10))[0] == response


def test_topic_configs_of_a_created_topic_are_empty_rather_than_null() -> None:
    assert CreatableTopicResult().configs == []
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
    assert decode(CreateTopicsResponse, 5, encode(response, 5))[0] == response


def test_a_large_frame_of_empty_topics_is_refused_before_it_is_built() -> None:
    crowded = FetchRequest(topics=[FetchTopic()] * (ELEMENTS_MAX + 1))
    with pytest.raises(ProtocolError, match=r"FetchRequest\.topics"):
        decode(FetchRequest, 12, encode(crowded, 12))
