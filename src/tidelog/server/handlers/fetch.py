"""Fetch (key 1), versions 4 to 16.

Behaviour: whole batches from the one that holds the offset asked for, up to the high watermark, or
to the last stable offset for `read_committed`. The first partition that has data gives at least one
batch however small the limits are, so that a reader never stands still; after it `max_bytes` and
`partition_max_bytes` hold to the batch. With less than `min_bytes` at hand and no error the answer
waits, up to `max_wait_ms`, while only positions are summed: nothing is read from disk for it.
Versions: 7 sessions, 9 and 12 leader epochs and divergence, 10 zstd, 13 topic ids.
Gaps: no followers are served yet; a replica id is refused except on the inter-broker listener.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec, LogPosition
from tidelog.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.replication.partition import Partition, PartitionRead
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.context import RequestContext
from tidelog.server.dispatch import handles
from tidelog.server.fetch_sessions import FetchPlan, FetchTarget

_VERSION_WITH_ZSTD = 10


@handles(1)
def fetch(
    request: FetchRequest, context: RequestContext
) -> FetchResponse | asyncio.Future[FetchResponse]:
    try:
        follower = request.replica_state
        if request.replica_id >= 0 or (follower is not None and follower.replica_id >= 0):
            context.require(Operation.CLUSTER_ACTION, CLUSTER)
        plan = context.services.fetch_sessions.plan(request, context.version)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    attempt = FetchAttempt(request, context, plan)
    attempt.read()
    if attempt.is_enough() or request.max_wait_ms <= 0:
        return attempt.response()
    return attempt.wait()


class FetchAttempt:
    """One fetch from its first look at the partitions to its answer."""

    def __init__(self, request: FetchRequest, context: RequestContext, plan: FetchPlan) -> None:
        self._request = request
        self._context = context
        self._plan = plan
        self._max_bytes = min(request.max_bytes, context.services.config.get_int("fetch.max.bytes"))
        self._reads: list[PartitionRead | KafkaError] = []
        self._bytes_read = 0
        self._has_errors = False

    # -- one pass over the partitions ----------------------------------------------------------

    def read(self) -> None:
        """Read every partition within the limits; errors are kept in the partition's place."""
        self._reads = []
        self._bytes_read = 0
        for target in self._plan.targets:
            try:
                result = self._read_one(target)
            except KafkaError as error:
                self._reads.append(error)
                self._has_errors = True
                continue
            if result.slices is not None:
                self._bytes_read += result.slices.size_bytes
            self._reads.append(result)

    def is_enough(self) -> bool:
        targets = self._plan.targets
        return self._has_errors or not targets or self._bytes_read >= self._request.min_bytes

    def _read_one(self, target: FetchTarget) -> PartitionRead:
        partition = self._partition(target)
        partition.check_leader(target.known_epoch)
        self._check_divergence(partition, target)
        left = self._max_bytes - self._bytes_read
        return partition.read(
            target.fetch_offset,
            max(0, min(target.max_bytes, left)),
            self._request.isolation_level,
            at_least_one=self._bytes_read == 0,
        )

    def _partition(self, target: FetchTarget) -> Partition:
        context = self._context
        name = target.topic
        if context.version >= 13:
            topic = context.topic_by_id(target.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        if not context.authorize_topic(Operation.READ, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = context.services.replicas.find(name, target.partition)
        if context.version < _VERSION_WITH_ZSTD and partition.config.target_codec is Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return partition

    def _check_divergence(self, partition: Partition, target: FetchTarget) -> None:
        """A reader whose last batch is of an epoch that ended earlier must step back (KIP-595)."""
        if target.last_fetched_epoch < 0:
            return
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

    def wait(self) -> asyncio.Future[FetchResponse]:
        """An answer once there is enough, something went wrong, or the time is up."""
        self._release()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[FetchResponse] = loop.create_future()
        watch = FetchWatch(self, future)
        timer = loop.call_later(self._request.max_wait_ms / 1000, watch.finish)

        def clean_up(_: object) -> None:
            timer.cancel()
            watch.stop()

        future.add_done_callback(clean_up)
        watch.start()
        return future

    @property
    def min_bytes(self) -> int:
        return self._request.min_bytes

    def watched(self) -> list[tuple[FetchTarget, Partition, int]]:
        """The partitions to watch while waiting, with the isolation to watch them at."""
        isolation = self._request.isolation_level
        return [(target, self._partition(target), isolation) for target in self._plan.targets]

    def _release(self) -> None:
        for read in self._reads:
            if isinstance(read, PartitionRead) and read.slices is not None:
                read.slices.release()

    # -- the answer ----------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        plan = self._plan
        topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
        for target, read in zip(plan.targets, self._reads, strict=True):
            data = self._partition_data(target, read)
            if plan.is_incremental and not _is_news(target, data):
                continue
            _remember(target, data)
            if plan.session is not None and data.records:
                plan.session.served(target)
            topic = topics.get((target.topic, target.topic_id))
            if topic is None:
                topic = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id)
                topics[target.topic, target.topic_id] = topic
            topic.partitions.append(data)
        self._context.services.metrics.fetched_bytes += self._bytes_read
        return FetchResponse(session_id=plan.session_id, responses=list(topics.values()))

    def _partition_data(
        self, target: FetchTarget, read: PartitionRead | KafkaError
    ) -> PartitionData:
        data = PartitionData(partition_index=target.partition, records=b"")
        if isinstance(read, DivergingEpochError):
            data.diverging_epoch = EpochEndOffset(read.leader_epoch, read.end_offset)
            return data
        if isinstance(read, KafkaError):
            data.error_code = read.code
            data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
            return data
        data.high_watermark = read.high_watermark
        data.last_stable_offset = read.last_stable_offset
        data.log_start_offset = read.log_start_offset
        if read.aborted is None:
            data.aborted_transactions = None
        else:
            data.aborted_transactions = [
                AbortedTransaction(producer_id, first) for producer_id, first in read.aborted
            ]
        if read.slices is not None:
            data.records = read.slices
        return data


class FetchWatch:
    """Sums what has become readable while a fetch waits."""

    def __init__(self, attempt: FetchAttempt, future: asyncio.Future[FetchResponse]) -> None:
        self._attempt = attempt
        self._future = future
        self._available: list[int] = []
        self._total = 0
        self._removals: list[tuple[Partition, int]] = []

    def start(self) -> None:
        try:
            watched = self._attempt.watched()
        except KafkaError:
            self.finish()
            return
        for index, (target, partition, isolation) in enumerate(watched):
            position = _position(partition, target.fetch_offset, isolation)
            self._available.append(0)

            def changed(
                index: int = index,
                target: FetchTarget = target,
                partition: Partition = partition,
                isolation: int = isolation,
                position: LogPosition = position,
            ) -> None:
                self._update(index, target, partition, isolation, position)

            self._removals.append((partition, partition.watchers.add(changed)))
            changed()
            if self._future.done():
                return

    def stop(self) -> None:
        for partition, key in self._removals:
            partition.watchers.remove(key)
        self._removals.clear()

    def finish(self) -> None:
        """Read again and answer with whatever there is now."""
        if not self._future.done():
            self._attempt.read()
            self._future.set_result(self._attempt.response())

    def _update(
        self,
        index: int,
        target: FetchTarget,
        partition: Partition,
        isolation: int,
        position: LogPosition,
    ) -> None:
        try:
            partition.check_leader(target.known_epoch)
            partition.check_offset(target.fetch_offset)
        except KafkaError:
            self.finish()
            return
        available = min(target.max_bytes, partition.readable_bytes(position, isolation))
        self._total += available - self._available[index]
        self._available[index] = available
        if self._total >= self._attempt.min_bytes:
            self.finish()


class DivergingEpochError(KafkaError):
    """Not an error on the wire: the answer tells the reader where to step back to."""

    def __init__(self, leader_epoch: int, end_offset: int) -> None:
        super().__init__(ErrorCode.NONE)
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


def _position(partition: Partition, offset: int, isolation: int) -> LogPosition:
    end = partition.readable_end(isolation)
    # At the tail, where nearly every waiting reader stands, there is nothing to look up.
    return end if offset >= end.offset else partition.log.locate(offset)


def _is_news(target: FetchTarget, data: PartitionData) -> bool:
    if data.records or data.error_code or data.diverging_epoch or target.told_error:
        return True
    return (
        target.told_high_watermark != data.high_watermark
        or target.told_log_start != data.log_start_offset
    )


def _remember(target: FetchTarget, data: PartitionData) -> None:
    target.told_high_watermark = data.high_watermark
    target.told_log_start = data.log_start_offset
    target.told_error = data.error_code != 0
