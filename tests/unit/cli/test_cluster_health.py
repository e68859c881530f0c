"""What `tidelog cluster health` makes of what a cluster says of itself."""

from __future__ import annotations

from tidelog.cli.cluster_health import View, find_problems
from tidelog.client.metadata import PartitionMetadata, TopicMetadata
from tidelog.model import NO_TOPIC_ID


def topic(leader: int, replicas: list[int], isr: list[int]) -> TopicMetadata:
    state = PartitionMetadata(0, leader, 1, replicas, isr, [], 0)
    return TopicMetadata("orders", NO_TOPIC_ID, 0, False, {0: state})


def said(view: View) -> list[str]:
    return [problem.what for problem in find_problems(view)]


def test_a_cluster_in_sync_is_well() -> None:
    assert said(View({0, 1, 2}, 1, [topic(0, [0, 1, 2], [2, 1, 0])], {})) == []


def test_a_replica_that_is_behind_is_named_until_it_has_caught_up() -> None:
    view = View({0, 1, 2}, 1, [topic(0, [0, 1, 2], [0, 1])], {"orders": 2})
    assert said(view) == ["1 partition (orders-0) not in sync on every replica"]


def test_a_lost_broker_below_the_minimum_is_two_problems() -> None:
    view = View({0}, 0, [topic(0, [0, 1], [0])], {"orders": 2})
    assert said(view) == [
        "1 partition (orders-0) cannot be written with acks=all: fewer replicas are in sync than"
        " min.insync.replicas",
        "broker 1 is not there",
    ]


def test_nobody_leads_and_nobody_controls() -> None:
    view = View({0}, -1, [topic(-1, [1], [])], {"orders": 1})
    assert said(view) == [
        "no broker is the controller: nothing can be created or changed",
        "1 partition (orders-0) cannot be read or written: no replica that may lead is there",
        "broker 1 is not there",
    ]


def test_partitions_whose_brokers_are_all_there_and_none_may_lead_are_lost_or_put_back() -> None:
    (problem,) = find_problems(View({0, 1}, 0, [topic(-1, [0, 1], [])], {"orders": 1}))
    assert "every broker that holds them is there" in problem.what
    assert "tidelog cluster elect TOPIC --unclean" in problem.help


def test_a_broker_that_does_not_catch_up_is_named() -> None:
    (problem,) = find_problems(View({0, 1, 2}, 0, [topic(0, [0, 1, 2], [0, 2])], {"orders": 2}))
    assert "wait until broker 1 has caught up" in problem.help


def test_a_replica_that_its_own_broker_cannot_serve_is_a_problem_though_it_leads() -> None:
    view = View({0, 1}, 0, [topic(1, [1], [1])], {}, {1: ["orders-0"]})
    (problem,) = find_problems(view)
    assert problem.what.startswith("1 partition (orders-0) offline on broker 1")
    assert "tidelog cluster decommission 1 --wait" in problem.help


def test_a_broker_that_is_away_is_missed_though_it_holds_nothing() -> None:
    (problem,) = find_problems(View({0, 1}, 0, [], {}, away=[2]))
    assert problem.what == "broker 2 is not there"
    assert problem.help.endswith("tidelog cluster decommission 2")
