"""Topics that members name by a pattern: when it is resolved, and what follows.

A heartbeat with a pattern is answered at once, on what is known by then. The pattern is matched
behind it, in pieces between which the loop turns, and what it was found to match is written down
(a record for each pattern of a group). Where that changes, the group's epoch rises, and members
hear of it with their next heartbeats. Patterns are matched again when topics come or go, though
not more often than once in a second, and in full every ten minutes, since what a member may
describe can change too. As in Kafka, topics that the member who asks may not describe are left
out, and internal topics are not. In one turn of the loop a shard does one piece, of one group, or
writes one batch of what was found.
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

_PATTERNS_MAX: Final = 20
_PAUSE_MS: Final = 1_000
_IN_FULL_INTERVAL_MS: Final = 10 * 60 * 1_000
# Each append has one pattern at least, and others as long as their topics fit in this.
_APPEND_BYTES: Final = 64 << 10


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
        self._turn_ms = -1

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
        if self._turn_ms == now.ms:
            self._timers.schedule(timer, now.ms + 1)
            return Outcome()
        self._turn_ms = now.ms
        if group.matching.found is not None:
            return self._write(group, group.matching.found, now)
        if group.matching.pieces is None:
            group.matching = self._begin(group, now)
        matching = group.matching
        assert matching.pieces is not None
        try:
            next(matching.pieces)
        except StopIteration as end:
            matching.pieces = None
            return self._write(group, end.value, now)
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
        )
        begun = PatternMatching(image.topics, image.version, now.ms, before.in_full_ms)
        if now.ms >= before.in_full_ms + _IN_FULL_INTERVAL_MS:
            search.known, begun.in_full_ms = {}, now.ms
        begun.pieces = search.pieces()
        return begun

    def _write(self, group: ConsumerGroup, found: Found, now: Now) -> Outcome:
        """Write down what is new, as much as one append takes; the rest follows behind it.

        The epoch rises where patterns match other topics than before.
        """
        records: Records = []
        topics = group.subscribers.copy()
        has_changed = False
        rest, room = dict(found), _APPEND_BYTES
        for pattern, matched in found.items():
            known = group.resolved.get(pattern)
            if pattern in group.pattern_subscribers and not (known and known.topics == matched):
                size = sum(map(len, matched))
                if records and size > room:
                    break
                room -= size
                resolved = ResolvedPattern(matched, group.matching.version, now.wall_ms)
                records.append(pattern_record(group.group_id, pattern, resolved))
                before = frozenset() if known is None else known.topics
                has_changed = has_changed or before != matched or _has_target(group, pattern)
                topics.subtract(before)
                topics.update(matched)
            del rest[pattern]
        if has_changed:
            left = (name for name, count in topics.items() if count > 0)
            epoch = group.epoch + 1
            records.append(group_record(group.group_id, epoch, hash_topics(left, self.image())))
            _log.info("rebalance begins group=%s epoch=%d reason=patterns", group.group_id, epoch)
        matching = group.matching
        if matching.found is None:
            matching.matched, matching.topics = matching.topics, {}
        matching.found = None

        def appended() -> None:
            # Only now: where the append is refused, they are matched again.
            if rest:
                matching.found = rest
                timer = Timer(TimerKind.CONSUMER_PATTERNS, group.group_id)
                self._timers.schedule(timer, now.ms + 1)
            else:
                matching.topics = matching.matched

        return Outcome(None, records, appended)


def _has_target(group: ConsumerGroup, pattern: str) -> bool:
    """Whether a member that names a pattern is to own anything, by what it named before."""
    return any(
        group.targets.get(each.member_id)
        for each in group.members.values()
        if each.pattern == pattern
    )
