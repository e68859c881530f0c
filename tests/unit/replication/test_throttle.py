"""How fast replicas are copied that are not in sync, in windows of a second."""

from __future__ import annotations

from tidelog.config import BrokerConfig
from tidelog.config.topic_config import topic_config
from tidelog.replication.throttle import Quota, is_listed


def limited(rate: int, now: float = 0.0) -> Quota:
    quota = Quota()
    quota.limit_to(rate, now)
    return quota


def test_without_a_rate_nothing_is_counted() -> None:
    quota = Quota()
    quota.spend(1 << 40, 0.0)
    assert quota.left(0.0) is None
    quota.limit_to(10, 0.5)
    assert quota.left(0.5) == 10


def test_every_second_has_its_bytes_and_saves_none() -> None:
    quota = limited(100)
    quota.spend(30, 0.2)
    assert (quota.left(0.999), quota.window_ends_at) == (70, 1.0)
    assert quota.left(1.0) == 100
    assert quota.left(7.5) == 100
    assert quota.window_ends_at == 8.0


def test_what_is_taken_beyond_the_rate_is_owed() -> None:
    quota = limited(100)
    quota.spend(350, 0.1)
    assert [quota.left(now) for now in (0.9, 1.0, 2.0, 3.0, 4.0)] == [-250, -150, -50, 50, 100]


def test_a_window_that_is_over_is_settled_whatever_floats_make_of_it() -> None:
    for began in (0.1, 1000.3, 86_400.7, 123_456.789):
        quota = limited(100, began)
        quota.spend(100, began)
        assert quota.left(quota.window_ends_at) == 100


def test_another_rate_counts_what_this_window_has_had() -> None:
    quota = limited(100)
    quota.spend(100, 0.1)
    quota.limit_to(500, 0.2)
    assert quota.left(0.2) == 400
    quota.limit_to(0, 0.3)
    assert quota.left(0.3) == -100
    assert quota.left(9.0) == -100, "nothing is copied at a rate of zero"
    quota.limit_to(None, 9.5)
    assert quota.left(9.5) is None


def test_a_topic_lists_replicas_by_partition_and_broker() -> None:
    name = "follower.replication.throttled.replicas"

    def listed(text: str) -> frozenset[str]:
        return topic_config(BrokerConfig(), {name: text}).throttled_followers

    assert is_listed(listed("0:1,2:03"), 2, 3)
    assert not is_listed(listed("0:1,2:03"), 0, 3)
    assert not is_listed(listed(""), 0, 0)
    assert is_listed(listed("*"), 7, 8)
