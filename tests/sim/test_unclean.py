"""Three real brokers on simulated machines: what unclean elections lose is said, to the offset."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.three import Three, simulate
from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.replication.partition import Partition
from tidelog.server.parts import Parts
from tidelog.testing.disk import CrashMode

# Longer than `replica.high.watermark.checkpoint.interval.ms`.
CHECKPOINT_S = 6.0


def parts(three: Three, broker_id: int) -> Parts:
    broker = three.machines[broker_id].broker
    assert broker is not None
    return broker.parts


def replica(three: Three, broker_id: int) -> Partition:
    return parts(three, broker_id).replicas.find("t", 0)


async def commit_on_broker_2_alone(three: Three) -> None:
    """Ten records on brokers 1 and 2, and five more on 2."""
    await three.produce(10)
    await three.until(lambda: replica(three, 1).high_watermark == 10)
    three.machines[1].kill()
    await three.until(lambda: three.state().isr == (2,))
    await three.produce(5)
    assert replica(three, 2).high_watermark == 15


def lines(caplog: pytest.LogCaptureFixture, first_words: str) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.name == "tidelog.audit"]
    return [each for each in found if each.startswith(first_words)]


def lost_records(three: Three) -> int:
    up = [each.broker_id for each in three.machines if each.is_up]
    return sum(parts(three, each).replicas.standing.lost_records for each in up)


async def come_back(three: Three) -> None:
    await three.machines[2].start()
    await three.until(lambda: set(three.state().isr) == {1, 2})
    assert replica(three, 2).log.log_end_offset == replica(three, 1).log.log_end_offset == 10


def check_audit(caplog: pytest.LogCaptureFixture, epoch: int) -> None:
    whole = f"partition=t-0 leader=1 leader_epoch={epoch}"
    (elected,) = lines(caplog, "elected a leader that may lack committed records")
    assert elected.endswith(f"{whole} replicas_that_had_them=[2]")
    (leads,) = lines(caplog, "leads without committed records")
    assert f"{whole} log_end_offset=10 " in leads
    assert leads.endswith("replicas_that_had_them=[2]")
    (dropped,) = lines(caplog, "dropped committed records")
    assert dropped.endswith(f"{whole} first_offset=10 last_offset=14 log_end_offset=15")


def test_an_unclean_election_that_was_asked_for_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(three: Three) -> None:
        await three.create({0: [2, 1]}, min_insync_replicas="1")
        await commit_on_broker_2_alone(three)
        await three.machines[2].stop()
        await three.machines[1].start()
        assert not three.state().has_leader
        elect = ElectLeadersRequest(1, [TopicPartitions("t", [0])])
        response = await three.ask(elect)
        (result,) = response.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.NONE
        await three.until(lambda: three.state().leader == 1)
        epoch = three.state().leader_epoch
        await come_back(three)
        assert lost_records(three) == 5
        check_audit(caplog, epoch)
        controllers = [parts(three, each).membership.controller for each in range(3)]
        assert sum(each.unclean_elections for each in controllers if each is not None) == 1

    simulate(script)


def test_a_topic_that_allows_unclean_elections_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(three: Three) -> None:
        configs = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}
        await three.create({0: [2, 1]}, **configs)
        await three.produce(10)
        await three.until(lambda: replica(three, 1).high_watermark == 10)
        # It falls behind, and is there when the leader ends.
        three.world.network.cut("b1", "b2")
        three.world.network.cut("b2", "b1")
        await three.produce(5)
        assert three.state().isr == (2,)
        # It says what it knows to be committed, and that is what it has written down.
        await asyncio.sleep(CHECKPOINT_S)
        three.machines[2].kill()
        await three.until(lambda: three.state().leader == 1)
        epoch = three.state().leader_epoch
        three.world.network.heal_all()
        await come_back(three)
        (dropped,) = lines(caplog, "dropped committed records")
        assert f"leader=1 leader_epoch={epoch} first_offset=10 last_offset=14" in dropped
        assert dropped.endswith("log_end_offset=15")
        (leads,) = lines(caplog, "leads without committed records")
        assert "log_end_offset=10 " in leads

    simulate(script)


def test_clean_elections_and_moves_lose_nothing(caplog: pytest.LogCaptureFixture) -> None:
    from tests.sim.test_administration import reassignment

    async def script(three: Three) -> None:
        await three.create({0: [2]})
        await three.produce(10)
        await three.ask(reassignment([1]))
        await three.until(lambda: three.state().replicas == (1,))
        await three.ask(reassignment([0, 1]))
        await three.until(lambda: set(three.state().isr) == {0, 1})
        three.machines[1].kill()
        await three.until(lambda: three.state().leader == 0)
        await three.machines[1].start()
        await three.until(lambda: set(three.state().isr) == {0, 1})
        assert lines(caplog, "") == []
        assert lost_records(three) == 0

    simulate(script)


def test_a_lossy_sole_replica_leads_at_once_and_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(three: Three) -> None:
        await three.create({0: [2]})
        await three.produce(10)
        # The watermark is written down, the records are still in the page cache.
        own = parts(three, 2)
        own.data_dir.checkpoint({TopicPartition("t", 0): 10}).run()
        epoch = three.state().leader_epoch
        three.machines[2].cut_power(CrashMode.LOSE_ALL)
        await three.until(lambda: not three.state().has_leader)
        await three.machines[2].start()
        await three.until(lambda: three.state().leader == 2)
        assert three.state().leader_epoch > epoch
        (elected,) = lines(caplog, "elected a leader that may lack committed records")
        assert "partition=t-0 leader=2 " in elected
        (lost,) = lines(caplog, "records lost with the power")
        assert lost.endswith("first_offset=0 last_offset=9")
        await three.produce(1)

    simulate(script)
