"""What the server-side assignors promise, on random groups."""

from __future__ import annotations

from itertools import chain
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinators.groups.consumer.assignors import (
    ASSIGNORS,
    AssignableMember,
    Assignor,
    Partitions,
    assign_range,
    assign_uniform,
)

Members = dict[str, AssignableMember]
Topics = dict[UUID, int]
TOPIC = UUID(int=1)
_topics = st.dictionaries(
    st.integers(1, 6).map(lambda each: UUID(int=each)), st.integers(0, 12), min_size=1, max_size=4
)
_names = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=8)


@st.composite
def groups(draw: st.DrawFn, same: bool | None = None) -> tuple[Members, Topics]:
    topics = draw(_topics)
    subscription = st.frozensets(st.sampled_from(sorted(topics)), max_size=len(topics))
    common = draw(subscription) if same or (same is None and draw(st.booleans())) else None
    members = {}
    for name in draw(_names):
        own = draw(subscription) if common is None else common
        instance = draw(st.none() | st.just(f"i-{name}"))
        members[name] = AssignableMember(instance, own, {})
    return members, topics


def assigned(assignor: Assignor, members: Members, topics: Topics) -> dict[str, Partitions]:
    """The target, held against what must be true of any."""
    target = assignor(members, topics)
    assert target.keys() == members.keys()
    owners: dict[tuple[UUID, int], str] = {}
    for name, shares in target.items():
        for topic, partitions in shares.items():
            assert partitions and topic in members[name].topics
            for partition in partitions:
                assert 0 <= partition < topics[topic]
                assert owners.setdefault((topic, partition), name) == name
    wanted = {topic for each in members.values() for topic in each.topics}
    everything = {(topic, each) for topic in wanted for each in range(topics[topic])}
    assert owners.keys() == everything
    return target


def after(members: Members, target: dict[str, Partitions]) -> Members:
    """The group when it has the target."""
    return {name: each._replace(previous=target[name]) for name, each in members.items()}


def load(shares: Partitions) -> int:
    return sum(map(len, shares.values()))


def moves(before: dict[str, Partitions], target: dict[str, Partitions]) -> int:
    """How many partitions those who stay have lost."""
    return sum(
        len(partitions - target[name].get(topic, frozenset()))
        for name, shares in before.items()
        if name in target
        for topic, partitions in shares.items()
    )


@settings(max_examples=60, deadline=None)
@given(groups(), st.randoms(use_true_random=False))
def test_every_partition_has_one_subscribed_owner_whatever_the_order(
    group: tuple[Members, Topics], chance: object
) -> None:
    members, topics = group
    shuffled = list(members.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    for assignor in ASSIGNORS.values():
        target = assigned(assignor, members, topics)
        assert assignor(dict(shuffled), dict(reversed(topics.items()))) == target


@settings(max_examples=60, deadline=None)
@given(groups(same=True), _names)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    group: tuple[Members, Topics], later: list[str]
) -> None:
    members, topics = group
    target = assigned(assign_uniform, members, topics)
    loads = [load(each) for each in target.values()]
    assert not loads or max(loads) - min(loads) <= 1
    settled = after(members, target)
    assert assign_uniform(settled, topics) == target, "what is even stays as it is"
    if not settled:
        return
    # Others come and go: those who stay lose only what the newcomers' share needs.
    common = next(iter(settled.values())).topics
    changed = {
        name: settled.get(name, AssignableMember(None, common, {})) for name in sorted(later)
    }
    second = assigned(assign_uniform, changed, topics)
    counts = [load(each) for each in second.values()]
    assert not counts or max(counts) - min(counts) <= 1
    largest = max(counts, default=0)
    spared = sum(max(0, load(target[name]) - largest) for name in changed if name in target)
    newcomers = sum(load(second[name]) for name in changed if name not in target)
    assert spared <= moves(target, second) <= max(spared, newcomers) + len(changed)


@settings(max_examples=60, deadline=None)
@given(groups(same=False))
def test_uniform_leaves_no_move_that_would_even_out_different_subscriptions(
    group: tuple[Members, Topics],
) -> None:
    members, topics = group
    target = assigned(assign_uniform, members, topics)
    for name, shares in target.items():
        for topic in shares:
            for other, member in members.items():
                if topic in member.topics:
                    assert load(shares) - load(target[other]) <= 1, (name, other)
    assert assign_uniform(after(members, target), topics) == target


@settings(max_examples=40, deadline=None)
@given(groups(), st.integers(0, 12))
def test_previous_targets_that_no_longer_hold_are_dropped(
    group: tuple[Members, Topics], fewer: int
) -> None:
    members, topics = group
    settled = after(members, assign_uniform(members, topics))
    shrunk = {topic: min(count, fewer) for topic, count in topics.items()}
    assigned(assign_uniform, settled, shrunk)
    # Two members that claim the same: a log may have been lost in between.
    everything: Partitions = {topic: frozenset(range(count)) for topic, count in topics.items()}
    greedy = {name: each._replace(previous=everything) for name, each in members.items()}
    assigned(assign_uniform, greedy, topics)


@settings(max_examples=40, deadline=None)
@given(groups())
def test_range_gives_neighbours_and_the_larger_shares_first(
    group: tuple[Members, Topics],
) -> None:
    members, topics = group
    target = assigned(assign_range, members, topics)
    for topic, count in topics.items():
        order = sorted(
            (name for name, each in members.items() if topic in each.topics),
            key=lambda each: (members[each].instance_id is None, members[each].instance_id or each),
        )
        row = [sorted(target[name].get(topic, ())) for name in order]
        assert list(chain(*row)) == (list(range(count)) if order else [])
        assert sorted(map(len, row), reverse=True) == list(map(len, row))


def test_uniform_keeps_a_static_plan_when_one_of_many_leaves() -> None:
    members = {f"m{each:02}": AssignableMember(None, frozenset({TOPIC}), {}) for each in range(20)}
    first = assign_uniform(members, {TOPIC: 60})
    settled = after(members, first)
    gone = settled.pop("m07")
    second = assign_uniform(settled, {TOPIC: 60})
    assert moves(first, second) == 0
    assert sum(load(second[name]) - load(first[name]) for name in second) == load(gone.previous)
