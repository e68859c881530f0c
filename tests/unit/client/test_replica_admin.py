"""Which brokers get the replicas that a command asks for."""

from __future__ import annotations

import pytest

from tidelog.client.metadata import BrokerNode, PartitionMetadata, TopicMetadata
from tidelog.client.replica_admin import Spread
from tidelog.errors import KafkaError
from tidelog.model import NO_TOPIC_ID


def brokers(*racks: str | None) -> list[BrokerNode]:
    return [BrokerNode(number, "host", 9092, rack) for number, rack in enumerate(racks)]


def topic(*replicas: list[int]) -> TopicMetadata:
    states = {
        number: PartitionMetadata(number, each[0], 0, each, each, [], 0)
        for number, each in enumerate(replicas)
    }
    return TopicMetadata("orders", NO_TOPIC_ID, 0, False, states)


def test_more_replicas_go_to_the_brokers_that_have_the_fewest() -> None:
    spread = Spread(brokers(None, None, None, None), [topic([0], [0], [1])])
    placed = [spread.with_factor([each], 2) for each in (0, 0, 1)]
    assert placed == [[0, 2], [0, 3], [1, 2]]


def test_a_replica_goes_to_another_rack_where_there_is_one() -> None:
    spread = Spread(brokers("a", "a", "b"), [topic([0], [2], [2], [2])])
    assert spread.with_factor([0], 2) == [0, 2]
    assert spread.with_factor([0], 3) == [0, 2, 1]


def test_fewer_replicas_keep_the_first_ones() -> None:
    assert Spread(brokers(None, None, None), []).with_factor([2, 0, 1], 1) == [2]


def test_a_broker_that_goes_is_replaced_and_used_for_nothing() -> None:
    spread = Spread(brokers(None, None, None, None), [topic([0, 1], [1, 2])])
    assert spread.without([0, 1], 1) == [0, 3]
    assert spread.without([1, 2], 1) == [2, 0]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(KafkaError, match="3 replicas need as many brokers; 2 are there"):
        Spread(brokers(None, None), []).with_factor([0], 3)
