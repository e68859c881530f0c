"""Fetch (key 1), versions 4 to 18.

Behaviour: returns whole batches from the one that contains the requested offset, up to the high
watermark, or to the last stable offset for `read_committed`. The first partition with data returns
at least one batch, however small the limits are, so that a reader always makes progress; after it
`max_bytes` and `partition_max_bytes` apply to the batch. With less than `min_bytes` available and
no error, the answer waits up to `max_wait_ms`; meanwhile only positions are summed, and nothing is
read from disk. A partition of a session is inspected only when it may have news. A follower reads
to the end of the log; a fetch from an offset shows that the follower has everything before it, and
may advance the watermark and the ISR. Only a broker may fetch as a replica; while it waits, another
fetch of its session ends the wait and reports changed positions. For a throttled partition, a
follower that is not in sync gets what the rate leaves (KIP-73). A client beyond its quota gets only
the time to wait, and its session stays unchanged.
Versions: 7 sessions, 9 and 12 leader epochs and divergence, 10 zstd, 11 racks, 13 topic ids, 15 the
broker epoch of a follower, 16 the new leader (KIP-951). What 17 and 18 add is not needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterator
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import Codec, Isolation
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from tidelog.replication.partition import Partition
from tidelog.replication.reading import PartitionRead, Reader
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.fetch_sessions import FINAL_EPOCH, FetchPlan, FetchTarget
from tidelog.server.handlers.fetch_answers import (
    DivergingEpochError,
    has_changed,
    partition_data,
    refused,
    remember,
)
from tidelog.server.handlers.fetch_wait import FetchWait
from tidelog.server.handlers.leader_throttle import leader_throttle
from tidelog.server.handlers.leaders import MOVED, CurrentLeaders
from tidelog.server.handlers.read_replicas import reader_of, reader_rack, sent_nearer
from tidelog.server.pieces import PIECE_UNITS
from tidelog.server.routes import served
from tidelog.server.tools import DataContext

_log = logging.getLogger(__name__)

_VERSION_WITH_ZSTD, _VERSION_WITH_LEADERS = 10, 16
# What a partition takes of an answer, beside its records; an estimate for quotas.
_PARTITION_BYTES = 64


@served(waits=True, is_brief=True)
def fetch(
    request: FetchRequest, context: DataContext
) -> Generator[int, None, FetchResponse | asyncio.Future[FetchResponse]]:
    try:
        replica = _replica(request)
        if replica is not None:
            context.require(Operation.CLUSTER_ACTION, CLUSTER)
            context.overlaps = True
        sessions = context.tools.fetch_sessions
        plan = sessions.begin(request, context.version, replica is not None)
        if replica is None and plan.session.rules is not (rules := context.rules):
            # What may be read may be something else by now, also of partitions without news.
            plan.session.rules = rules
            if plan.session.targets:
                plan.session.all_ready()
        if plan.session.waiting is not None:
            # A follower has something to say, or a consumer has given up on its last fetch.
            plan.session.waiting.finish()
        for topic in request.topics:
            for part in topic.partitions:
                plan.session.add(topic.topic, topic.topic_id, part)
                yield 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                plan.session.forget((forgotten.topic, forgotten.topic_id, index))
                yield 1
        if request.session_epoch != FINAL_EPOCH:
            sessions.settle(plan, -1 if replica is None else replica.broker_id)
    except KafkaError as error:
        return refused(request, error.code, context.version)
    attempt = FetchAttempt(request, context, plan, replica)
    try:
        for target in attempt.to_look_at():
            attempt.look_at(target, replica)
            yield 1
        if not attempt.is_enough() and attempt.may_wait():
            return attempt.wait()
        return (yield from attempt.tell_all())
    except BaseException:
        # Also where the client is gone, which ends a long fetch between two pieces.
        attempt.abandon()
        raise


class Replica(NamedTuple):
    """The follower that fetches, in which of its lives."""

    broker_id: int
    broker_epoch: int


def _replica(request: FetchRequest) -> Replica | None:
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return Replica(state.replica_id, state.replica_epoch)
    return Replica(request.replica_id, -1) if request.replica_id >= 0 else None


class FetchAttempt:
    """One fetch from its first look at the partitions to its answer."""

    def __init__(
        self,
        request: FetchRequest,
        context: DataContext,
        plan: FetchPlan,
        replica: Replica | None = None,
    ) -> None:
        self._context = context
        self._replica = replica
        self._sessions = context.tools.fetch_sessions
        self._is_incremental = plan.is_incremental
        self.session = plan.session
        is_replica = plan.session.is_privileged
        self.isolation = Isolation.REPLICA if is_replica else request.isolation_level
        self.reader = reader_of(context, is_replica=is_replica)
        asking = _replica(request) if is_replica else None
        self._throttle = None if asking is None else leader_throttle(context, asking.broker_id)
        is_nearby = self.reader is Reader.ANYWHERE and bool(request.rack_id)
        self._rack = reader_rack(request, context) if is_nearby else ""
        self.turns = context.turns
        self._max_wait_ms = request.max_wait_ms
        config = context.tools.replicas.config
        self._max_bytes = min(request.max_bytes, config.get_int("fetch.max.bytes"))
        self._is_limited = context.throttling.is_on and not is_replica
        if self._is_limited:
            self._max_bytes = min(self._max_bytes, context.throttling.fetch_bytes_max(context))
        self._throttle_ms = 0
        # Nobody waits for more than one answer may hold.
        self.min_bytes = min(request.min_bytes, self._max_bytes)
        self.reads: dict[FetchTarget, PartitionRead | KafkaError] = {}
        self._topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
        # Those who lead what was refused here.
        self._leaders: CurrentLeaders | None = None
        self._bytes_read = 0
        # An error, or a better place to read: the client wants to hear of it at once.
        self._has_errors = False
        # There is a session, or memory to wait without one.
        self._is_held = False
        # Those with data that did not fit behind what others gave.
        self._held_back: list[FetchTarget] = []

    # -- one pass over the partitions ----------------------------------------------------------

    def to_look_at(self) -> Iterator[FetchTarget]:
        """The partitions that may have something to tell, within the limits.

        A full answer names every partition. One of a session leaves those that do not fit for the
        next time, when they come first.
        """
        self._bytes_read = 0
        self._has_errors = False
        self._held_back = []
        if self._throttle is not None:
            self._throttle.look_again()
        ready = tuple(self.session.ready)
        return takewhile(self._has_room, ready) if self._is_incremental else iter(ready)

    def _has_room(self, _: FetchTarget) -> bool:
        return self._bytes_read == 0 or self._bytes_read < self._max_bytes

    def look_at(self, target: FetchTarget, replica: Replica | None = None) -> None:
        """Read a partition; an error is kept in its place.

        A replica is given at the first look: that it asks from here counts once, and not again
        when its wait is over.
        """
        session = self.session
        partition = None
        try:
            partition = self.partition(target)
            read = self._read(partition, target, replica)
        except (TidelogError, OSError) as error:
            # A damaged batch is one partition's fault: the others are served all the same.
            if not isinstance(error, KafkaError):
                error = self._damage(target, error)
            self.reads[target] = error
            self._has_errors = True
            if partition is None:
                session.missed(target)
            return
        session.found(target)
        target.partition = partition
        if read.preferred_replica >= 0:
            self._has_errors = True
            self.reads[target] = read
            target.position = None
            return
        if read.slices is not None:
            self._bytes_read += read.slices.size_bytes
            if self._throttle is not None:
                self._throttle.count(target, read.slices.size_bytes)
            self.reads[target] = read
            target.position = None
            return
        if self._throttle is not None and target in self._throttle.held:
            # As below, and it is looked at again when the rate allows.
            target.unwatch()
            target.position = None
        elif (
            self._bytes_read and partition.readable_end(self.isolation).offset > target.fetch_offset
        ):
            # It has data, which does not fit into this answer. No append need follow, so it is
            # not left to a watch: it stays ready, in front of those that are served now.
            target.unwatch()
            target.position = None
            self._held_back.append(target)
        elif self._max_wait_ms > 0 or session.is_kept:
            end = partition.readable_end(self.isolation)
            target.position = end if end.offset == target.fetch_offset else None
            session.watch(target, partition)
        if self._is_incremental and not has_changed(target, read):
            self._rest(target)
            self.reads.pop(target, None)
        else:
            self.reads[target] = read

    def _rest(self, target: FetchTarget) -> None:
        """Leave a target alone until it has news, or its follower is to show itself again: the
        next fetch of the session does that, though it does not name the partition."""
        replica, partition = self._replica, target.partition
        if replica is None or partition is None or partition.leading.has_heard(replica.broker_id):
            self.session.rest(target)

    def _damage(self, target: FetchTarget, error: Exception) -> KafkaError:
        """The answer for data that cannot be used; the log has a line of it now and then."""
        name, topic_id, index = target.key
        count = self._context.tools.damage_rate.count(target.key)
        if count:
            _log.error(
                "cannot read partition=%s-%s fetches=%d error=%s",
                name or topic_id, index, count, error,
            )  # fmt: skip
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def is_enough(self) -> bool:
        return self._has_errors or not self.session.targets or self._bytes_read >= self.min_bytes

    def _read(
        self, partition: Partition, target: FetchTarget, replica: Replica | None
    ) -> PartitionRead:
        partition.check_reader(target.known_epoch, self.reader)
        if target.last_fetched_epoch >= 0 and partition.leads:
            # Before the range is looked at: who diverges may stand beyond the log's end.
            self._check_divergence(partition, target)
        if self._rack and partition.leads:
            sent = sent_nearer(partition, self._rack, target.fetch_offset, self._context)
            if sent is not None:
                return sent
        if replica is not None:
            partition.replica_fetches(*replica, target.fetch_offset, target.log_start, target)
        left = self._max_bytes - self._bytes_read
        most, at_least_one = max(0, min(target.max_bytes, left)), self._bytes_read == 0
        allowed = None if self._throttle is None else self._throttle.allowed(partition, target)
        if allowed is not None:
            most, at_least_one = min(most, allowed), at_least_one and allowed > 0
        return partition.read(target.fetch_offset, most, self.isolation, at_least_one)

    def partition(self, target: FetchTarget) -> Partition:
        """The partition that a target names now; KafkaError where there is none to be read."""
        context = self._context
        name, topic_id, index = target.key
        if context.version >= 13:
            topic = context.topic_by_id(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        if self._replica is None:
            context.require_topic(Operation.READ, name)
        partition = context.tools.replicas.find(name, index)
        if context.version < _VERSION_WITH_ZSTD and partition.config.target_codec is Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return partition

    def _check_divergence(self, partition: Partition, target: FetchTarget) -> None:
        """A reader whose last batch is of an epoch that ended earlier must step back (KIP-595)."""
        end = partition.epoch_end(target.last_fetched_epoch)
        if end.end_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"leader epoch {target.last_fetched_epoch} is not known",
            )
        diverges = (
            end.leader_epoch < target.last_fetched_epoch or end.end_offset < target.fetch_offset
        )
        if diverges:
            raise DivergingEpochError(end.leader_epoch, end.end_offset)

    # -- waiting -------------------------------------------------------------------------------

    def may_wait(self) -> bool:
        """Whether the client has the time, and what there is can be told later as well."""
        if self._max_wait_ms <= 0:
            return False
        self._is_held = self.session.is_kept or self._sessions.hold(self.session)
        return self._is_held or not self._bytes_read

    def wait(self) -> asyncio.Future[FetchResponse]:
        """An answer once there is enough, something went wrong, or the time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[FetchResponse] = loop.create_future()
        if not self._is_held:
            self._pause(future)
            return future
        wait = FetchWait(self, future)
        wait_s = self._max_wait_ms / 1000
        if self._throttle is not None:
            wait_s = self._throttle.wait_s(wait_s)
        timer = loop.call_later(wait_s, wait.finish)

        def clean_up(_: object) -> None:
            timer.cancel()
            wait.stop()
            self._leave()

        future.add_done_callback(clean_up)
        wait.start(self._release())
        return future

    def _pause(self, future: asyncio.Future[FetchResponse]) -> None:
        """Without the memory to wait in, answer nothing when the time is up.

        An answer at once would make the client ask again at once. The throttle time says that an
        answer without its partitions is meant so (KIP-219).
        """
        self.abandon()
        self.reads.clear()

        def finish() -> None:
            if not future.done():
                future.set_result(FetchResponse(throttle_time_ms=1))

        timer = asyncio.get_running_loop().call_later(self._max_wait_ms / 1000, finish)
        future.add_done_callback(lambda _: timer.cancel())

    def _release(self) -> list[FetchTarget]:
        """Let go of what was read, which is read again after the wait; those that have data."""
        had_data = []
        for target, read in self.reads.items():
            if isinstance(read, PartitionRead) and read.slices is not None:
                read.slices.release()
                had_data.append(target)
        for target in had_data:
            del self.reads[target]
        return had_data + self._held_back

    def abandon(self) -> None:
        """Nobody gets an answer: hold no segment and watch no partition for it."""
        self._release()
        if not self._is_incremental:
            # The client has not heard of its session.
            self._sessions.drop(self.session.session_id)
        self._leave()

    def _leave(self) -> None:
        """The end of a fetch without a session; one whose session is gone has left already."""
        session = self.session
        if not session.is_kept and not session.is_closed:
            if session.charged_bytes:
                self._sessions.let_go(session)
            session.close()

    # -- the answer ----------------------------------------------------------------------------

    def answer_again(self) -> Generator[int, None, FetchResponse]:
        """The answer after a wait."""
        try:
            for target in self.to_look_at():
                self.look_at(target)
                yield 1
            return (yield from self.tell_all())
        except BaseException:
            self.abandon()
            raise

    def tell_all(self) -> Generator[int, None, FetchResponse]:
        """The answer, of what was read."""
        if self._is_limited:
            self._throttle_ms, is_given = self._context.throttling.fetched(
                self._context, self._size_bytes()
            )
            if not is_given:
                return self._withheld()
        for target, read in self.reads.items():
            self._tell(target, read)
            yield 1
        return self._response()

    def _size_bytes(self) -> int:
        """What the answer counts for, before it is made."""
        return self._bytes_read + _PARTITION_BYTES * len(self.reads)

    def _withheld(self) -> FetchResponse:
        """The answer to a client beyond its quota: nothing, and the session is as it was.

        A session that begins with this fetch does not begin: the client has yet to hear of it.
        """
        if not self._is_incremental:
            self.abandon()
        else:
            self._release()
        self.reads.clear()
        return FetchResponse(self._throttle_ms, session_id=self.session.session_id)

    def _tell(self, target: FetchTarget, read: PartitionRead | KafkaError) -> None:
        """Put what was read of one partition into the answer."""
        session = self.session
        data = partition_data(target, read)
        if session.is_kept:
            remember(target, data)
            if data.records:
                session.served(target)
            elif not isinstance(read, KafkaError):
                self._rest(target)
        name, topic_id, _ = target.key
        topic = self._topics.get((name, topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=name, topic_id=topic_id)
            self._topics[name, topic_id] = topic
        topic.partitions.append(data)
        if data.error_code in MOVED and self._context.version >= _VERSION_WITH_LEADERS:
            if self._leaders is None:
                self._leaders = CurrentLeaders(self._context)
            data.current_leader = self._leaders.of(*target.key, LeaderIdAndEpoch)

    def _response(self) -> FetchResponse:
        if len(self.reads) > PIECE_UNITS:
            self._context.in_pieces = True
        if self._throttle is not None:
            self._throttle.answered()
        self._context.tools.metrics.fetched_bytes += self._bytes_read
        topics = list(self._topics.values())
        answer = FetchResponse(
            self._throttle_ms, session_id=self.session.session_id, responses=topics
        )
        if self._leaders is not None:
            answer.node_endpoints = self._leaders.endpoints(NodeEndpoint)
        self._leave()
        return answer
