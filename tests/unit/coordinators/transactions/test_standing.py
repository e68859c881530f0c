"""How the open transactions of a broker stand, as /metrics tells it."""

from __future__ import annotations

import pytest

from tests.unit.coordinators.transactions.helpers import P0, TIMEOUT_MS, World
from tidelog.coordinators.transactions.standing import Standing
from tidelog.coordinators.transactions.transaction import NO_TIMEOUT_MS, State, Transaction


def standing(world: World) -> tuple[int, int, int, int]:
    found = Standing()
    world.shard.stand(found)
    return found.open, found.oldest_ms, found.overdue_ms, found.undecided_ms


def test_nothing_stands_where_nothing_is_open() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    world.finish(producer)
    world.pass_time(10 * TIMEOUT_MS)
    assert standing(world) == (0, 0, 0, 0)


def test_one_that_cannot_be_ended_becomes_overdue() -> None:
    world = World()
    world.add(world.given())
    world.pass_time(1_000)
    world.add(world.given("young"), transactional_id="young")
    world.pass_time(1_000)
    assert standing(world) == (2, 2_000, 0, 0)
    world.refuses = True
    world.pass_time(TIMEOUT_MS)
    assert standing(world) == (2, TIMEOUT_MS + 2_000, 2_000, 0)
    world.refuses = False
    world.pass_time(2_000)
    # Aborted, but its partitions have yet to be told.
    assert world.state() is State.PREPARE_ABORT
    assert standing(world) == (2, TIMEOUT_MS + 4_000, 4_000, 0)
    for decision in list(world.decided):
        assert world.apply(world.shard.complete(decision, world.now))
    assert standing(world) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("state", "undecided_ms"), [(State.ONGOING, 7_000), (State.PREPARE_COMMIT, 0)]
)
def test_one_without_a_time_out_is_never_overdue(state: State, undecided_ms: int) -> None:
    each = Transaction("sink", timeout_ms=NO_TIMEOUT_MS, state=state, started_ms=3_000)
    each.partitions = frozenset({P0})
    found = Standing()
    found.add([each], lambda written_ms: 10_000 - written_ms)
    assert (found.open, found.oldest_ms, found.overdue_ms) == (1, 7_000, 0)
    assert found.undecided_ms == undecided_ms
