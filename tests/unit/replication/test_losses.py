"""What is said of an unclean election, and what is not taken for one."""

from __future__ import annotations

import pytest

from tidelog.cluster.image import PartitionState
from tidelog.model import TopicPartition
from tidelog.replication.losses import elected_without_records, report_dropped

BEFORE = PartitionState(0, -1, 3, (2, 1), (), 7, elr=(2,))
AFTER = BEFORE._replace(leader=1, isr=(1,), elr=(), leader_epoch=4, partition_epoch=8)


def test_a_leader_that_was_neither_in_sync_nor_eligible_lacks_records() -> None:
    assert elected_without_records(BEFORE, AFTER, 1)
    assert not elected_without_records(BEFORE, AFTER, 2), "it is not the leader"
    assert not elected_without_records(BEFORE._replace(elr=(1, 2)), AFTER, 1)
    assert not elected_without_records(None, AFTER, 1)


def test_where_steps_were_missed_it_may_have_come_in_sync_meanwhile() -> None:
    assert not elected_without_records(BEFORE, AFTER._replace(partition_epoch=9), 1)


def test_a_move_that_ends_elects_a_replica_that_comes_in_sync_by_the_same_step() -> None:
    before = PartitionState(0, 2, 3, (2, 1), (2,), 7, adding=(1,), removing=(2,))
    after = PartitionState(0, 1, 4, (1,), (1,), 8)
    assert not elected_without_records(before, after, 1)


def test_all_that_is_dropped_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    partition = TopicPartition("t", 0)
    report_dropped(partition, (1, 4), 10, (14, 15))
    report_dropped(partition, (1, 4), 10, (8, 15))
    report_dropped(partition, (1, 4), 10, (10, 10))
    known, unknown = caplog.records
    assert (known.name, unknown.levelname) == ("tidelog.audit", "INFO")
    assert known.getMessage().endswith("first_offset=10 last_offset=13 log_end_offset=15")
    assert unknown.getMessage().endswith("first_offset=10 last_offset=14")
