"""Each invariant fires on a world that breaks it, and on none that does not.

What no mutant of `mutants.py` makes fire is tried here by hand.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tests.sim import invariants, liveness
from tests.sim.footprint import Footprint, with_transactions
from tests.sim.ghost import Batch, Ghost, Replica, Violation
from tests.sim.workload import Workload
from tidelog.cluster import layout
from tidelog.cluster.image import PartitionState
from tidelog.model import TopicPartition
from tidelog.replication.in_sync import InSyncReplicas
from tidelog.store.port import Check, Set

KEY = (UUID(int=7), 0)
A, B, C = Batch(0, 0, 0, 1), Batch(1, 1, 0, 2), Batch(2, 2, 1, 3)
OTHER = Batch(1, 1, 0, 9)
STATE = PartitionState(0, 0, 3, (0, 1, 2), (0, 1), 5)


def ghost(*committed: Batch, **fields: Any) -> Ghost:
    made = Ghost("t", KEY, min_isr=2, state=STATE)
    made.committed = list(committed)
    made.true_watermark = committed[-1].last + 1 if committed else 0
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def replica(*batches: Batch, broker_id: int = 1, life: int = 1, **fields: Any) -> Replica:
    made = Replica(broker_id, life)
    made.batches = list(batches)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def breaks(name: str, check: Any, *args: Any, **named: Any) -> None:
    with pytest.raises(Violation) as caught:
        check(*args, **named)
    assert caught.value.invariant.split()[0] == name


def test_i1_a_leader_lacks_what_was_committed() -> None:
    invariants.i1_leader_completeness(ghost(A, B), replica(A, B))
    invariants.i1_leader_completeness(ghost(A, B, log_start=1), replica(B))
    breaks("I1", invariants.i1_leader_completeness, ghost(A, B), replica(A))


def test_i2_and_i10_a_candidate_lacks_what_was_committed() -> None:
    invariants.i2_candidate_completeness(ghost(A, B), replica(A, B, C))
    breaks("I2", invariants.i2_candidate_completeness, ghost(A, B), replica(A, OTHER))
    lossy = ghost(A, B, unwhole={1: 1})
    breaks("I10", invariants.i2_candidate_completeness, lossy, replica(A))


def test_i3_two_logs_differ_below_what_they_share() -> None:
    known = ghost()
    invariants.i3_log_matching(known, replica(A, B), [A, B])
    invariants.i3_log_matching(known, replica(A, B), [A, B])
    breaks("I3", invariants.i3_log_matching, known, replica(A, OTHER), [OTHER])
    invariants.i3_log_matching(known, replica(A, B, C), [C])
    breaks("I3", invariants.i3_log_matching, known, replica(A, OTHER, C), [C])
    # What was deleted before it is nobody's business.
    invariants.i3_log_matching(known, replica(A, OTHER, C, log_start=2), [C])


def test_i3_what_counts_as_committed_is_not() -> None:
    check = invariants.i3_agreement_below_the_watermark
    check(ghost(A, B), replica(A, OTHER, watermark=1), 0)
    breaks("I3", check, ghost(A, B), replica(A, OTHER, watermark=2), 0)


def test_i4_a_consumer_is_given_something_else() -> None:
    read = ghost()
    invariants.i4_consistent_read(read, 5, 50)
    invariants.i4_consistent_read(read, 5, 50)
    breaks("I4", invariants.i4_consistent_read, read, 5, 51)


def test_i5_an_epoch_has_two_writers_or_falls() -> None:
    written = ghost()
    invariants.i5_one_writer(written, replica(A, life=1), [A])
    breaks("I5", invariants.i5_one_writer, written, replica(A, B, life=2), [B])
    invariants.i5_epochs_rise(written, STATE, STATE._replace(leader=1, leader_epoch=4))
    for after in (STATE._replace(leader=1), STATE._replace(leader_epoch=2)):
        breaks("I5", invariants.i5_epochs_rise, written, STATE, after)


def in_sync(*ends: int) -> InSyncReplicas:
    """Broker 0 leads; the others have fetched from these offsets."""
    made = InSyncReplicas(0, STATE, 0, 0, 0.0)
    for broker_id, end in enumerate(ends, 1):
        made.followers[broker_id].end = end
    return made


def test_i6_a_watermark_moves_too_far() -> None:
    leader = replica(A, B, broker_id=0, watermark=2)
    invariants.i6_watermark_rule(ghost(), leader, in_sync(2, 0))
    breaks("I6", invariants.i6_watermark_rule, ghost(), leader, in_sync(1, 2))
    breaks("I6", invariants.i6_watermark_rule, ghost(min_isr=3), leader, in_sync(2, 2))
    alone = in_sync(2, 2)
    alone.updated(STATE._replace(isr=(0,), partition_epoch=STATE.partition_epoch + 2), 0.0)
    breaks("I6", invariants.i6_watermark_rule, ghost(), leader, alone)
    both = ghost(replicas={0: leader, 1: replica(A, B, broker_id=1)})
    invariants.i6_watermark_rule(both, leader, alone, [STATE._replace(isr=(0, 1))])
    behind = ghost(replicas={0: leader, 1: replica(A, broker_id=1)})
    passed = [STATE._replace(isr=(0, 1))]
    breaks("I6", invariants.i6_watermark_rule, behind, leader, alone, passed)
    invariants.i6_synced_before_committed(ghost(), 2, {0: 2, 1: 2}, ())
    invariants.i6_synced_before_committed(ghost(), 2, {0: 2, 1: 0}, (1,))
    breaks("I6", invariants.i6_synced_before_committed, ghost(), 2, {0: 2, 1: 1}, ())


def test_i2_a_leader_forgets_who_may_lead_after_it() -> None:
    leader = replica(A, broker_id=0)
    invariants.i2_superset(ghost(), leader, in_sync(1, 1))
    for state in (STATE._replace(isr=(0, 1, 2)), STATE._replace(elr=(2,))):
        breaks("I2", invariants.i2_superset, ghost(state=state), leader, in_sync(1, 1))


def test_i9_bytes_are_served_for_another_topic() -> None:
    place = TopicPartition("t", 0)
    for now in (UUID(int=7), None):
        invariants.i9_topic_ids(place, 1, ("t", UUID(int=7)), now)
    invariants.i9_topic_ids(place, 1, ("t", None), UUID(int=7))
    breaks("I9", invariants.i9_topic_ids, place, 1, ("t", UUID(int=6)), UUID(int=7))
    breaks("I9", invariants.i9_topic_ids, place, 1, ("other", UUID(int=7)), UUID(int=7))


def test_i11_nobody_knows_who_had_the_records() -> None:
    empty = STATE._replace(isr=(), elr=())
    invariants.i11_last_known(ghost(), empty._replace(last_known_elr=(0,)))
    breaks("I11", invariants.i11_last_known, ghost(), empty)


def test_i27_metadata_is_written_by_nobody_in_office() -> None:
    write = Set(f"{layout.TOPICS}/t", b"", 0)
    invariants.i27_fenced_writes([Check(layout.CONTROLLER_EPOCH, 4), write], 4)
    invariants.i27_fenced_writes([Set("/elsewhere", b"", 0)], 4)
    breaks("I27", invariants.i27_fenced_writes, [write], 4)
    breaks("I27", invariants.i27_fenced_writes, [Check(layout.CONTROLLER_EPOCH, 2), write], 4)


def test_i28_an_image_becomes_older() -> None:
    def image(epoch: int, version: int) -> SimpleNamespace:
        return SimpleNamespace(controller_epoch=epoch, version=version)

    invariants.i28_images_do_not_go_back("b0", image(1, 5), image(2, 6))
    breaks("I28", invariants.i28_images_do_not_go_back, "b0", image(1, 5), image(1, 4))
    breaks("I28", invariants.i28_images_do_not_go_back, "b0", image(2, 5), image(1, 6))


def test_i30_and_i31_a_log_comes_back_as_it_was_not() -> None:
    invariants.i30_recovered_prefix(ghost(), replica(A, B, C), replica(A, B))
    breaks("I30", invariants.i30_recovered_prefix, ghost(), replica(A, B), replica(A, OTHER))
    breaks("I30", invariants.i30_recovered_prefix, ghost(), replica(A), replica(A, B))
    cut = replica(A, uncut=[A, B], was_cutting=True)
    invariants.i30_recovered_prefix(ghost(), cut, replica(A, B))
    breaks("I30", invariants.i30_recovered_prefix, ghost(), cut, replica(A, OTHER))
    invariants.i31_synced_stays(ghost(), replica(A, B, C), replica(A, B), 2)
    breaks("I31", invariants.i31_synced_stays, ghost(), replica(A, B, C), replica(A), 2)


def test_i33_what_was_loaded_goes_beyond_the_log() -> None:
    def partition(watermark: int, flushed: int) -> SimpleNamespace:
        log = SimpleNamespace(log_end_offset=5, flushed_offset=flushed)
        return SimpleNamespace(log=log, high_watermark=watermark)

    invariants.i33_loaded_bounds(ghost(), partition(5, 5))
    for wrong in (partition(6, 5), partition(5, 6)):
        breaks("I33", invariants.i33_loaded_bounds, ghost(), wrong)


def test_l1_to_l8_what_does_not_come_in_time_is_missed() -> None:
    async def run(problems: list[str]) -> None:
        await liveness.within(0.5, "L1 leaders", lambda: problems.pop(0) if problems else "")

    asyncio.run(run(["no leader"]))
    with pytest.raises(Violation, match="L1 leaders"):
        asyncio.run(run(["no leader"] * 10))


def all_alike(*replicas: Replica) -> tuple[Any, Any]:
    """A world in which all replicas are in sync, and what is known of it."""
    known = ghost(A, B, replicas={each.broker_id: each for each in replicas})
    topic = SimpleNamespace(topic_id=KEY[0], partitions=[STATE._replace(isr=(0, 1, 2))])
    observer = SimpleNamespace(image=SimpleNamespace(topics={"t": topic}), ghosts={KEY: known})
    machines = {each: SimpleNamespace(name=f"b{each}", broker=None) for each in range(3)}
    return SimpleNamespace(machines=machines), observer


def test_l6_a_replica_differs_below_the_watermark() -> None:
    first, second = replica(A, B, C, broker_id=0), replica(A, B, broker_id=1)
    for third, is_alike in (
        (replica(A, B, C, broker_id=2), True),
        (replica(A, broker_id=2), False),
        (replica(A, OTHER, broker_id=2), False),
    ):
        world, observer = all_alike(first, second, third)
        found = liveness.disagreement(world, observer)
        assert (found == "") is is_alike, found
    assert "b2 of t-0" in liveness.disagreement(*all_alike(first, second))


def test_l8_a_broker_is_behind_with_the_metadata() -> None:
    def world(*versions: int | None) -> Any:
        machines = {}
        for number, version in enumerate(versions):
            image = SimpleNamespace(version=version)
            parts = SimpleNamespace(metadata=SimpleNamespace(image=image))
            broker = SimpleNamespace(_parts=None if version is None else parts)
            machines[number] = SimpleNamespace(name=f"b{number}", broker=broker)
        return SimpleNamespace(machines=machines)

    assert liveness.versions(world(7, 7, 7)) == ""
    for found in (world(7, 7, 6), world(7, None, 7)):
        assert liveness.versions(found)


def test_l3_a_call_does_not_end() -> None:
    async def run(seconds: float) -> None:
        work = Workload(SimpleNamespace(), SimpleNamespace(), 1, {})  # type: ignore[arg-type]
        call = asyncio.create_task(asyncio.sleep(seconds), name="a call")
        work._tasks.append(call)
        try:
            await work.stop(0.01)
        finally:
            call.cancel()

    breaks("L3", asyncio.run, run(60.0))


def test_l7_a_broker_holds_on_to_more_than_it_did() -> None:
    start = [Footprint(20, 0, 3, 1, 0)]
    for now in (
        Footprint(28, 0, 11, 30, 5),
        Footprint(20, 0, 3, 1, 0),
    ):
        assert not now.problem(start)
    for now in (
        Footprint(29, 0, 3, 1, 0),
        Footprint(20, 1, 3, 1, 0),
        Footprint(20, 0, 12, 1, 0),
        Footprint(20, 0, 3, 31, 5),
    ):
        assert now.problem(start)
    # With transactions two brokers have two lines to each other, and from each other.
    three = with_transactions(3 * start)
    assert not Footprint(20, 0, 19, 1, 0).problem(three)
    assert Footprint(20, 0, 20, 1, 0).problem(three)
