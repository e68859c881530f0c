"""Addresses as people write them, and what a metadata response changes."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.unit.client.helpers import TOPIC_ID, known_cluster, metadata_response
from tidelog.client.metadata import ANY, CONTROLLER, Cluster, parse_bootstrap
from tidelog.errors import ConfigError
from tidelog.model import TopicPartition


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", " , ", ":9092", "a:b", "a:0", "a:70000", "[::1", "[]:1"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bootstrap(text)


def test_before_metadata_only_the_bootstrap_servers_can_be_asked() -> None:
    cluster = Cluster("a:1,b:2")
    assert [cluster.address(node) for node in cluster.candidates(ANY)] == [("a", 1), ("b", 2)]
    assert [cluster.address(node) for node in cluster.candidates(CONTROLLER)] == [
        ("a", 1),
        ("b", 2),
    ]
    assert cluster.candidates(1) == []


def test_known_brokers_come_before_the_bootstrap_servers() -> None:
    cluster, _ = known_cluster()
    assert cluster.candidates(ANY)[:3] == [1, 2, 3]
    assert cluster.address(cluster.candidates(ANY)[3]) == ("boot", 9092)
    assert cluster.candidates(CONTROLLER) == [1]
    assert cluster.candidates(2) == [2]


def test_a_leader_of_an_older_epoch_does_not_replace_a_newer_one() -> None:
    cluster, _ = known_cluster()
    cluster.apply(metadata_response(leaders={0: 2}, epoch=5))
    cluster.apply(metadata_response(leaders={0: 1}, epoch=4))
    assert cluster.leader("orders", 0) == 2
    cluster.apply(metadata_response(leaders={0: 3}, epoch=6))
    assert cluster.leader("orders", 0) == 3


def test_a_topic_created_again_begins_its_epochs_anew() -> None:
    cluster, _ = known_cluster()
    cluster.apply(metadata_response(leaders={0: 2}, epoch=5))
    again = metadata_response(leaders={0: 1}, epoch=0)
    again.topics[0].topic_id = UUID(int=78)
    cluster.apply(again)
    assert cluster.leader("orders", 0) == 1
    assert cluster.topic_id("orders") == UUID(int=78) != TOPIC_ID


def test_metadata_grows_old_and_can_be_forgotten() -> None:
    cluster, clock = known_cluster()
    assert cluster.is_fresh("orders")
    clock.now += 301
    assert not cluster.is_fresh("orders")
    cluster.apply(metadata_response())
    assert cluster.is_fresh("orders")
    cluster.forget(["orders", "never-heard-of"])
    assert not cluster.is_fresh("orders")
    assert cluster.leader("orders", 0) == 1


def test_a_topic_with_an_error_is_not_fresh_and_has_no_leader() -> None:
    cluster, _ = known_cluster()
    cluster.apply(metadata_response("gone", leaders={}, error=3))
    assert not cluster.is_fresh("gone")
    assert cluster.leader("gone", 0) == -1


def test_partitions_come_in_order() -> None:
    cluster, _ = known_cluster({2: 1, 0: 1, 1: 2})
    assert cluster.partitions_of(["orders", "other"]) == [
        TopicPartition("orders", number) for number in range(3)
    ]


def test_who_failed_last_is_asked_last() -> None:
    cluster, clock = known_cluster()
    cluster.note_failure(1)
    clock.now += 1
    cluster.note_failure(3)
    assert cluster.candidates(ANY)[0] == 2
    assert cluster.candidates(ANY)[-2:] == [1, 3]
