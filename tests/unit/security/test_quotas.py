"""Client quotas by numbers worked out by hand, and against models."""

from __future__ import annotations

import random

import pytest

from tidelog.security.quota_entities import (
    CONNECTION_CREATION_RATE,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from tidelog.security.quotas import Applied, QuotaTable, Rate, TokenBucket, Windows

KIND = PRODUCER_BYTE_RATE
WINDOWS = Windows(samples=11, window_ms=1000)
# The order of Kafka's documentation: user, client id; "*" is the default, "" is none.
PRECEDENCE = [
    ("alice", "app"), ("alice", "*"), ("alice", ""), ("*", "app"), ("*", "*"), ("*", ""),
    ("", "app"), ("", "*"),
]  # fmt: skip


def entity(user: str, client_id: str) -> QuotaEntity:
    pairs = (("client-id", client_id), ("user", user))
    return tuple((kind, None if name == "*" else name) for kind, name in pairs if name)


def test_the_most_specific_quota_of_all_counts() -> None:
    for place in range(len(PRECEDENCE)):
        quotas = {entity(*each): {KIND: float(rank)} for rank, each in enumerate(PRECEDENCE)}
        for better in PRECEDENCE[:place]:
            del quotas[entity(*better)]
        found = QuotaTable(quotas).find(KIND, "alice", "app")
        assert found is not None and found.limit == place


def test_who_shares_a_quota() -> None:
    def sharers(user: str, client_id: str) -> tuple[str, str]:
        found = QuotaTable({entity(user, client_id): {KIND: 1.0}}).find(KIND, "alice", "app")
        assert found is not None
        return found.sharers

    assert sharers("alice", "app") == sharers("*", "*") == sharers("alice", "*") == ("alice", "app")
    # All clients of a user have one quota together, and so have all users of a client id.
    assert sharers("alice", "") == sharers("*", "") == ("alice", "")
    assert sharers("", "app") == sharers("", "*") == ("", "app")


def test_a_quota_of_another_kind_limits_nothing() -> None:
    table = QuotaTable({entity("alice", ""): {"consumer_byte_rate": 1.0}})
    assert not table.has(KIND) and table.find(KIND, "alice", "app") is None


def test_a_client_without_an_id_has_the_quotas_of_users_alone() -> None:
    table = QuotaTable({entity("", "*"): {KIND: 1.0}, entity("*", "*"): {KIND: 2.0}})
    assert table.find(KIND, "alice", "") is None
    assert table.find(KIND, "alice", "x") == Applied(2.0, ("alice", "x"))


def test_an_address_has_its_own_rate_of_connections_or_the_default() -> None:
    kind = CONNECTION_CREATION_RATE
    table = QuotaTable({(("ip", None),): {kind: 5.0}, (("ip", "10.0.0.1"),): {kind: 9.0}})
    assert table.connection_rate("10.0.0.1") == 9.0 and table.connection_rate("10.0.0.2") == 5.0
    assert QuotaTable({}).connection_rate("10.0.0.1") is None


def test_precedence_agrees_with_a_search_of_all_levels() -> None:
    chance, cases = random.Random(7), 0
    names = ["", "a", "b", "*"]
    for _ in range(500):
        levels = {(chance.choice(names), chance.choice(names)) for _ in range(5)} - {("", "")}
        quotas = {entity(*level): {KIND: chance.random()} for level in levels}
        table = QuotaTable(quotas)
        for user in ("a", "b", "c"):
            for client_id in ("a", "b", "c"):
                order = [
                    (user, client_id), (user, "*"), (user, ""), ("*", client_id), ("*", "*"),
                    ("*", ""), ("", client_id), ("", "*"),
                ]  # fmt: skip
                expected = next(
                    (quotas[entity(*each)][KIND] for each in order if each in levels), 0
                )
                found = table.find(KIND, user, client_id)
                assert (found.limit if found else 0) == expected
                cases += 1
    assert cases == 4_500


# -- rates ----------------------------------------------------------------------------------------


def test_a_spike_waits_as_long_as_kafka_says() -> None:
    rate, now = Rate(WINDOWS), 0
    # 400 bytes in each of ten seconds are within 500 a second.
    for _ in range(10):
        rate.record(400, now)
        assert rate.throttle_ms(500, now) == 0
        now += 1000
    # 6,300 bytes in 10.5 seconds are 600 a second: (600 - 500) / 500 * 10.5 s.
    now += 500
    rate.record(2300, now)
    assert rate.measure(now) == (600.0, 10_500)
    assert rate.throttle_ms(500, now) == 2100


def test_when_the_time_is_up_the_rate_is_back_at_the_limit() -> None:
    rate = Rate(WINDOWS)
    for second in range(11):
        rate.record(500, second * 1000)
    rate.record(1_000, 10_500)
    # 6,500 bytes in 10.5 seconds.
    assert rate.throttle_ms(500, 10_500) == 2_500
    # Three windows are past by then: 5,000 bytes in 10 seconds are left.
    assert rate.measure(13_000) == (500.0, 10_000)
    assert rate.throttle_ms(500, 13_000) == 0


def test_a_first_burst_may_use_all_windows_but_one() -> None:
    rate = Rate(WINDOWS)
    rate.record(5_000, 0)
    assert rate.throttle_ms(500, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(500, 0) == 2


def test_windows_in_which_nothing_happened_are_forgotten() -> None:
    rate = Rate(WINDOWS)
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(500, 10_999) > 0
    assert rate.measure(11_000) == (0.0, 10_000)


def test_what_is_taken_back_counts_no_more() -> None:
    rate = Rate(WINDOWS)
    rate.record(4_000, 0)
    rate.record(9_000, 10)
    rate.record(-9_000, 10)
    assert rate.measure(10) == pytest.approx((4_000 / 10.01, 10_010))


def test_a_limit_of_nothing_waits_for_as_long_as_there_is_a_number() -> None:
    rate, bucket = Rate(WINDOWS), TokenBucket(WINDOWS)
    rate.record(1, 0)
    bucket.take(1, 0, 0)
    assert rate.throttle_ms(0, 0) == bucket.throttle_ms(0, 0) == 2**31 - 1


def test_a_greedy_client_that_waits_as_it_is_told_gets_its_quota() -> None:
    chance, runs = random.Random(3), 0
    for run in range(9):
        limit = [1_000.0, 64_000.0, 1e8][run % 3]
        # Of requests with more than a second's worth, some more gets through: Kafka's windows
        # are that coarse.
        largest = int(limit * [0.01, 0.3, 1][run // 3])
        rate, now, sent, counted = Rate(WINDOWS), 0, 0, 0
        # The first windows are a burst; they are over by then.
        begins_at, ends_at = 40_000, 240_000
        while now < ends_at:
            size = chance.randint(1, largest)
            rate.record(size, now)
            sent += 1
            if now >= begins_at:
                counted += size
            now += max(rate.throttle_ms(limit, now), chance.choice([0, 0, 1]))
            if sent % 1000 == 0:
                now += 1
        held = counted / limit / (ends_at - begins_at) * 1000
        assert 0.95 <= held <= 1.05, (limit, largest, held)
        runs += 1
    assert runs == 9


# -- tokens ---------------------------------------------------------------------------------------


def test_a_bucket_begins_full_and_holds_no_more_than_all_windows() -> None:
    bucket = TokenBucket(WINDOWS)
    assert bucket.tokens(10, 5_000) == 110.0
    bucket.take(60, 10, 5_000)
    assert bucket.tokens(10, 6_000) == 60.0
    assert bucket.tokens(10, 600_000) == 110.0


def test_a_change_may_take_more_than_there_is_and_the_next_waits() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.take(160, 10, 0)
    assert bucket.tokens(10, 0) == -50.0
    assert bucket.throttle_ms(10, 0) == 5_000
    assert bucket.throttle_ms(10, 4_999) == 1
    assert bucket.throttle_ms(10, 5_000) == 0
