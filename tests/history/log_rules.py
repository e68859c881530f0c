"""The rules about the log itself: what was acknowledged and what anybody read (K1 to K4, K15)."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.history.events import (
    Acknowledged,
    AcknowledgedSomewhere,
    EndRead,
    Event,
    LogRead,
    Polled,
    Record,
    Sent,
)
from tests.history.report import Rule, Violation


class Contents:
    """Every partition, as sends and reads together tell it.

    `seen` is what was read, by the group or past it; `acknowledged` what producers were promised.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.seen: dict[str, dict[int, Event]] = defaultdict(dict)
        self.acknowledged: dict[str, dict[int, Acknowledged]] = defaultdict(dict)
        self.somewhere: list[AcknowledgedSomewhere] = []
        self.violations: list[Violation] = []
        self._values: dict[tuple[str, int], tuple[int, Event]] = {}
        self._places: dict[int, tuple[Record, Event]] = {}
        for event in events:
            if isinstance(event, Acknowledged):
                self._place(Record(event.partition, event.offset, event.value), event)
                self.acknowledged[event.partition].setdefault(event.offset, event)
            elif isinstance(event, AcknowledgedSomewhere):
                self.somewhere.append(event)
            elif isinstance(event, Polled | LogRead):
                for record in event.records:
                    self._place(record, event)
                    self.seen[record.partition].setdefault(record.offset, event)

    def has(self, value: int) -> bool:
        """Whether anybody read a value, or was told where it is."""
        return value in self._places

    def _place(self, record: Record, event: Event) -> None:
        value, first = self._values.setdefault(record[:2], (record.value, event))
        if value != record.value:
            what = f"{record.partition}@{record.offset} is {value} and then {record.value}"
            self.violations.append(Violation(Rule.INCONSISTENT_OFFSET, what, (first, event)))
            return
        place, first = self._places.setdefault(record.value, (record, event))
        if place != record:
            what = (
                f"value {record.value} is at {place.partition}@{place.offset}"
                f" and at {record.partition}@{record.offset}"
            )
            self.violations.append(Violation(Rule.DUPLICATE, what, (first, event)))


def lost_writes(contents: Contents) -> Iterator[Violation]:
    """K1: others behind it were read, this one never."""
    for partition, acknowledged in contents.acknowledged.items():
        seen = contents.seen[partition]
        highest = max(seen, default=-1)
        for offset, event in acknowledged.items():
            if offset < highest and offset not in seen:
                what = f"{partition}@{offset} was acknowledged, {highest} was read, it never was"
                yield Violation(Rule.LOST_WRITE, what, (event, seen[highest]))
    for promise in contents.somewhere:
        if not contents.has(promise.value):
            what = f"value {promise.value} of {promise.partition} was acknowledged and is nowhere"
            yield Violation(Rule.LOST_WRITE, what, (promise,))


def reorders(events: Iterable[Event]) -> Iterator[Violation]:
    """K4: of one producer, what was sent later lies at the higher offset."""
    order: dict[tuple[str, str], list[Sent]] = defaultdict(list)
    answers: dict[int, Acknowledged] = {}
    for event in events:
        if isinstance(event, Sent):
            order[event.producer, event.partition].append(event)
        elif isinstance(event, Acknowledged):
            answers.setdefault(event.value, event)
    for sends in order.values():
        last: Acknowledged | None = None
        for send in sends:
            answer = answers.get(send.value)
            if answer is None:
                continue
            if last is not None and answer.offset < last.offset:
                what = f"{answer.value} was sent after {last.value} and lies before it"
                yield Violation(Rule.REORDER, what, (last, answer))
            last = answer


def stale_reads(events: Iterable[Event], bound_ns: int) -> Iterator[Violation]:
    """K15: an end was told without what had been acknowledged long before anybody asked."""
    times: dict[str, list[int]] = defaultdict(list)
    highest: dict[str, list[Acknowledged]] = defaultdict(list)
    asked: list[EndRead] = []
    for event in events:
        if isinstance(event, Acknowledged):
            known = highest[event.partition]
            times[event.partition].append(event.time_ns)
            known.append(max(known[-1], event, key=_offset) if known else event)
        elif isinstance(event, EndRead):
            asked.append(event)
    for read in asked:
        count = bisect_right(times[read.partition], read.started_ns - bound_ns)
        if count and (missed := highest[read.partition][count - 1]).offset >= read.offset:
            age_s = (read.started_ns - missed.time_ns) / 1e9
            what = (
                f"{read.reader} was told that {read.partition} ends at"
                f" {read.partition}@{read.offset}, {missed.offset} was acknowledged"
                f" {age_s:.1f} s before"
            )
            yield Violation(Rule.STALE_READ, what, (missed, read))


def _offset(event: Acknowledged) -> int:
    return event.offset
