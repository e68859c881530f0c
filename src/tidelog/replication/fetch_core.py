"""What a follower asks one leader for, and to which question an answer belongs. Pure.

One object speaks for all partitions that follow one leader, in one incremental fetch session
(KIP-227): a request names only partitions whose place has changed, so those that are idle cost
nothing. The rules:

- An answer belongs to the request whose answer it is: for each partition it comes with the place
  that the leader was told by then. The partition compares it with the place where it stands.
- A session lives on one connection. After a loss, another broker epoch of ours or an error of the
  session, the next request names everything again.
- A partition in trouble leaves the session and comes back later: after a time that doubles, or as
  soon as it follows in another leader epoch. The others do not notice.
- A second request may be sent while the first waits for news, to tell the leader of places that
  have changed; the leader answers the first one at once then. Never a third.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from tidelog.client.faults import error_code
from tidelog.errors import ErrorCode
from tidelog.host.random import Random
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tidelog.replication.followed import FollowedPartition
from tidelog.replication.following import FetchFrom

if TYPE_CHECKING:
    from tidelog.replication.fetchers import FetchSettings

NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1
_FIRST_REST_S: Final = 0.02

Key = tuple[UUID, int]


class Followed:
    """One partition, and what its leader has been told of it."""

    __slots__ = (
        "_told_before", "_told_in", "behind_since", "high_watermark", "is_behind", "is_busy",
        "key", "partition", "rested_epoch", "resting_until", "rests", "session", "told",
    )  # fmt: skip

    def __init__(self, partition: FollowedPartition, session: LeaderSession) -> None:
        self.partition = partition
        self.session = session
        self.key: Key = (partition.topic_id, partition.topic_partition.partition)
        # The place that the leader knows; None where this partition is not in the session.
        self.told: FetchFrom | None = None
        self._told_before: FetchFrom | None = None
        self._told_in = 0
        # In trouble until then, for so many times in a row, since it followed in that epoch.
        self.resting_until: float | None = None
        self.rests = 0
        self.rested_epoch = -1
        # Being cut: it asks for nothing until that is done.
        self.is_busy = False
        self.high_watermark = 0
        # Not known to have all that is committed. Every replica that is in sync has.
        self.is_behind = True
        self.behind_since: float | None = None

    def news(self) -> None:
        """The partition's place has changed by itself (`FollowedPartition.fetch_watchers`)."""
        self.session.place_changed(self)

    def small_news(self) -> None:
        """Nothing here can wait."""
        self.news()

    @property
    def is_throttled(self) -> bool:
        """Whether its records count against the broker's rate, and wait for it."""
        return self.is_behind and self.partition.is_throttled

    def tell(self, place: FetchFrom | None, number: int) -> None:
        """The leader knows this place from request `number` on."""
        self._told_before, self.told, self._told_in = self.told, place, number

    def asked_by(self, number: int) -> FetchFrom | None:
        """The place that the leader knew when it answered request `number`."""
        return self.told if self._told_in <= number else self._told_before

    def place(self) -> FetchFrom | None:
        """Where to fetch from now; None where it is not to be asked for."""
        if self.is_busy or self.resting_until is not None:
            return None
        return self.partition.next_fetch()


class Asked(NamedTuple):
    """A request under way."""

    number: int
    request: FetchRequest
    is_full: bool


class Answered(NamedTuple):
    """What a leader says of one partition, and the place it was asked from."""

    followed: Followed
    asked: FetchFrom
    data: PartitionData


@dataclass(slots=True)
class _Topics:
    """Partitions gathered by topic, as requests name them."""

    by_id: dict[UUID, FetchTopic] = field(default_factory=dict)
    keys: set[Key] = field(default_factory=set)

    def add(self, key: Key, place: FetchFrom, bytes_max: int) -> None:
        self.keys.add(key)
        topic = self.by_id.get(key[0])
        if topic is None:
            topic = self.by_id[key[0]] = FetchTopic(topic_id=key[0], partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=key[1],
                current_leader_epoch=place.leader_epoch,
                fetch_offset=place.offset,
                last_fetched_epoch=place.last_epoch,
                log_start_offset=place.log_start,
                partition_max_bytes=bytes_max,
            )
        )


class LeaderSession:
    """See the module's docstring."""

    def __init__(
        self, settings: FetchSettings, random: Random, on_news: Callable[[], None]
    ) -> None:
        self.settings = settings
        self._on_news = on_news
        self.followed: dict[Key, Followed] = {}
        # How many are in the session, as far as the leader has been told.
        self.asked_for = 0
        self._random = random
        self._session_id = NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._number = 0
        self._broker_epoch = -1
        # Whose place may be another than the leader knows, and who left.
        self._changed: dict[Followed, None] = {}
        self._left: dict[Key, None] = {}
        self._resting: list[tuple[float, int, Followed]] = []
        self._rests = 0
        # What throttled partitions may take together; None for any amount.
        self._quota_left: int | None = None

    # -- who follows ------------------------------------------------------------------------------

    def follow(self, partition: FollowedPartition) -> Followed:
        """Fetch a partition from now on, or look again at one whose place may have changed."""
        key = (partition.topic_id, partition.topic_partition.partition)
        found = self.followed.get(key)
        if found is not None and found.partition is not partition:
            self.leave(found.partition)
            found = None
        if found is None:
            found = self.followed[key] = Followed(partition, self)
            self._watch(found)
        self.place_changed(found)
        return found

    def leave(self, partition: FollowedPartition) -> None:
        """Fetch it no more; what is still answered of it counts for nothing."""
        key = (partition.topic_id, partition.topic_partition.partition)
        found = self.followed.get(key)
        if found is None or found.partition is not partition:
            return
        del self.followed[key]
        partition.fetch_watchers.discard(found)
        self._changed.pop(found, None)
        self._forget(found)

    def close(self) -> None:
        for each in tuple(self.followed.values()):
            self.leave(each.partition)

    def place_changed(self, followed: Followed) -> None:
        """Look at its place before the next request."""
        if self.followed.get(followed.key) is not followed:
            return
        self._watch(followed)
        if followed.resting_until is not None:
            place = followed.partition.next_fetch()
            if place is None or place.leader_epoch == followed.rested_epoch:
                return
            # What the trouble was about has been decided anew.
            followed.resting_until, followed.rests = None, 0
        self._changed[followed] = None
        self._on_news()

    def _watch(self, followed: Followed) -> None:
        followed.partition.fetch_watchers.add(followed)

    @property
    def has_news(self) -> bool:
        """Whether the leader should hear of places that have changed."""
        return any(
            self.followed.get(each.key) is each and each.place() != each.told
            for each in self._changed
        )

    # -- trouble ----------------------------------------------------------------------------------

    def rest(self, followed: Followed, now: float) -> None:
        """Leave a partition alone for a time, longer each time in a row, up to the backoff."""
        if self.followed.get(followed.key) is not followed:
            return
        followed.rests += 1
        place = followed.partition.next_fetch()
        followed.rested_epoch = -1 if place is None else place.leader_epoch
        longest_s = self.settings.backoff_ms / 1000
        rest_s = min(longest_s, _FIRST_REST_S * 2 ** min(followed.rests - 1, 16))
        rest_s *= 0.8 + self._random.below(1001) / 2500
        self._rest_until(followed, now + rest_s)

    def limit(self, quota_left: int | None, window_ends_at: float) -> None:
        """What throttled partitions may take until then; they rest where that is nothing."""
        self._quota_left = quota_left
        if quota_left is not None and quota_left <= 0:
            for followed in self.followed.values():
                if followed.resting_until is None and followed.is_throttled:
                    place = followed.partition.next_fetch()
                    followed.rested_epoch = -1 if place is None else place.leader_epoch
                    self._rest_until(followed, window_ends_at)

    def _rest_until(self, followed: Followed, until: float) -> None:
        followed.resting_until = until
        self._rests += 1
        heapq.heappush(self._resting, (followed.resting_until, self._rests, followed))
        self._changed[followed] = None

    def went_well(self, followed: Followed) -> None:
        followed.rests = 0

    def wake_due(self, now: float) -> None:
        """Let those come back that have rested long enough."""
        while self._resting and self._resting[0][0] <= now:
            until, _, followed = heapq.heappop(self._resting)
            if followed.resting_until == until:
                followed.resting_until = None
                if self.followed.get(followed.key) is followed:
                    self._changed[followed] = None
                    self._on_news()

    @property
    def next_wake_at(self) -> float | None:
        return self._resting[0][0] if self._resting else None

    # -- asking -----------------------------------------------------------------------------------

    def next_request(self, replica: ReplicaState, max_wait_ms: int) -> Asked | None:
        """The next fetch; None where there is nothing to ask for."""
        if replica.replica_epoch != self._broker_epoch:
            # What an idle partition has shown counts for the life that it was shown in.
            self._broker_epoch = replica.replica_epoch
            self.start_over()
        is_full = self._session_id == NO_SESSION
        topics = _Topics()
        number = self._number + 1
        for followed in tuple(self.followed.values() if is_full else self._changed):
            if self.followed.get(followed.key) is followed:
                self._name(followed, topics, number, is_full=is_full)
        self._changed.clear()
        if not self.asked_for:
            return None
        self._number = number
        settings = self.settings
        forgotten = {} if is_full else self._take_left(topics)
        request = FetchRequest(
            replica_state=replica,
            max_wait_ms=max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=list(topics.by_id.values()),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in forgotten.items()
            ],
        )
        if not is_full:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return Asked(number, request, is_full)

    def _name(self, followed: Followed, topics: _Topics, number: int, *, is_full: bool) -> None:
        place = followed.place()
        if place is None:
            self._forget(followed)
        elif is_full or place != followed.told:
            self.asked_for += followed.told is None
            followed.tell(place, number)
            topics.add(followed.key, place, self._bytes_max(followed))

    def _bytes_max(self, followed: Followed) -> int:
        most = self.settings.partition_bytes_max
        if self._quota_left is None or not followed.is_throttled:
            return most
        return max(0, min(most, self._quota_left))

    def _forget(self, followed: Followed) -> None:
        if followed.told is not None:
            followed.tell(None, self._number + 1)
            self.asked_for -= 1
            self._left[followed.key] = None

    def _take_left(self, topics: _Topics) -> dict[UUID, list[int]]:
        """Who is to leave the leader's session, by topic; not who left and came back."""
        left, self._left = self._left, {}
        by_topic: dict[UUID, list[int]] = {}
        for key in left:
            if key not in topics.keys:
                by_topic.setdefault(key[0], []).append(key[1])
        return by_topic

    def start_over(self) -> None:
        """The session is gone: what is under way is void, and the next request names all."""
        self._session_id, self._epoch = NO_SESSION, _FIRST_EPOCH
        self._left.clear()
        self._changed.clear()
        self.asked_for = 0
        for followed in self.followed.values():
            followed.tell(None, self._number)
            followed.tell(None, self._number)

    # -- answers ----------------------------------------------------------------------------------

    def accept(self, asked: Asked, response: FetchResponse) -> ErrorCode:
        """Take note of the session that an answer speaks of, or of the error of the whole."""
        if response.error_code:
            self.start_over()
            return error_code(response.error_code)
        if asked.is_full and response.session_id != NO_SESSION:
            # Where there is none, the leader has no room: everything is named again next time.
            self._session_id, self._epoch = response.session_id, 1
        return ErrorCode.NONE

    def parts(self, asked: Asked, response: FetchResponse) -> Iterator[Answered]:
        """What was said of each partition that is still followed, and was asked for."""
        for topic in response.responses:
            for data in topic.partitions:
                followed = self.followed.get((topic.topic_id, data.partition_index))
                if followed is None:
                    continue
                place = followed.asked_by(asked.number)
                if place is not None:
                    yield Answered(followed, place, data)
                self._changed[followed] = None
