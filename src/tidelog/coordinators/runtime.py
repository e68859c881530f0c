"""Runs the group shards of a broker: loads them, appends for them, wakes them, answers for them.

Promises:

- A shard exists exactly while this broker leads its partition of `__consumer_offsets`; while it is
  being loaded its groups are answered COORDINATOR_LOAD_IN_PROGRESS, never with less than was kept.
- A change is appended through `Partition.append`, as a client's record is, then replayed; a refused
  append changes nothing and is answered with a retriable error.
- No answer leaves before all that its shard had appended by then is committed, so nobody is shown
  what a failover could take back; where that takes longer than `offsets.commit.timeout.ms`, the
  client is told to try again.
- Time during which the broker did not run is not held against members: the clock that sessions are
  measured by stands still while the loop does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.cluster.changes import Change, TopicDeleted
from tidelog.cluster.commands import Command
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinators.groups.records import CoordinatorRecord, OffsetCommitKey, encode_record
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.groups.stats import GroupCensus, GroupStats
from tidelog.coordinators.groups.topic import creation, partition_of
from tidelog.coordinators.loading import load
from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.host.host import Host
from tidelog.protocol.batches import Record, encode_batch, read_header
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas
from tidelog.storage.admission import Admitted

_log = logging.getLogger(__name__)

# How often the deadlines are looked at where none is nearer; also what a stall is seen by.
_TICK_MS: Final = 500
_STALL_MS: Final = 1_000
_LOAD_RETRY_SECONDS: Final = 5.0
# Records of one batch: a large change, such as the end of a topic, is appended in several.
_BATCH_RECORDS_MAX: Final = 1_000

Handler = Callable[[GroupShard, Now], Outcome]


@dataclass(slots=True)
class _Slot:
    """A partition of the offsets topic that this broker leads."""

    partition: Partition
    leader_epoch: int
    shard: GroupShard
    last_offset: int = -1
    # Of the last record that is not a committed offset.
    last_group_offset: int = -1
    error: KafkaError | None = None
    loading: asyncio.Task[None] | None = None


class GroupCoordinator:
    """All groups that this broker coordinates."""

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        host: Host,
        image: Callable[[], MetadataImage],
        submit: Callable[[Command], Awaitable[object]],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._host = host
        self._image = image
        self._submit = submit
        self._slots: dict[int, _Slot] = {}
        self._waiting: set[asyncio.Future[Any]] = set()
        self._creating = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._lost_ms = 0
        self._next_expiry_ms = 0
        self._running = False
        # A partition that is led could not be opened: a full disk, mostly.
        self._is_incomplete = False
        self.stats = GroupStats()

    # -- start and stop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what this broker leads; the metadata's changes are heard of from now on."""
        self._running = True
        self._next_expiry_ms = self.now().ms + self._expiry_interval_ms
        self._follow(self._image())
        self._arm(self.now().ms + _TICK_MS)

    def stop(self) -> None:
        """Answer whoever waits that the coordinator is going, and do nothing more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        for index in list(self._slots):
            self._discard(index)
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        for future in tuple(self._waiting):
            if not future.done():
                future.set_exception(error)

    async def settle(self) -> None:
        """Return once no shard is being loaded."""
        loads = [slot.loading for slot in self._slots.values() if slot.loading is not None]
        if loads:
            await asyncio.wait(loads)

    @property
    def config(self) -> BrokerConfig:
        return self._replicas.config

    @property
    def _expiry_interval_ms(self) -> int:
        return self.config.get_int("offsets.retention.check.interval.ms")

    def now(self) -> Now:
        clock = self._host.clock
        return Now(int(clock.monotonic() * 1000) - self._lost_ms, clock.wall_ms())

    # -- what handlers ask ------------------------------------------------------------------------

    async def ensure_topic(self) -> None:
        """Create the offsets topic where it is missing; KafkaError where that cannot be."""
        async with self._creating:
            image = self._image()
            if OFFSETS_TOPIC in image.topics:
                return
            try:
                await self._submit(creation(self.config, image))
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates the group; KafkaError where there is none now."""
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        state = topic.partitions[partition_of(group_id, len(topic.partitions))]
        if state.leader not in self._image().brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return state.leader

    def call(self, group_id: str, handler: Handler) -> Any | asyncio.Future[Any]:
        """Have the group's shard handle something; the answer, or a future that will hold it."""
        return self._run(self._slot_of(group_id), handler)

    def call_for_member(self, group_id: str, handler: Handler) -> Any | asyncio.Future[Any]:
        """As `call`, for an answer that rests on members and not on offsets: a heartbeat's.

        Where offsets are being committed all the time it need not wait for any of them.
        """
        slot = self._slot_of(group_id)
        return self._run(slot, handler, of_offsets=False)

    def call_each(self, handler: Handler) -> Iterator[Any | asyncio.Future[Any]]:
        """The same for every shard; KafkaError where one is not loaded yet."""
        for slot in tuple(self._slots.values()):
            self._check(slot)
        for slot in tuple(self._slots.values()):
            yield self._run(slot, handler)

    def _slot_of(self, group_id: str) -> _Slot:
        if not self._running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are no groups yet")
        slot = self._slots.get(partition_of(group_id, len(topic.partitions)))
        if slot is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        self._check(slot)
        return slot

    def _check(self, slot: _Slot) -> None:
        if slot.error is not None:
            raise slot.error

    def census(self) -> GroupCensus:
        """What the shards hold that are loaded."""
        census = GroupCensus()
        for slot in self._slots.values():
            if slot.error is None:
                census.add(slot.shard)
        return census

    # -- running a shard --------------------------------------------------------------------------

    def _run(
        self, slot: _Slot, handler: Handler, *, of_offsets: bool = True
    ) -> Any | asyncio.Future[Any]:
        outcome = handler(slot.shard, self.now())
        self._apply(slot, outcome)
        deadline = slot.shard.timers.next_deadline_ms()
        if deadline is not None and deadline < self._armed_ms:
            self._arm(deadline)
        answer = outcome.answer
        if not isinstance(answer, Reply):
            rests_on = slot.last_offset if of_offsets else slot.last_group_offset
            if slot.partition.is_committed(rests_on):
                return answer
            answer, given = Reply(), answer
            answer.resolve(given)
        return self._future(slot, answer)

    def _apply(self, slot: _Slot, outcome: Outcome) -> None:
        """Append and replay; KafkaError where the log refuses."""
        records = outcome.records
        for start in range(0, len(records), _BATCH_RECORDS_MAX):
            chunk = records[start : start + _BATCH_RECORDS_MAX]
            self._append(slot, chunk)
            for record in chunk:
                slot.shard.replay(record)
                if type(record.key) is not OffsetCommitKey:
                    slot.last_group_offset = slot.last_offset
            self.stats.appended(chunk)
        if outcome.then is not None:
            outcome.then()

    def _append(self, slot: _Slot, records: Sequence[CoordinatorRecord]) -> None:
        now_ms = self._host.clock.wall_ms()
        batch = encode_batch([Record(0, now_ms, *encode_record(record), []) for record in records])
        header = read_header(batch)
        admitted = Admitted(memoryview(batch), header)
        try:
            result = slot.partition.append(admitted, -1, now_ms)
        except KafkaError as error:
            raise _for_client(error) from error
        slot.last_offset = result.last_offset

    def _future(self, slot: _Slot, reply: Reply[Any]) -> asyncio.Future[Any]:
        """The reply as a future that is done when what it rests on is committed."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timeout_ms = self.config.get_int("offsets.commit.timeout.ms")
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)

        def committed(wait: asyncio.Future[None]) -> None:
            error = None if wait.cancelled() else wait.exception()
            if future.done():
                return
            if not isinstance(error, KafkaError):
                finish()
            elif error.code is ErrorCode.REQUEST_TIMED_OUT:
                self.stats.timeouts += 1
                future.set_exception(
                    KafkaError(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                        f"not durable within offsets.commit.timeout.ms ({timeout_ms})",
                    )
                )
            else:
                future.set_exception(_for_client(error))

        def finish() -> None:
            if future.done():
                return
            if reply.error is not None:
                future.set_exception(reply.error)
            else:
                future.set_result(reply.value)

        def answered() -> None:
            if slot.partition.is_committed(slot.last_offset):
                finish()
                return
            deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
            wait = slot.partition.committed(slot.last_offset, deadline)
            wait.add_done_callback(committed)
            future.add_done_callback(lambda _: wait.cancel())

        reply.when_done(answered)
        return future

    # -- time -------------------------------------------------------------------------------------

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = at_ms
        delay = max(0, at_ms - self.now().ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        if not self._running:
            return
        late_ms = self.now().ms - self._armed_ms
        if late_ms > _STALL_MS:
            # The broker was stopped or starved: members could not be heard, nor answered.
            self._lost_ms += late_ms
            _log.warning("the loop stalled, members are given that time stall_ms=%d", late_ms)
        now = self.now()
        if self._is_incomplete:
            self._is_incomplete = False
            self._follow(self._image())
        for slot in tuple(self._slots.values()):
            if slot.error is None:
                self._run_due(slot, now)
        if now.ms >= self._next_expiry_ms:
            self._next_expiry_ms = now.ms + self._expiry_interval_ms
            self._expire_offsets()
        deadlines = (slot.shard.timers.next_deadline_ms() for slot in self._slots.values())
        nearest = min((each for each in deadlines if each is not None), default=now.ms + _TICK_MS)
        self._arm(min(nearest, now.ms + _TICK_MS))

    def _run_due(self, slot: _Slot, now: Now) -> None:
        for outcome in slot.shard.due(now):
            self._apply_quietly(slot, outcome, "a deadline")

    def _expire_offsets(self) -> None:
        for slot in tuple(self._slots.values()):
            if slot.error is None:
                before = len(slot.shard.offsets)
                ages = slot.partition.log.context.running_clock.ages()
                expired = slot.shard.expire_offsets(ages.age_ms)
                self._apply_quietly(slot, expired, "expire offsets")
                self.stats.expired_offsets += before - len(slot.shard.offsets)

    def _everywhere(self, work: Callable[[GroupShard], Outcome], what: str) -> None:
        for slot in tuple(self._slots.values()):
            if slot.error is None:
                self._apply_quietly(slot, work(slot.shard), what)

    def _apply_quietly(self, slot: _Slot, outcome: Outcome, what: str) -> None:
        """For what no client asked for: a refusal is logged, and the shard tries again itself."""
        try:
            self._apply(slot, outcome)
        except KafkaError as error:
            _log.warning(
                "not written partition=%s work=%s reason=%s",
                slot.partition.topic_partition, what, error,
            )  # fmt: skip

    # -- following the metadata -------------------------------------------------------------------

    def image_changed(
        self, old: MetadataImage, new: MetadataImage, changes: Sequence[Change]
    ) -> None:
        """Lead and stop leading shards; forget the offsets of topics that are gone."""
        if not self._running:
            return
        if old.topics.get(OFFSETS_TOPIC) is not new.topics.get(OFFSETS_TOPIC):
            self._follow(new)
        for change in changes:
            if isinstance(change, TopicDeleted):
                self._forget_topic(change)

    def partitions_followed(self, topic: str) -> None:
        """The partitions of a topic are as the image says: lead the shards that were not there."""
        if self._running and topic == OFFSETS_TOPIC:
            self._follow(self._image())

    def _forget_topic(self, gone: TopicDeleted) -> None:
        self._everywhere(
            lambda shard: shard.topic_deleted(gone.topic, gone.topic_id), "forget a topic"
        )

    def _follow(self, image: MetadataImage) -> None:
        topic = image.topics.get(OFFSETS_TOPIC)
        led = {}
        if topic is not None:
            led = {
                each.partition: each.leader_epoch
                for each in topic.partitions
                if each.leader == self._broker_id
            }
        for index, slot in list(self._slots.items()):
            if led.get(index) != slot.leader_epoch:
                self._discard(index)
        for index, epoch in led.items():
            if index not in self._slots:
                self._take_up(index, epoch)

    def _take_up(self, index: int, leader_epoch: int) -> None:
        try:
            partition = self._replicas.find(OFFSETS_TOPIC, index)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # Being created: see `partitions_followed`.
                return
            _log.error("shard not taken up, will be tried again partition=%d %s", index, error)
            self._is_incomplete = True
            return
        slot = _Slot(partition, leader_epoch, self._new_shard())
        self._slots[index] = slot
        if partition.log.log_end_offset > partition.log.log_start_offset:
            slot.error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            slot.loading = asyncio.create_task(self._load(slot), name=f"load-groups-{index}")

    def _new_shard(self) -> GroupShard:
        return GroupShard(group_settings(self.config), self._host.random, self._image, self.stats)

    async def _load(self, slot: _Slot) -> None:
        started = self._host.clock.monotonic()
        accept_loss = slot.partition.topic_partition in self._replicas.accept_loss
        said = ""
        while True:
            try:
                slot.last_offset = await load(
                    slot.shard, slot.partition, self._host.offload, accept_loss=accept_loss
                )
                break
            except (TidelogError, OSError) as error:
                if said != str(error):
                    said = str(error)
                    _log.error(
                        "shard not loaded, will be tried again partition=%s error=%s",
                        slot.partition.topic_partition, said,
                    )  # fmt: skip
            await asyncio.sleep(_LOAD_RETRY_SECONDS)
            slot.shard = self._new_shard()
        slot.loading = slot.error = None
        now = self.now()
        self._apply_quietly(slot, slot.shard.loaded(now), "take up a shard")
        ids = {name: topic.topic_id for name, topic in self._image().topics.items()}
        self._apply_quietly(slot, slot.shard.forget_missing_topics(ids), "forget topics")
        seconds = self._host.clock.monotonic() - started
        self.stats.loaded(seconds)
        _log.info(
            "shard loaded partition=%s groups=%d offsets=%d ms=%d",
            slot.partition.topic_partition, len(slot.shard.table), len(slot.shard.offsets),
            seconds * 1000,
        )  # fmt: skip

    def _discard(self, index: int) -> None:
        """Forget a shard: another broker has it, or will load it."""
        slot = self._slots.pop(index)
        slot.error = KafkaError(ErrorCode.NOT_COORDINATOR)
        if slot.loading is not None:
            slot.loading.cancel()
        slot.shard.abandon(slot.error)


def group_settings(config: BrokerConfig) -> GroupSettings:
    """What groups go by, out of the broker's settings."""
    return GroupSettings(
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        session_timeout_min_ms=config.get_int("group.min.session.timeout.ms"),
        session_timeout_max_ms=config.get_int("group.max.session.timeout.ms"),
        group_size_max=config.get_int("group.max.size"),
        offset_metadata_bytes_max=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
        consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        consumer_group_size_max=config.get_int("group.consumer.max.size"),
        consumer_assignors=tuple(config.get_list("group.consumer.assignors")),
    )


def _for_client(error: KafkaError) -> KafkaError:
    """What a member is told where the log of its shard failed: all of it can be tried again."""
    if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return KafkaError(ErrorCode.NOT_COORDINATOR, str(error))
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
