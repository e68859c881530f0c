"""How our own member assigns, and the bytes that members exchange."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.client.group import range_assignment
from tidelog.errors import ProtocolError
from tidelog.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
    read_topics,
    subscribed_topics,
)


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    subscriptions = {"b": ["t"], "a": ["t"], "c": ["t"]}
    assert range_assignment(subscriptions, {"t": 7}) == {
        "a": {"t": [0, 1, 2]},
        "b": {"t": [3, 4]},
        "c": {"t": [5, 6]},
    }


def test_range_gives_a_topic_to_its_subscribers_alone() -> None:
    subscriptions = {"a": ["t", "u"], "b": ["u"], "idle": []}
    assert range_assignment(subscriptions, {"t": 2, "u": 1}) == {
        "a": {"t": [0, 1], "u": [0]},
        "b": {},
        "idle": {},
    }


def test_every_partition_has_one_owner_and_shares_differ_by_one_at_most() -> None:
    chance = Random(3)
    for _ in range(300):
        members = {f"m{each}": ["t"] for each in range(chance.randint(1, 20))}
        count = chance.randint(1, 60)
        shares = [each.get("t", []) for each in range_assignment(members, {"t": count}).values()]
        assert sorted(partition for share in shares for partition in share) == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_subscriptions_and_assignments_come_back() -> None:
    assert read_topics(encode_subscription(["a", "größe"])) == ["a", "größe"]
    assignment = {"a": [0, 2], "b": []}
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == {}


def test_a_subscription_that_cannot_be_read_is_one_that_nobody_knows() -> None:
    whole = encode_subscription(["orders", "payments"])
    topics_end = len(whole) - 8
    for end in range(topics_end):
        assert read_topics(whole[:end]) is None
        assert subscribed_topics([whole, whole[:end]]) is None
    assert subscribed_topics([whole]) == {"orders", "payments"}


def test_a_damaged_assignment_is_refused() -> None:
    whole = encode_assignment({"orders": [1, 2, 3]})
    for end in range(1, len(whole) - 4):
        with pytest.raises(ProtocolError):
            decode_assignment(whole[:end])
