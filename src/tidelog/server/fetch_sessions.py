"""Incremental fetch sessions (KIP-227): a consumer names its partitions once.

A session remembers, for one client, the partitions it fetches and what the client was last told of
each, so that a fetch and its answer carry only what changed. It also knows which of them may have
something to tell: those are `ready`, in the order in which they are served next. All others are
watched, and become ready by the next change of what can be read of them. So a fetch costs by the
partitions that have news, not by those in the session.

Bounds: the number of sessions, the partitions of one, and the memory of all together, in which a
large fetch without a session counts while it waits. Where there is no room a client gets no session
and goes on with full fetches. Room is made as in Kafka: a session that was not used for two minutes
gives way; a larger one replaces a smaller one that is older than that, and one of a follower
replaces one of a consumer. Before all of these goes a session of whose partitions most cannot be
read: it is of no use to its client, and costs nothing to ask for.

Session ids are drawn at random and belong to nobody: they are not secrets, and a wrong one gets an
error that makes the client start over. Those of followers are for followers alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.clock import Clock
from tidelog.host.random import Random
from tidelog.model import LogPosition
from tidelog.replication.partition import Partition
from tidelog.replication.waiters import Watchers

if TYPE_CHECKING:
    from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
NO_REPLICA = -1
_EPOCH_MAX = 2**31 - 1
_EVICTION_SECONDS = 120.0
# What a partition takes: itself, its key, its places in three dictionaries. Measured, and rounded.
_TARGET_BYTES = 500
# A fetch of so many partitions may always wait without a session: a connection has only one that
# waits, and what it holds is small beside the rest of the connection.
SMALL_FETCH_PARTITIONS = 256

Key = tuple[str, UUID, int]


class FetchTarget:
    """One partition of a fetch, and what its reader was told last."""

    __slots__ = (
        "fetch_offset",
        "is_missing",
        "key",
        "known_epoch",
        "last_fetched_epoch",
        "log_start",
        "max_bytes",
        "partition",
        "position",
        "session",
        "told_error",
        "told_high_watermark",
        "told_last_stable",
        "told_log_start",
        "watched",
    )

    def __init__(self, key: Key, session: FetchSession) -> None:
        self.key = key
        self.session = session
        self.told_high_watermark = self.told_last_stable = self.told_log_start = -2
        self.told_error = False
        # There was no partition to be read when it was looked at last.
        self.is_missing = False
        # The partition that was looked at last, and where in it `fetch_offset` lies.
        self.partition: Partition | None = None
        self.position: LogPosition | None = None
        self.watched: Watchers | None = None

    def update(self, part: FetchPartition) -> None:
        self.fetch_offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.known_epoch = part.current_leader_epoch
        self.last_fetched_epoch = part.last_fetched_epoch
        self.log_start = part.log_start_offset

    def news(self) -> None:
        self.watched = None
        self.session.has_news(self)

    @property
    def asked_at(self) -> float:
        """When its reader last fetched with this partition in the session; 0 where it is not."""
        session = self.session
        return session.last_used if session.targets.get(self.key) is self else 0.0

    def small_news(self) -> None:
        self.session.ready[self] = None

    def unwatch(self) -> None:
        if self.watched is not None:
            self.watched.discard(self)
            self.watched = None


class FetchSession:
    """The partitions of one reader; one that is not kept lives as long as its fetch."""

    __slots__ = (
        "charged_bytes",
        "created_at",
        "epoch",
        "is_closed",
        "is_privileged",
        "isolation",
        "last_used",
        "missing",
        "ready",
        "rules",
        "session_id",
        "size_bytes",
        "targets",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(self, uses_topic_ids: bool, isolation: int, is_privileged: bool) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.uses_topic_ids = uses_topic_ids
        self.isolation = isolation
        self.is_privileged = is_privileged
        self.is_closed = False
        self.targets: dict[Key, FetchTarget] = {}
        # Those that may have something to tell, the next to be served first.
        self.ready: dict[FetchTarget, None] = {}
        # What decided who may read when it was last asked; see `Authorizer.rules`.
        self.rules: object = None
        self.size_bytes = self.charged_bytes = 0
        # How many of the targets are.
        self.missing = 0
        self.created_at = self.last_used = 0.0
        # The fetch that waits for news.
        self.waiting: FetchWaiter | None = None

    @property
    def is_kept(self) -> bool:
        return self.session_id != NO_SESSION

    def add(self, topic: str, topic_id: UUID, part: FetchPartition) -> None:
        key = (topic, topic_id, part.partition)
        target = self.targets.get(key)
        if target is None:
            target = self.targets[key] = FetchTarget(key, self)
            self.size_bytes += _size(key)
        target.update(part)
        self.ready[target] = None

    def forget(self, key: Key) -> None:
        target = self.targets.pop(key, None)
        if target is not None:
            self.size_bytes -= _size(key)
            self.found(target)
            self.ready.pop(target, None)
            target.unwatch()

    def missed(self, target: FetchTarget) -> None:
        """There is no partition to be read for a target."""
        if not target.is_missing and self.targets.get(target.key) is target:
            target.is_missing = True
            self.missing += 1

    def found(self, target: FetchTarget) -> None:
        """It is not missing, or not any more."""
        if target.is_missing:
            target.is_missing = False
            self.missing -= 1

    def watch(self, target: FetchTarget, partition: Partition) -> None:
        """Hear of the next change of what can be read of the partition."""
        mark = partition.watermark
        watchers = mark.replica_watchers if self.is_privileged else mark.watchers
        if target.watched is not watchers and not self.is_closed:
            target.unwatch()
            target.watched = watchers
            watchers.add(target)

    def has_news(self, target: FetchTarget) -> None:
        if self.targets.get(target.key) is target:
            self.ready[target] = None
            if self.waiting is not None:
                self.waiting.news(target)

    def rest(self, target: FetchTarget) -> None:
        """Leave a target alone that has nothing to tell, unless it had news meanwhile."""
        if target.watched is not None:
            self.ready.pop(target, None)

    def served(self, target: FetchTarget) -> None:
        """It got data: let the others go first next time."""
        if self.ready.pop(target, self) is None:
            self.ready[target] = None

    def all_ready(self) -> None:
        self.ready = dict.fromkeys(self.targets.values())

    def close(self) -> None:
        """Watch nothing any more, and let go of the targets, which hold the session in turn."""
        self.is_closed = True
        for target in self.targets.values():
            if target.watched is not None:
                target.unwatch()
        if self.waiting is not None:
            self.waiting.finish()
        self.targets.clear()
        self.ready.clear()


class FetchWaiter(Protocol):
    """A fetch that waits, as its session sees it."""

    def news(self, target: FetchTarget) -> None:
        """A target of the session has news."""
        ...

    def finish(self) -> None:
        """Answer now."""
        ...


@dataclass(slots=True)
class FetchPlan:
    """What one fetch is to look at."""

    session: FetchSession
    is_incremental: bool


@dataclass(slots=True, frozen=True)
class SessionLimits:
    """The bounds of all sessions."""

    slots: int
    partitions: int
    size_bytes: int


class FetchSessions:
    """The bounded cache of sessions of one broker."""

    def __init__(self, limits: SessionLimits, clock: Clock, random: Random) -> None:
        self._limits = limits
        self._clock = clock
        self._random = random
        # Least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # The last session of each follower.
        self._of_replicas: dict[int, int] = {}
        # Of sessions and of fetches without one that wait.
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, is_privileged: bool) -> FetchPlan:
        """The session of a fetch, yet without what it changes; KafkaError for a wrong one."""
        uses_topic_ids = version >= 13
        isolation = request.isolation_level
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if self._find(request.session_id, is_privileged) is not None:
                self.drop(request.session_id)
            session = FetchSession(uses_topic_ids, isolation, is_privileged)
            return FetchPlan(session, is_incremental=False)
        found = self._find(request.session_id, is_privileged)
        if found is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if found.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if found.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._touch(found)
        if found.isolation != isolation:
            found.isolation = isolation
            found.all_ready()
        return FetchPlan(found, is_incremental=True)

    def _find(self, session_id: int, is_privileged: bool) -> FetchSession | None:
        """The session, where it is of this kind: a client must not read on as a follower."""
        found = self._sessions.get(session_id)
        return found if found is not None and found.is_privileged == is_privileged else None

    def settle(self, plan: FetchPlan, replica_id: int = NO_REPLICA) -> None:
        """The session now has the partitions of the request: keep it, or drop one that outgrew.

        A follower has one session here: what comes late of the one before is refused.
        """
        session = plan.session
        if not plan.is_incremental:
            before = self._of_replicas.pop(replica_id, NO_SESSION)
            if self._find(before, is_privileged=True) is not None:
                self.drop(before)
            if session.targets:
                self._keep(session)
            if replica_id != NO_REPLICA and session.is_kept:
                self._of_replicas[replica_id] = session.session_id
            return
        if session.is_kept:
            self._charge(session, session.size_bytes)
        too_many = len(session.targets) > self._limits.partitions
        if too_many or self.size_bytes > self._limits.size_bytes:
            # The client starts over with a full fetch, and gets a session where there is room.
            self.drop(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    # -- memory -----------------------------------------------------------------------------------

    def hold(self, session: FetchSession) -> bool:
        """Count a large fetch without a session while it waits; False where there is no room."""
        if len(session.targets) <= SMALL_FETCH_PARTITIONS:
            return True
        if not self._make_room(session, slots=0):
            return False
        self._charge(session, session.size_bytes)
        return True

    def let_go(self, session: FetchSession) -> None:
        """The fetch without a session has its answer, or its connection is gone."""
        self._charge(session, 0)

    def _charge(self, session: FetchSession, size_bytes: int) -> None:
        self.size_bytes += size_bytes - session.charged_bytes
        session.charged_bytes = size_bytes

    def _keep(self, session: FetchSession) -> None:
        """Give the session a slot and an id, where there is room or it can be made."""
        if len(session.targets) > self._limits.partitions or not self._make_room(session, slots=1):
            return
        session.session_id = self._fresh_id()
        self._sessions[session.session_id] = session
        self._charge(session, session.size_bytes)
        session.created_at = self._clock.monotonic()
        self._touch(session)

    def _make_room(self, session: FetchSession, slots: int) -> bool:
        """Evict others until there are slots and memory for the session, or nobody at all."""
        limits, evicted = self._limits, []
        slots_lacking = slots + len(self._sessions) - limits.slots if slots else 0
        bytes_lacking = session.size_bytes + self.size_bytes - limits.size_bytes
        if slots_lacking > 0 or bytes_lacking > 0:
            for each in self._evictable_by(session):
                evicted.append(each)
                slots_lacking -= 1
                bytes_lacking -= each.charged_bytes
                if slots_lacking <= 0 and bytes_lacking <= 0:
                    break
        if slots_lacking > 0 or bytes_lacking > 0:
            return False
        for each in evicted:
            self.drop(each.session_id)
        return True

    def _evictable_by(self, session: FetchSession) -> list[FetchSession]:
        now = self._clock.monotonic()
        useless, stale, others = [], [], []
        for each in self._sessions.values():
            outranked = session.is_privileged and not each.is_privileged
            may_replace = each.is_privileged <= session.is_privileged
            if may_replace and 2 * each.missing > len(each.targets):
                useless.append(each)
            elif now - each.last_used > _EVICTION_SECONDS:
                stale.append(each)
            elif outranked or (
                now - each.created_at > _EVICTION_SECONDS
                and may_replace
                and len(each.targets) < len(session.targets)
            ):
                others.append(each)
        others.sort(key=lambda each: (each.is_privileged, len(each.targets)))
        return useless + stale + others

    def drop(self, session_id: int) -> None:
        """Forget a session, if there is one of this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._charge(session, 0)
            session.session_id = NO_SESSION
            session.close()

    def _fresh_id(self) -> int:
        while True:
            session_id = 1 + self._random.below(2**31 - 1)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession) -> None:
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.last_used = self._clock.monotonic()
        self._sessions.move_to_end(session.session_id)


def _size(key: Key) -> int:
    return _TARGET_BYTES + len(key[0])
