"""Which task reads what: ranges of partitions packed into tasks, or split where asked.

A task costs Spark some 25 ms, so small ranges share one; a partition is read by one task, in order,
unless `minPartitions` or `maxRecordsPerPartition` asks for more. Offsets stand for records: where
compaction has left gaps, or transactions their markers, a range holds fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tidelog.arrow.scan import PartitionRange

# Below this a task of its own costs more than it saves.
ROWS_PER_TASK = 100_000


@dataclass(slots=True, frozen=True)
class TaskLimits:
    """What the user asks of tasks; None where he does not."""

    min_tasks: int | None = None
    max_rows: int | None = None


def plan_tasks(
    ranges: Sequence[PartitionRange], limits: TaskLimits | None = None
) -> list[list[PartitionRange]]:
    """The ranges of each task; every record is in exactly one, and none is empty."""
    wanted = [each for each in ranges if each.start < each.end]
    tasks = _plan(wanted, limits or TaskLimits()) if wanted else []
    planned = sum(_rows(each) for task in tasks for each in task)
    assert planned == sum(map(_rows, wanted)) and all(tasks), "tasks read all, once"
    return tasks


def _plan(wanted: list[PartitionRange], asked: TaskLimits) -> list[list[PartitionRange]]:
    if asked.max_rows is not None:
        wanted = [part for each in wanted for part in _cut(each, -(-_rows(each) // asked.max_rows))]
    if asked.min_tasks is not None and len(wanted) < asked.min_tasks:
        wanted = _split_evenly(wanted, asked.min_tasks)
    if asked.max_rows is not None or asked.min_tasks is not None:
        return [[each] for each in wanted]
    total = sum(_rows(each) for each in wanted)
    tasks = min(len(wanted), max(1, -(-total // ROWS_PER_TASK)))
    return _pack(wanted, tasks)


def _rows(part: PartitionRange) -> int:
    return part.end - part.start


def _cut(part: PartitionRange, count: int) -> list[PartitionRange]:
    rows = _rows(part)
    edges = [part.start + rows * index // count for index in range(count + 1)]
    return [replace(part, start=low, end=high) for low, high in pairwise(edges) if low < high]


def _split_evenly(parts: list[PartitionRange], count: int) -> list[PartitionRange]:
    """About `count` pieces, large ranges cut into more of them than small ones."""
    total = sum(_rows(each) for each in parts)
    shares = [max(1, round(count * _rows(each) / total)) for each in parts]
    while sum(shares) < count:
        fullest = max(range(len(parts)), key=lambda at: _rows(parts[at]) / shares[at])
        shares[fullest] += 1
    return [
        piece
        for part, share in zip(parts, shares, strict=True)
        for piece in _cut(part, min(share, _rows(part)))
    ]


def _pack(parts: list[PartitionRange], tasks: int) -> list[list[PartitionRange]]:
    """Largest first, each to the task that has least so far."""
    packed: list[list[PartitionRange]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for part in sorted(parts, key=lambda each: (-_rows(each), each.topic, each.partition)):
        lightest = loads.index(min(loads))
        packed[lightest].append(part)
        loads[lightest] += _rows(part)
    return packed
