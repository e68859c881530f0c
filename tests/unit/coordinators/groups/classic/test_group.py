"""The states of a classic group."""

from __future__ import annotations

from itertools import product

import pytest

from tests.unit.coordinators.groups.helpers import (
    Client,
    World,
    classic_group,
    form_group,
    records_of,
)
from tidelog.coordinators.groups.classic.group import SUCCESSORS, ClassicGroup, GroupState
from tidelog.coordinators.outcome import Reply
from tidelog.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(("before", "after"), list(product(GroupState, GroupState)))
def test_a_state_is_entered_only_from_one_that_it_may_follow(
    before: GroupState, after: GroupState
) -> None:
    group = ClassicGroup("g", before)
    if after in SUCCESSORS[before]:
        group.enter(after, "a test")
        assert group.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before} to {after}"):
            group.enter(after, "a test")
        assert group.state is before


def test_a_group_loses_its_members_without_a_rebalance_only_while_it_is_loaded() -> None:
    world = World()
    member = Client(world)
    form_group(world, [member])
    member.leave()
    *_, stable, empty = records_of(world)
    world.restart()
    assert classic_group(world).state is GroupState.EMPTY
    world.shard.replay(stable)
    assert classic_group(world).state is GroupState.STABLE
    with pytest.raises(AssertionError, match="cannot go from Stable to Empty"):
        world.shard.replay(empty)


def test_a_group_that_is_replaced_takes_its_timers_and_waits_with_it() -> None:
    world = World()
    one, other = Client(world), Client(world)
    form_group(world, [one, other])
    one.join()
    waiting, group = one.waiting, classic_group(world)
    assert isinstance(waiting, Reply) and not waiting.is_done and len(world.shard.timers)
    world.shard.table.put(ClassicGroup("g"))
    assert isinstance(waiting.error, KafkaError)
    assert waiting.error.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state is GroupState.DEAD and not len(world.shard.timers)
