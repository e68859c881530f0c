"""Topics that members name by a pattern: when it is resolved, and what follows.

A heartbeat with a pattern is answered at once, on what is known by then. The pattern is matched
behind it, in pieces between which the loop turns, and what it was found to match is written down
(a record for each pattern of a group). Where that changes, the group's epoch rises, and members
hear of it with their next heartbeats. Patterns are matched again when topics come or go, though
not more often than once in a second, and in full every ten minutes, since what a member may
describe can change too. As in Kafka, topics that the member who asks may not describe are left
out, and internal topics are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.consumer.changes import Records, group_record, pattern_record
from tidelog.coordinators.groups.consumer.expressions import (
    Found,
    ResolvedPattern,
    Search,
    compile_pattern,
    refused,
)
from tidelog.coordinators.groups.consumer.group import ConsumerGroup, PatternMatching, hash_topics
from tidelog.coordinators.groups.settings import Caller
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.timers import Timer, TimerKind, Timers
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now

_log = logging.getLogger(__name__)

_PATTERNS_MAX: Final = 100
_PAUSE_MS: Final = 1_000
_IN_FULL_INTERVAL_MS: Final = 10 * 60 * 1_000
# How long one piece and all else that the loop did since may take before pieces become smaller.
_PIECE_MS: Final = 5
_PIECE_NAMES_MAX: Final = 500


def check_pattern(pattern: str, group: ConsumerGroup) -> None:
    """KafkaError unless the group can take the pattern as a new one."""
    if len(group.pattern_subscribers) >= _PATTERNS_MAX:
        raise refused(f"The group uses {_PATTERNS_MAX} different patterns, which is the most.")
    compile_pattern(pattern)


class Patterns:
    """Keeps the patterns of one shard's groups resolved."""

    def __init__(
        self, groups: GroupTable, timers: Timers, image: Callable[[], MetadataImage]
    ) -> None:
        self._groups = groups
        self._timers = timers
        self.image = image

    def refresh(self, group: ConsumerGroup, caller: Caller, now: Now) -> None:
        """A member was heard of: have the group's patterns matched soon, if there is need."""
        timer = Timer(TimerKind.CONSUMER_PATTERNS, group.group_id)
        if timer in self._timers or not self._is_stale(group, now):
            return
        group.matching.may_describe = caller.may_describe
        self._timers.schedule(timer, max(now.ms, group.matching.at_ms + _PAUSE_MS))

    def _is_stale(self, group: ConsumerGroup, now: Now) -> bool:
        return (
            group.matching.topics is not self.image().topics
            or group.pattern_subscribers.keys() != group.resolved.keys()
            or now.ms >= group.matching.in_full_ms + _IN_FULL_INTERVAL_MS
        )

    def due(self, timer: Timer, now: Now) -> Outcome:
        """Begin to match a group's patterns, or go on with it."""
        group = self._groups.consumer(timer.group_id)
        assert group is not None, "a group that goes takes its timers with it"
        if group.matching.pieces is None:
            group.matching = self._begin(group, now)
        else:
            _fit(group.matching, now)
        matching = group.matching
        assert matching.pieces is not None
        try:
            next(matching.pieces)
        except StopIteration as end:
            matching.pieces = matching.search = None
            return self._found(group, end.value, now)
        matching.piece_ms = now.ms
        self._timers.schedule(timer, now.ms + 1)
        return Outcome()

    def _begin(self, group: ConsumerGroup, now: Now) -> PatternMatching:
        before, image = group.matching, self.image()
        search = Search(
            tuple(group.pattern_subscribers),
            image.topics,
            before.topics,
            dict(group.resolved),
            before.may_describe,
            before.piece_names,
        )
        begun = PatternMatching(
            image.topics, image.version, now.ms, before.in_full_ms, before.piece_names, search
        )
        if now.ms >= before.in_full_ms + _IN_FULL_INTERVAL_MS:
            search.known, begun.in_full_ms = {}, now.ms
        begun.pieces = search.pieces()
        return begun

    def _found(self, group: ConsumerGroup, found: Found, now: Now) -> Outcome:
        """Write down what is new; the epoch rises where patterns match other topics than before."""
        records: Records = []
        topics = group.subscribers.copy()
        has_changed = False
        for pattern, matched in found.items():
            known = group.resolved.get(pattern)
            if pattern not in group.pattern_subscribers or (known and known.topics == matched):
                continue
            resolved = ResolvedPattern(matched, group.matching.version, now.wall_ms)
            records.append(pattern_record(group.group_id, pattern, resolved))
            before = frozenset() if known is None else known.topics
            has_changed = has_changed or before != matched or _has_target(group, pattern)
            topics.subtract(before)
            topics.update(matched)
        if has_changed:
            left = (name for name, count in topics.items() if count > 0)
            epoch = group.epoch + 1
            records.append(group_record(group.group_id, epoch, hash_topics(left, self.image())))
            _log.info("rebalance begins group=%s epoch=%d reason=patterns", group.group_id, epoch)
        matching = group.matching
        topics_matched, matching.topics = matching.topics, {}

        def appended() -> None:
            # Only now: where the append is refused, they are matched again.
            matching.topics = topics_matched

        return Outcome(None, records, appended)


def _fit(matching: PatternMatching, now: Now) -> None:
    """Take more names at once where the last piece was quick, and fewer where it was not."""
    assert matching.search is not None
    size = matching.piece_names
    is_quick = now.ms - matching.piece_ms <= _PIECE_MS
    matching.piece_names = min(2 * size, _PIECE_NAMES_MAX) if is_quick else max(1, size // 2)
    matching.search.piece_names = matching.piece_names


def _has_target(group: ConsumerGroup, pattern: str) -> bool:
    """Whether a member that names a pattern is to own anything, by what it named before."""
    return any(
        group.targets.get(each.member_id)
        for each in group.members.values()
        if each.pattern == pattern
    )
