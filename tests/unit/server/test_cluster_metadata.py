"""What a client of a cluster is told of its brokers and leaders."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.cluster_answers import Asking, broker, image, state, topic
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

ASKED = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)


def addresses(answer: Any) -> dict[int, tuple[str, int]]:
    named = "node_id" if hasattr(answer.brokers[0], "node_id") else "broker_id"
    return {getattr(each, named): (each.host, each.port) for each in answer.brokers}


def partition(asking: Asking, version: int = 12) -> Any:
    return asking.ask("Metadata", version, ASKED).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("name", "version", "request_"),
    [("Metadata", 12, ASKED), ("DescribeCluster", 0, DescribeClusterRequest())],
)
def test_brokers_of_other_machines_are_told_as_they_registered(
    name: str, version: int, request_: object
) -> None:
    asking = Asking(image([broker(0), broker(1), broker(2)]))
    assert addresses(asking.ask(name, version, request_)) == {
        0: ("10.0.0.1", 9092),
        1: ("b1", 9093),
        2: ("b2", 9094),
    }


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.1", "machine.example"])
def test_brokers_beside_ours_are_told_at_the_host_that_the_client_connected_to(host: str) -> None:
    brokers = [broker(each, "127.0.0.1") for each in (0, 1, 2)]
    asking = Asking(image(brokers), local=(host, 9092))
    told = addresses(asking.ask("Metadata", 12, ASKED))
    assert told == {0: (host, 9092), 1: (host, 9093), 2: (host, 9094)}


def test_a_broker_that_is_not_in_the_image_still_knows_its_neighbours() -> None:
    asking = Asking(image([broker(1, "127.0.0.1")], absent=[broker(0, "127.0.0.1")]))
    assert addresses(asking.ask("Metadata", 12, ASKED)) == {1: ("10.0.0.1", 9093)}


def test_advertised_addresses_are_told_as_they_are() -> None:
    brokers = [broker(each, "public.example") for each in (0, 1)]
    asking = Asking(image(brokers), advertised=("public.example", 9092))
    told = addresses(asking.ask("Metadata", 12, ASKED))
    assert told == {0: ("public.example", 9092), 1: ("public.example", 9093)}


def test_a_broker_without_the_clients_listener_is_not_told() -> None:
    asking = Asking(
        image([broker(0), broker(1, listener="OTHER")], [topic(state(1, (0, 1)))]),
        listener="PLAINTEXT",
    )
    assert list(addresses(asking.ask("Metadata", 12, ASKED))) == [0]
    assert list(addresses(asking.ask("DescribeCluster", 0, DescribeClusterRequest()))) == [0]
    told = partition(asking)
    assert told.error_code == ErrorCode.LISTENER_NOT_FOUND
    assert (told.leader_id, told.offline_replicas) == (-1, [1])
    assert partition(asking, 5).error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_dead_broker_is_an_offline_replica_and_leads_nothing() -> None:
    cluster = image([broker(0), broker(2)], [topic(state(1))], absent=[broker(1)])
    told = partition(Asking(cluster))
    assert told.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (told.leader_id, told.leader_epoch) == (-1, 5)
    assert (told.replica_nodes, told.isr_nodes, told.offline_replicas) == (
        [0, 1, 2],
        [0, 1, 2],
        [1],
    )


def test_a_partition_without_a_leader_is_told_with_all_its_replicas() -> None:
    told = partition(Asking(image([broker(0), broker(1)], [topic(state(-1, (0, 1), ()))])))
    assert told.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (told.leader_id, told.replica_nodes, told.offline_replicas) == (-1, [0, 1], [])


def test_a_follower_that_is_down_is_no_error_of_the_partition() -> None:
    cluster = image([broker(0), broker(1)], [topic(state(0, (0, 1, 2), (0, 1)))])
    told = partition(Asking(cluster))
    assert (told.error_code, told.leader_id, told.offline_replicas) == (0, 0, [2])


def test_the_oldest_clients_are_not_told_of_replicas_that_are_down() -> None:
    cluster = image([broker(0), broker(1)], [topic(state(0, (0, 1, 2), (0, 1, 2)))])
    told = partition(Asking(cluster), 0)
    assert told.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (told.leader_id, told.replica_nodes, told.isr_nodes) == (0, [0, 1], [0, 1])


def test_a_replica_that_failed_here_is_offline() -> None:
    asking = Asking(image([broker(0), broker(1)], [topic(state(1, (0, 1)))]))
    asking._tools.answers.tell_offline([("t", 0)])  # type: ignore[list-item]
    assert partition(asking).offline_replicas == [0]


def test_a_controller_that_is_gone_is_not_named() -> None:
    for controller_id, told in ((1, 1), (2, -1), (-1, -1)):
        asking = Asking(
            image([broker(0), broker(1)], absent=[broker(2)], controller_id=controller_id)
        )
        assert asking.ask("Metadata", 12, ASKED).controller_id == told
        answer = asking.ask("DescribeCluster", 0, DescribeClusterRequest())
        assert answer.controller_id == told


def test_a_controller_that_has_left_its_office_is_not_named() -> None:
    asking = Asking(image([broker(0), broker(1)], controller_id=1), is_controlled=lambda: False)
    assert asking.ask("DescribeCluster", 0, DescribeClusterRequest()).controller_id == -1
