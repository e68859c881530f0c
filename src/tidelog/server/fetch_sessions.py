"""Incremental fetch sessions (KIP-227): a consumer names its partitions once.

A session remembers, for one client, the partitions it fetches, in which order they come next, and
what the client was last told of each, so that a fetch and its answer carry only what changed. The
cache has a fixed number of slots; when it is full a session unused for two minutes gives way, else
the client simply gets none and goes on with full fetches.

Session ids are drawn at random and belong to nobody: they are not secrets, and a wrong one gets an
error that makes the client start over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.clock import Clock
from tidelog.host.random import Random
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
_EPOCH_MAX = 2**31 - 1
_EVICTION_SECONDS = 120.0

Key = tuple[str, UUID, int]


@dataclass(slots=True)
class FetchTarget:
    """One partition of a fetch, and what its reader was told last."""

    topic: str
    topic_id: UUID
    partition: int
    fetch_offset: int = 0
    max_bytes: int = 0
    known_epoch: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -2
    told_log_start: int = -2
    told_error: bool = False

    @property
    def key(self) -> Key:
        return (self.topic, self.topic_id, self.partition)

    def update(self, part: FetchPartition) -> None:
        self.fetch_offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.known_epoch = part.current_leader_epoch
        self.last_fetched_epoch = part.last_fetched_epoch


class FetchSession:
    """The partitions of one reader, in the order in which they are served next."""

    __slots__ = ("epoch", "last_used", "session_id", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH
        self.uses_topic_ids = uses_topic_ids
        self.targets: OrderedDict[Key, FetchTarget] = OrderedDict()
        self.last_used = 0.0

    def add(self, topic: str, topic_id: UUID, part: FetchPartition) -> None:
        key = (topic, topic_id, part.partition)
        target = self.targets.get(key)
        if target is None:
            target = self.targets[key] = FetchTarget(topic, topic_id, part.partition)
        target.update(part)

    def served(self, target: FetchTarget) -> None:
        """It got data: let the others go first next time."""
        if target.key in self.targets:
            self.targets.move_to_end(target.key)


@dataclass(slots=True)
class FetchPlan:
    """What one fetch is to look at, and in whose session."""

    targets: list[FetchTarget]
    session: FetchSession | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    """The bounded cache of sessions of one broker."""

    def __init__(self, slots_max: int, clock: Clock, random: Random) -> None:
        self._slots_max = slots_max
        self._clock = clock
        self._random = random
        # Least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int) -> FetchPlan:
        """The partitions to look at; KafkaError where the session is unknown or out of step."""
        uses_topic_ids = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = FetchSession(NO_SESSION, uses_topic_ids)
            for topic, topic_id, part in _parts(request):
                session.add(topic, topic_id, part)
            targets = list(session.targets.values())
            if request.session_epoch == FINAL_EPOCH or not targets:
                return FetchPlan(targets, None, False)
            return FetchPlan(targets, self._keep(session), False)
        return self._continue(request, uses_topic_ids)

    def _continue(self, request: FetchRequest, uses_topic_ids: bool) -> FetchPlan:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for topic, topic_id, part in _parts(request):
            session.add(topic, topic_id, part)
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                session.targets.pop((forgotten.topic, forgotten.topic_id, partition), None)
        self._touch(session)
        return FetchPlan(list(session.targets.values()), session, True)

    def _keep(self, session: FetchSession) -> FetchSession | None:
        """Give the session a slot and an id, or None where there is no room."""
        if len(self._sessions) >= self._slots_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or self._clock.monotonic() - oldest.last_used < _EVICTION_SECONDS:
                return None
            del self._sessions[oldest.session_id]
        session.session_id = self._fresh_id()
        self._sessions[session.session_id] = session
        self._touch(session)
        return session

    def _fresh_id(self) -> int:
        while True:
            session_id = 1 + self._random.below(2**31 - 1)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession) -> None:
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.last_used = self._clock.monotonic()
        self._sessions.move_to_end(session.session_id)


def _parts(request: FetchRequest) -> Iterator[tuple[str, UUID, FetchPartition]]:
    for topic in request.topics:
        for part in topic.partitions:
            yield topic.topic, topic.topic_id, part
