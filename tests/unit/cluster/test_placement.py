"""Replicas are spread as Kafka spreads them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.placement import Start, alternated, place, random_start, start_after
from tidelog.testing.virtual_loop import SeededRandom


def test_the_worked_example_of_kafkas_documentation() -> None:
    """Ten partitions, three replicas, five brokers, from broker 0 with no shift."""
    placed = place(range(5), range(10), 3, Start(0, 0))
    assert placed == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


@given(
    brokers=st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True).map(sorted),
    rounds=st.integers(1, 5),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_leaders_are_spread_evenly_and_replicas_differ(
    brokers: list[int], rounds: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    start = random_start(brokers, SeededRandom(seed))
    placed = place(brokers, range(rounds * len(brokers)), factor, start)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {rounds}
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)


@pytest.mark.parametrize(("preferred", "first"), [(1, 0), (3, 1), (4, 2), (9, 0)])
def test_further_partitions_go_on_where_the_topic_began(preferred: int, first: int) -> None:
    assert start_after([1, 3, 5], preferred) == Start(first, first)
    assert place([1, 3, 5], range(3, 5), 1, Start(first, first))[0] == ([1, 3, 5][first],)


def test_the_worked_example_of_racks_in_kafkas_documentation() -> None:
    """Six brokers in three racks: neighbours in the round are from different racks."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternated(racks, racks) == [0, 3, 1, 5, 4, 2]
    placed = place(range(6), range(6), 3, Start(0, 0), racks)
    assert placed == [(0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3)]


@given(
    racks=st.dictionaries(st.integers(0, 50), st.sampled_from("abcd"), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_no_rack_has_two_replicas_before_every_rack_has_one(
    racks: dict[int, str], seed: int, data: st.DataObject
) -> None:
    brokers = sorted(racks)
    factor = data.draw(st.integers(1, len(brokers)))
    start = random_start(brokers, SeededRandom(seed))
    placed = place(brokers, range(2 * len(brokers)), factor, start, racks)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {2}
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = {racks[each] for each in replicas}
        assert len(used) == min(factor, len(set(racks.values())))
