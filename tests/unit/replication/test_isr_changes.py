"""Proposals of a leader to its controller: what becomes of each kind of answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from tests.unit.replication.test_replicated import EPOCHS, REPLICAS, Cluster, replicated
from tidelog.cluster.commands import AlterPartition, Answer, PartitionDecided
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.isr_changes import IsrChanges
from tidelog.replication.partition import Partition
from tidelog.testing.virtual_loop import virtual_time

LAG_S = 30.0


class Controller:
    """Answers proposals as a test says, the last answer again and again."""

    def __init__(self, cluster: Cluster, *answers: ErrorCode | None) -> None:
        self._cluster = cluster
        self._answers = list(answers)
        self.asked: list[AlterPartition] = []

    async def submit_all(self, commands: Sequence[AlterPartition]) -> list[Answer | KafkaError]:
        self.asked += commands
        await asyncio.sleep(0.01)
        code = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if code is not None:
            return [KafkaError(code) for _ in commands]
        (command,) = commands
        isr = tuple(sorted(each.broker_id for each in command.proposal.isr))
        decided = self._cluster.state._replace(
            isr=isr, partition_epoch=self._cluster.state.partition_epoch + 1
        )
        self._cluster.state = decided
        return [PartitionDecided(decided)]


async def lagging(*answers: ErrorCode | None) -> tuple[Cluster, Controller, IsrChanges]:
    """Broker 2 has been silent for too long, broker 1 has not."""
    cluster = await replicated(b"a")
    controller = Controller(cluster, *answers)
    changes = IsrChanges(cluster.places[0].standing, controller.submit_all)
    cluster.put(b"b")
    await asyncio.sleep(LAG_S + 1)
    for _ in range(2):
        await cluster.fetch(1)
    changes.look_for_lag([cluster.leader])
    await asyncio.sleep(0.1)
    return cluster, controller, changes


@virtual_time
async def test_a_follower_that_fell_behind_leaves_and_comes_back_by_fetching() -> None:
    cluster, controller, _ = await lagging(None)
    assert (cluster.leader.isr, cluster.leader.high_watermark) == ((0, 1), 2)
    assert controller.asked[0].proposal.isr == ((0, EPOCHS[0]), (1, EPOCHS[1]))
    for _ in range(2):
        await cluster.fetch(2)
    await asyncio.sleep(0.1)
    assert cluster.leader.isr == REPLICAS
    standing = cluster.places[0].standing
    assert (standing.isr_shrinks, standing.isr_expansions) == (1, 1)


@virtual_time
async def test_a_proposal_of_which_nothing_is_known_is_made_again_as_it_was() -> None:
    cluster, controller, _ = await lagging(ErrorCode.REQUEST_TIMED_OUT, None)
    assert cluster.leader.isr == REPLICAS and cluster.leader.high_watermark == 1
    await asyncio.sleep(1)
    assert cluster.leader.isr == (0, 1)
    first, again = controller.asked
    assert first.proposal is again.proposal


@virtual_time
async def test_r8_a_proposal_that_was_overtaken_counts_until_the_metadata_tells() -> None:
    for code in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH):
        cluster, controller, _ = await lagging(code)
        await asyncio.sleep(5)
        assert len(controller.asked) == 1
        in_sync = cluster.leader.leading.in_sync
        assert in_sync is not None and in_sync.pending is not None
        assert cluster.leader.high_watermark == 1
        cluster.shrink((0, 1))
        assert in_sync.pending is None and cluster.leader.high_watermark == 2


@virtual_time
async def test_a_refused_proposal_is_given_up_and_made_anew_when_it_is_due() -> None:
    cluster, controller, changes = await lagging(ErrorCode.INELIGIBLE_REPLICA, None)
    assert cluster.leader.isr == REPLICAS
    changes.look_for_lag([cluster.leader])
    await asyncio.sleep(0.1)
    assert cluster.leader.isr == (0, 1) and len(controller.asked) == 2


class Idle:
    """A partition whose leader has nothing to propose, and counts how often it was asked."""

    def __init__(self) -> None:
        self.leading = self
        self.asked = 0

    def propose(self) -> None:
        self.asked += 1


@virtual_time
async def test_ten_thousand_partitions_without_a_proposal_do_not_hold_up_the_loop() -> None:
    cluster = await replicated(b"a")
    changes = IsrChanges(cluster.places[0].standing, Controller(cluster, None).submit_all)
    partitions = [Idle() for _ in range(10_000)]
    for each in partitions:
        changes.reconsider(cast(Partition, each))
    most = seen = 0
    while seen < len(partitions):
        await asyncio.sleep(0)
        now = sum(each.asked for each in partitions)
        most, seen = max(most, now - seen), now
    assert most <= 1_000
    assert all(each.asked == 1 for each in partitions)
    await changes.stop()


@virtual_time
async def test_nobody_is_proposed_by_a_broker_that_no_longer_leads() -> None:
    cluster, controller, _ = await lagging(ErrorCode.REQUEST_TIMED_OUT)
    cluster.elect(1, (1,))
    await asyncio.sleep(5)
    assert len(controller.asked) == 1


async def leading_alone(*answers: ErrorCode | None) -> tuple[Cluster, Controller]:
    """Both followers have all of the log, and neither is in the ISR."""
    cluster = await replicated(b"a")
    cluster.shrink((0,))
    cluster.leader.leading.min_isr = 1
    controller = Controller(cluster, *answers)
    IsrChanges(cluster.places[0].standing, controller.submit_all)
    return cluster, controller


@virtual_time
async def test_a_follower_that_caught_up_while_another_was_proposed_joins_as_well() -> None:
    cluster, controller = await leading_alone(None)
    await cluster.fetch(1)
    await asyncio.sleep(0.005)
    assert len(controller.asked) == 1 and cluster.leader.isr == (0,)
    # It has everything, so it is not heard of before there is something new.
    await cluster.fetch(2)
    await asyncio.sleep(0.1)
    assert cluster.leader.isr == REPLICAS and len(controller.asked) == 2


@virtual_time
async def test_a_proposal_that_was_overtaken_is_made_anew_once_the_metadata_tells() -> None:
    cluster, controller = await leading_alone(ErrorCode.INVALID_UPDATE_VERSION, None)
    await cluster.fetch(1)
    await asyncio.sleep(0.1)
    assert len(controller.asked) == 1 and cluster.leader.isr == (0,)
    # Somebody else has changed the partition.
    cluster.change(0, (0,), cluster.state.leader_epoch)
    await asyncio.sleep(0.1)
    assert cluster.leader.isr == (0, 1) and len(controller.asked) == 2


@virtual_time
async def test_a_partition_that_breaks_at_its_answer_does_not_keep_others_from_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, sound = await replicated(b"a"), await replicated(b"a")

    async def submit_all(commands: Sequence[AlterPartition]) -> list[Answer | KafkaError]:
        decided = sound.state._replace(isr=(0,), partition_epoch=sound.state.partition_epoch + 1)
        return [PartitionDecided(decided) for _ in commands]

    def fail(*args: object) -> None:
        raise AssertionError("an in-sync replica that is not a replica")

    monkeypatch.setattr(broken.leader.leading, "decided", fail)
    changes = IsrChanges(broken.places[0].standing, submit_all)
    for cluster in (broken, sound):
        cluster.put(b"b")
    await asyncio.sleep(LAG_S + 1)
    changes.look_for_lag([broken.leader, sound.leader])
    await asyncio.sleep(0.1)
    assert broken.leader.offline_reason is not None
    assert sound.leader.isr == (0,)
