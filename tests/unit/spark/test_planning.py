"""Which task reads what."""

from __future__ import annotations

import random

import pytest

from tidelog.arrow.scan import PartitionRange
from tidelog.spark.source.planning import ROWS_PER_TASK, TaskLimits, plan_tasks


def ranges(*sizes: int) -> list[PartitionRange]:
    return [PartitionRange("t", at, 100, 100 + size) for at, size in enumerate(sizes)]


def rows(task: list[PartitionRange]) -> int:
    return sum(each.end - each.start for each in task)


def test_small_ranges_share_a_task() -> None:
    [task] = plan_tasks(ranges(10, 0, 20, 5))
    assert rows(task) == 35
    assert len(task) == 3


def test_large_ranges_have_tasks_of_about_the_same_size() -> None:
    tasks = plan_tasks(ranges(*[ROWS_PER_TASK // 2] * 8))
    assert [rows(task) for task in tasks] == [ROWS_PER_TASK] * 4


def test_a_partition_is_not_split_unless_asked() -> None:
    tasks = plan_tasks(ranges(50 * ROWS_PER_TASK, 10))
    assert sorted(rows(task) for task in tasks) == [10, 50 * ROWS_PER_TASK]


def test_nothing_to_read_is_no_task() -> None:
    assert plan_tasks(ranges(0, 0)) == []
    assert plan_tasks([]) == []


@pytest.mark.parametrize("wanted", [1, 2, 5, 7, 40])
def test_min_partitions_splits_the_large_ones(wanted: int) -> None:
    tasks = plan_tasks(ranges(1_000, 100, 10), TaskLimits(min_tasks=wanted))
    assert len(tasks) >= wanted
    assert sum(rows(task) for task in tasks) == 1_110


def test_max_records_bounds_every_task() -> None:
    tasks = plan_tasks(ranges(1_000, 7), TaskLimits(max_rows=300))
    assert [rows(task) for task in tasks] == [250, 250, 250, 250, 7]


def test_every_offset_is_in_exactly_one_task() -> None:
    chance = random.Random(7)
    tried = 0
    for _ in range(300):
        sizes = [chance.choice((0, 1, 3, 1_000, 90_000, 400_000)) for _ in range(6)]
        limits = TaskLimits(chance.choice((None, 1, 3, 20)), chance.choice((None, 1_000, 250_000)))
        given = ranges(*sizes)
        tasks = plan_tasks(given, limits)
        assert all(task and all(each.start < each.end for each in task) for task in tasks)
        for part in given:
            pieces = sorted(
                (each.start, each.end)
                for task in tasks
                for each in task
                if each.partition == part.partition
            )
            at = part.start
            for start, end in pieces:
                assert start == at
                at = end
            assert at == part.end
        tried += 1
    assert tried == 300
