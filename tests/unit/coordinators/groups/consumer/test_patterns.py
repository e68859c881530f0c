"""Members that name their topics by a pattern: what it matches, when, and what is written down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.coordinators.groups.consumer.helpers import Consumer, group_of, settle
from tests.unit.coordinators.groups.helpers import World
from tidelog.coordinators.groups.records import decode_record, encode_record
from tidelog.coordinators.outcome import Outcome
from tidelog.errors import ErrorCode, KafkaError


@pytest.fixture
def world() -> World:
    made = World()
    made.set_topics(**{"orders-a": 2, "orders-b": 2, "other": 2, "__consumer_offsets": 1})
    return made


def consumer(world: World, name: str, pattern: str, *topics: str, **more: object) -> Consumer:
    made = Consumer(world, name, list(topics), pattern=pattern, **more)  # type: ignore[arg-type]
    made.join()
    return made


def names(*consumers: Consumer) -> list[set[str]]:
    settle(*consumers)
    return [each.topic_names for each in consumers]


def test_a_join_is_answered_first_and_its_pattern_resolved_behind_it(world: World) -> None:
    one = consumer(world, "one", "^orders-.*")
    assert (one.epoch, one.target) == (1, frozenset())
    group = group_of(world)
    assert (group.epoch, group.target_epoch, group.state) == (2, 1, "Assigning")
    assert names(one) == [{"orders-a", "orders-b"}]
    assert (one.epoch, group.state) == (2, "Stable")


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("orders", set()),
        ("orders-[a]", {"orders-a"}),
        ("other|.*-b", {"other", "orders-b"}),
        ("(?i)OTHER", {"other"}),
        ("_.*", {"__consumer_offsets"}),
        (".*", {"orders-a", "orders-b", "other", "__consumer_offsets"}),
    ],
)
def test_a_pattern_matches_whole_names_internal_ones_too(
    world: World, pattern: str, matched: set[str]
) -> None:
    assert names(consumer(world, "one", pattern)) == [matched]


def test_names_and_what_the_pattern_matches_are_consumed_together(world: World) -> None:
    one = consumer(world, "one", "orders-a", "other")
    two = consumer(world, "two", "", "other")
    found = names(one, two)
    assert found[0] | found[1] == {"orders-a", "other"} and "orders-a" not in found[1]


@pytest.mark.parametrize("pattern", ["[", "(?=a)", "a{1001}", "x" * 5_000, "([ab]{1,200}){1,5}"])
def test_a_pattern_that_cannot_be_used_is_refused_and_changes_nothing(
    world: World, pattern: str
) -> None:
    with pytest.raises(KafkaError) as raised:
        consumer(world, "one", pattern)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.log and not len(world.shard.table)


def test_a_group_takes_twenty_patterns(world: World) -> None:
    for each in range(20):
        consumer(world, f"m-{each}", f"pattern-{each}")
    with pytest.raises(KafkaError) as raised:
        consumer(world, "more", "one-more")
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    consumer(world, "same", "pattern-7")


def test_a_topic_that_comes_later_is_consumed_and_one_that_goes_is_not(world: World) -> None:
    one = consumer(world, "one", "orders-.*")
    names(one)
    world.set_topics(**{"orders-b": 2, "orders-c": 1})
    one.beat()
    world.pass_time(1_000)
    assert names(one) == [{"orders-b", "orders-c"}]
    assert group_of(world).resolved["orders-.*"].topics == {"orders-b", "orders-c"}


def test_topics_that_come_and_match_nothing_disturb_nobody(world: World) -> None:
    one = consumer(world, "one", "other")
    names(one)
    epoch, written = one.epoch, len(world.log)
    world.set_topics(**{"other": 2, "new": 1})
    names(one)
    world.pass_time(2_000)
    names(one)
    assert (one.epoch, len(world.log)) == (epoch, written)


def test_patterns_are_matched_at_most_once_a_second(world: World) -> None:
    one = consumer(world, "one", "orders-.*")
    names(one)
    for each in range(5):
        world.set_topics(**{"orders-a": 2, f"orders-{each}": 1})
        one.beat()
    assert group_of(world).resolved["orders-.*"].topics == {"orders-a", "orders-b"}
    world.pass_time(1_000)
    assert names(one) == [{"orders-a", "orders-4"}]


def test_two_members_share_a_pattern_and_the_last_to_drop_it_ends_it(world: World) -> None:
    one, two = consumer(world, "one", "orders-.*"), consumer(world, "two", "orders-.*")
    found = names(one, two)
    assert found[0] | found[1] == {"orders-a", "orders-b"}
    one.subscribe_to_pattern("")
    assert set(group_of(world).resolved) == {"orders-.*"}
    assert names(one, two) == [set(), {"orders-a", "orders-b"}]
    two.leave()
    assert not group_of(world).resolved and not group_of(world).subscribers
    world.compact()
    world.restart()
    assert not group_of(world).resolved


def test_a_member_that_goes_over_to_a_pattern_without_matches_frees_what_it_had(
    world: World,
) -> None:
    one, two = consumer(world, "one", "orders-.*"), consumer(world, "two", "orders-.*")
    names(one, two)
    one.subscribe_to_pattern("nothing")
    world.pass_time(1_000)
    assert names(one, two) == [set(), {"orders-a", "orders-b"}]


def test_topics_that_the_member_may_not_describe_are_left_out(world: World) -> None:
    one = consumer(world, "one", ".*", may_describe=lambda name: name.startswith("o"))
    assert names(one) == [{"orders-a", "orders-b", "other"}]


def test_what_may_be_described_is_asked_again_after_a_while(world: World) -> None:
    allowed = {"other"}
    one = consumer(world, "one", "o.*", may_describe=allowed.__contains__)
    assert names(one) == [{"other"}]
    allowed.add("orders-a")
    for _ in range(20):
        world.pass_time(30_000)
        names(one)
    assert names(one) == [{"other", "orders-a"}]


def test_a_resolved_pattern_lives_through_a_restart(world: World) -> None:
    one = consumer(world, "one", "orders-.*", "other")
    names(one)
    before, epoch = dict(group_of(world).resolved), one.epoch
    world.compact()
    world.restart()
    group = group_of(world)
    assert group.resolved == before and group.members["one"].pattern == "orders-.*"
    assert group.is_subscribed_to("orders-a")
    assert names(one) == [{"orders-a", "orders-b", "other"}] and one.epoch == epoch


def test_patterns_are_matched_again_where_the_result_could_not_be_written(world: World) -> None:
    one = consumer(world, "one", "orders-.*")
    names(one)
    world.set_topics(**{"orders-a": 2, "orders-c": 2})
    one.beat()
    world.is_refusing = True
    world.pass_time(1_000)
    assert group_of(world).resolved["orders-.*"].topics == {"orders-a", "orders-b"}
    world.is_refusing = False
    one.beat()
    world.pass_time(1_000)
    assert names(one) == [{"orders-a", "orders-c"}]


def test_many_topics_are_matched_in_pieces(world: World) -> None:
    one = consumer(world, "one", "t-.*9")
    names(one)
    world.pass_time(1_000)
    world.set_topics(**{f"t-{each}": 1 for each in range(2_000)})
    one.beat()
    group = group_of(world)
    assert not group.resolved["t-.*9"].topics, "only the first piece is done"
    world.pass_time(5)
    assert not group.resolved["t-.*9"].topics
    world.pass_time(10)
    assert len(group.resolved["t-.*9"].topics) == 200


def test_groups_of_a_shard_take_turns_to_match(world: World) -> None:
    turns: list[tuple[str, int]] = []

    def may_describe(group: str) -> Callable[[str], bool]:
        return lambda _: not turns.append((group, world.now.ms))

    groups = [f"g-{each}" for each in range(5)]
    for group in groups:
        consumer(world, "one", "orders-a", group=group, may_describe=may_describe(group))
    world.pass_time(10)
    assert sorted(group for group, _ in turns) == groups
    assert len({at_ms for _, at_ms in turns}) == len(groups), "two groups matched in one turn"


def many_matched(world: World) -> list[Consumer]:
    """Five patterns that match all of many topics, each more than fits with another."""
    patterns = [f"t-.{{{each},}}" for each in range(5)]
    consumers = [consumer(world, each, each) for each in patterns]
    names(*consumers)
    world.pass_time(2_000)
    world.set_topics(**{f"t-{'a' * 200}-{each}": 1 for each in range(250)})
    consumers[0].beat()
    return consumers


def test_what_many_patterns_match_is_written_one_by_one(world: World) -> None:
    many_matched(world)
    appended: list[list[int]] = []
    apply = world._apply

    def recorded(outcome: Outcome) -> None:
        appended.append([len(encode_record(each)[1] or b"") for each in outcome.records])
        apply(outcome)

    world._apply = recorded  # type: ignore[method-assign]
    world.pass_time(1_000)
    written = [each for each in appended if each]
    assert sum(map(sum, written)) > 250_000, "all five patterns are written"
    assert max(map(sum, written)) < 64_000, "one pattern at a time"
    assert all(len(each.topics) == 250 for each in group_of(world).resolved.values())


def test_few_topics_of_several_patterns_are_written_together(world: World) -> None:
    consumers = [consumer(world, each, each) for each in ("orders-.*", "orders-..*")]
    names(*consumers)
    world.pass_time(2_000)
    world.set_topics(**{"orders-a": 2, "orders-b": 2, "orders-c": 1})
    epoch = group_of(world).epoch
    consumers[0].beat()
    world.pass_time(1_000)
    assert group_of(world).epoch == epoch + 1


def test_patterns_that_were_not_reached_when_a_write_was_refused_are_matched_again(
    world: World,
) -> None:
    one, *_ = many_matched(world)
    group = group_of(world)
    while not any(each.topics for each in group.resolved.values()):
        world.pass_time(1)
    world.is_refusing = True
    world.pass_time(1_000)
    assert not all(each.topics for each in group.resolved.values())
    world.is_refusing = False
    one.beat()
    world.pass_time(1_000)
    assert all(len(each.topics) == 250 for each in group.resolved.values())


def test_a_pattern_that_another_broker_took_and_this_one_cannot_use_matches_nothing(
    world: World,
) -> None:
    one = consumer(world, "one", "orders-a")
    names(one)
    # As an older log might have it.
    world.log[:] = [
        (
            key.replace(b"orders-a", b"orders-("),
            None if value is None else value.replace(b"orders-a", b"orders-("),
        )
        for key, value in world.log
    ]
    world.restart()
    one.beat()
    world.pass_time(1_000)
    assert names(one) == [set()]


def test_the_record_of_a_pattern_is_as_kafka_writes_it(world: World) -> None:
    consumer(world, "one", "o.*r")
    ((key, value),) = [each for each in world.log if each[0][:2] == b"\0\x10"]
    assert key == b"\0\x10" + b"\0\1g" + b"\0\4o.*r"
    assert value is not None
    assert value == b"\0\0" + b"\2" + b"\6other" + bytes(8) + world.now.wall_ms.to_bytes(8) + b"\0"
    record = decode_record(key, value)
    assert record is not None and encode_record(record) == (key, value)


def test_a_group_that_goes_while_its_patterns_are_to_be_matched_takes_the_timer_along(
    world: World,
) -> None:
    one = consumer(world, "one", "orders-.*")
    names(one)
    world.set_topics(**{"orders-a": 2})
    one.beat()
    one.leave()
    world.run(lambda shard, _: shard.delete_group("g"))
    world.pass_time(5_000)
    assert not len(world.shard.table) and not len(world.shard.timers)
