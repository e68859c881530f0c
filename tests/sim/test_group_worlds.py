"""Groups keep I23 to I26 and L5 while brokers and members fail, and each check fires by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.sim.ghost import Violation
from tests.sim.group_ledger import SESSION_S, GroupLedger
from tests.sim.group_watch import RETENTION_S, i23_one_owner, i25_generations_rise, i26_expiry
from tests.sim.liveness import within
from tests.sim.registers import Register
from tests.sim.run import Plan, run_seed
from tidelog.coordinators.groups.classic.group import ClassicGroup, GroupState, Member
from tidelog.coordinators.groups.consumer.group import ConsumerGroup, ConsumerMember
from tidelog.errors import ErrorCode
from tidelog.model import NO_TOPIC_ID
from tidelog.protocol.consumer_protocol import encode_assignment

SEEDS = 10
LONG_SEEDS = 300


def survive(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_seed(seed, Plan(brokers=3, groups=True))
        assert not outcome.failed, str(outcome)
        counts.update({k: n for k, n in outcome.counts.items() if k.startswith("group ")})
    print(f"{len(seeds)} seeds with groups: {dict(sorted(counts.items()))}")
    for action in ("crash", "pause", "leave", "replace"):
        assert counts[f"group {action}"] > 0, action
    assert counts["group generations"] > 2 * len(seeds)
    assert counts["group commit"] > 10 * len(seeds)
    assert counts["group read"] > len(seeds)
    return counts


def test_groups_survive_what_brokers_and_members_do() -> None:
    survive(range(4_000, 4_000 + SEEDS))


@pytest.mark.long
def test_groups_survive_in_many_worlds() -> None:
    survive(range(4_100, 4_100 + LONG_SEEDS))


# -- each check by hand ----------------------------------------------------------------------------


class Clock:
    now = 100.0


def ledger() -> tuple[GroupLedger, Clock]:
    clock = Clock()
    return GroupLedger("g", 2, clock), clock  # type: ignore[arg-type]


def breaks(name: str, check: Any, *args: Any) -> None:
    with pytest.raises(Violation) as caught:
        check(*args)
    assert caught.value.invariant.split()[0] == name


def test_i23_a_partition_is_told_to_two() -> None:
    group, clock = ledger()
    a, b = (group.enter(name, None, is_classic=False) for name in "ab")
    group.heard(a, clock.now)
    group.told(a, 3, [0, 1], group.order())
    breaks("I23", group.told, b, 4, [1], group.order())
    group.released(a, [0])
    group.told(b, 4, [1], group.order())
    # Who was silent for a session owns nothing, whatever it thinks.
    clock.now += SESSION_S
    group.told(b, 4, [0, 1], group.order())


def test_i23_two_own_a_partition_in_one_generation() -> None:
    group, clock = ledger()
    a, b = (group.enter(name, None, is_classic=True) for name in "ab")
    group.told(a, 3, [0], group.order())
    clock.now += SESSION_S
    breaks("I23", group.told, b, 3, [0], group.order())


def test_i23_a_member_counts_that_was_replaced() -> None:
    group, clock = ledger()
    old, asked = group.enter("old", "i", is_classic=True), group.order()
    group.heard(old, clock.now)
    group.told(old, 3, [0], asked)
    late = group.commits(old, 3, [0])
    new = group.enter("new", "i", is_classic=True)
    group.told(new, 3, [0], group.order())
    # Sent before the other one had heard anything.
    assert group.committed(late, ErrorCode.NONE)
    breaks("I23", group.committed, group.commits(old, 3, [0]), ErrorCode.NONE)
    assert not group.committed(group.commits(old, 3, [0]), ErrorCode.FENCED_INSTANCE_ID)


def test_i23_who_asks_to_join_in_a_name_may_have_taken_it_before_anybody_is_told() -> None:
    group, clock = ledger()
    old, new = (group.enter(name, "i", is_classic=True) for name in ("old", "new"))
    other = group.enter("other", None, is_classic=True)
    group.heard(new, clock.now)
    group.told(new, 3, [0], group.order())
    breaks("I23", group.told, other, 4, [0], group.order())
    # The older process was paused, and comes back.
    group.asks_to_join(old)
    group.told(other, 4, [0], group.order())


def test_i23_and_i25_a_generation_of_before_counts() -> None:
    group, _ = ledger()
    a, b = (group.enter(name, None, is_classic=True) for name in "ab")
    group.told(a, 3, [0], group.order())
    early = group.order()
    group.told(b, 4, [1], group.order())
    group.counted(a, 3, early)
    group.joined(a, 3, early)
    breaks("I23", group.counted, a, 3, group.order())
    breaks("I25", group.joined, a, 3, group.order())


def test_i25_generations_begin_anew_where_an_empty_group_changes_its_protocol() -> None:
    group, _ = ledger()
    a = group.enter("a", None, is_classic=False)
    group.told(a, 7, [0], early := group.order())
    group.restarted()
    group.joined(a, 1, group.order())
    # An answer that comes late is of before.
    group.told(a, 7, [0], early)
    group.joined(a, 1, group.order())
    group.told(a, 2, [0], group.order())
    breaks("I25", group.joined, a, 1, group.order())


def test_i23_and_i25_a_coordinator_holds_what_it_must_not() -> None:
    consumers = ConsumerGroup("g", epoch=4)
    for name in "ab":
        consumers.members[name] = ConsumerMember(name, assigned={NO_TOPIC_ID: {0: 4}})
    breaks("I23", i23_one_owner, consumers)
    consumers.members["b"] = ConsumerMember("b", revoking={NO_TOPIC_ID: {0: 4}})
    breaks("I23", i23_one_owner, consumers)
    del consumers.members["b"]
    i23_one_owner(consumers)
    classic = ClassicGroup("g", GroupState.STABLE, generation=4)
    for name in "ab":
        classic.add(Member(name, None, "", "", 1, 1, "consumer", [], encode_assignment({"t": [0]})))
    breaks("I23", i23_one_owner, classic)
    group, _ = ledger()
    group.generation = 4
    for found in (consumers, classic):
        i25_generations_rise(group, found)
    group.generation = 5
    for found in (consumers, classic, None):
        breaks("I25", i25_generations_rise, group, found)


def test_i24_what_was_committed_is_not_what_is_read() -> None:
    group, _ = ledger()
    a = group.enter("a", None, is_classic=True)
    refused, lost = (group.commits(a, 1, [0]) for _ in range(2))
    group.committed(refused, ErrorCode.ILLEGAL_GENERATION)
    group.committed(lost, None)
    breaks("I24", group.read, 0, refused.offsets[0], group.order())
    breaks("I24", group.read, 0, 99, group.order())
    group.read(0, -1, group.order())
    group.read(0, lost.offsets[0], group.order())
    group.check()
    # Once seen it stays.
    group.read(0, -1, group.order())
    breaks("I24", group.check)


@pytest.mark.parametrize(
    ("writes", "reads", "is_possible"),
    [
        # By value: beginning and end; by value read: beginning and end.
        ({1: (1, 2)}, [(1, 3, 4)], True),
        ({1: (1, 2)}, [(0, 3, 4)], False),
        ({1: (1, 5)}, [(0, 2, 3), (1, 4, 6)], True),
        ({1: (1, 5)}, [(1, 2, 3), (0, 4, 6)], False),
        ({1: (1, 2), 2: (3, 4)}, [(1, 5, 6)], False),
        ({1: (1, 9), 2: (2, 8)}, [(1, 10, 11), (1, 12, 13)], True),
        ({1: (1, 9), 2: (2, 8)}, [(1, 10, 11), (2, 12, 13)], False),
        ({1: (1, 2), 2: (3, None)}, [(1, 5, 6), (2, 7, 8)], True),
        ({1: (1, 2), 2: (3, None)}, [(2, 5, 6), (1, 7, 8)], False),
        ({1: (1, 2), 2: (3, None)}, [(1, 5, 6)], True),
    ],
)
def test_i24_a_register_does_one_thing_at_a_time(
    writes: dict[int, tuple[int, int | None]], reads: list[tuple[int, int, int]], is_possible: bool
) -> None:
    register = Register(0)
    for value, (began, ended) in writes.items():
        write = register.write(value, began)
        if ended is not None:
            write.ended = ended
    problems = [register.read(*each) for each in reads]
    assert not any(problems)
    assert (register.problem() == "") is is_possible


def test_i26_offsets_go_though_the_group_was_in_use() -> None:
    group, clock = ledger()
    group.heard(group.enter("a", None, is_classic=True), clock.now)
    lost = frozenset({("shared", 0)})
    i26_expiry(group, frozenset(), clock.now)
    i26_expiry(group, lost, clock.now + RETENTION_S)
    breaks("I26", i26_expiry, group, lost, clock.now + RETENTION_S / 2)


def test_l5_a_group_does_not_settle() -> None:
    group, clock = ledger()
    a, b = (group.enter(name, None, is_classic=False) for name in "ab")
    group.told(a, 3, [0], group.order())

    async def settle() -> None:
        await within(0.5, "L5 groups settle", group.unstable)

    breaks("L5", asyncio.run, settle())
    clock.now += SESSION_S
    group.told(b, 3, [1], group.order())
    asyncio.run(settle())
    group.told(b, 3, [0, 1], group.order())
    breaks("L5", asyncio.run, settle())
