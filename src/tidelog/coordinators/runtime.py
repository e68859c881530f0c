"""Runs the shards of a coordinator: loads them, appends for them, wakes them, answers for them.

Promises, for every kind of shard:

- A shard exists exactly while this broker leads its partition of the kind's topic, in one leader
  epoch; while it is being loaded it is answered for with COORDINATOR_LOAD_IN_PROGRESS, never with
  less than was kept. What the load read counts as uncommitted until the watermark has passed it.
- A change is appended through `Partition.append`, as a client's record is, then replayed; a refused
  append changes nothing and is answered with a retriable error. Small changes that many ask for
  and that do not depend on each other are appended together (`gather`).
- No answer leaves before what it rests on is committed, so nobody is shown what a failover could
  take back. That is all that its shard had appended when the answer was found, or the core of it
  (`ShardKind.is_core`). Where it takes too long, the client is told to try again.
- Time during which the broker did not run is not held against anybody: the clock of deadlines
  stands still while the loop does.
- A shard that finds itself in a state that must not be, or fails in another way, is loaded again
  from its log, after a pause; the other shards go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic

from tidelog.cluster.changes import Change
from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.gathering import Answer, Asked, Batch, Handled, Rounds, answer_all
from tidelog.coordinators.kind import S, ShardKind
from tidelog.coordinators.loading import load
from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.slot import RuntimeStats, Slot
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError, PartitionBrokenError, TidelogError
from tidelog.host.host import Host
from tidelog.host.prompt import Prompt
from tidelog.protocol.batches import BatchHeader
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas
from tidelog.storage.admission import Admitted
from tidelog.storage.verification import Origin, Verification

_log = logging.getLogger(__name__)

# How often the deadlines are looked at where none is nearer; also what a stall is seen by.
_TICK_MS: Final = 500
_STALL_MS: Final = 1_000
_LOAD_RETRY_SECONDS: Final = 5.0
# Records of one batch: a large change, such as the end of a topic, is appended in several.
_BATCH_RECORDS_MAX: Final = 1_000


class CoordinatorRuntime(Generic[S]):
    """The shards of one kind that this broker leads."""

    def __init__(self, kind: ShardKind[S], broker_id: int, replicas: Replicas, host: Host) -> None:
        self._kind = kind
        self.topic = kind.topic
        self._broker_id = broker_id
        self._replicas = replicas
        self._host = host
        self._slots: dict[int, Slot[S]] = {}
        self._waiting: dict[asyncio.Future[Any], Answer | Batch[S]] = {}
        self._rounds = Rounds(self._run_gathered, lambda slot: len(slot.gathered.asked))
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._lost_ms = 0
        self._running = False
        # A partition that is led could not be opened, for a full disk mostly.
        self._is_incomplete = False
        self.stats = RuntimeStats()

    # -- start and stop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what this broker leads; the metadata's changes are heard of from now on."""
        self._running = True
        self._follow()
        self._arm(self.now().ms + _TICK_MS)

    def stop(self) -> None:
        """Answer whoever waits that the coordinator is going, and do nothing more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        for index in list(self._slots):
            self._discard(index)
        for answer in tuple(self._waiting.values()):
            answer.leave(_shutting_down())

    def now(self) -> Now:
        clock = self._host.clock
        return Now(int(clock.monotonic() * 1000) - self._lost_ms, clock.wall_ms())

    # -- what handlers ask ------------------------------------------------------------------------

    def call(
        self, key: str, handler: Callable[[S, Now], Outcome], *, core_only: bool = False
    ) -> Any | asyncio.Future[Any]:
        """Have a shard handle something; the answer, or a future that will hold it.

        With `core_only` the answer rests on the core of the shard's records alone.
        """
        return self._run(self._slot_of(key), handler, core_only)

    def gather(
        self,
        key: str,
        handler: Callable[[S, Now], Outcome],
        refused: Callable[[KafkaError], Any],
    ) -> Prompt[Any]:
        """As `call`, for what may come to the shard with others a little later, in one batch.

        It must not matter to the handler what others of the batch change, and it has an answer at
        once. An error is answered with what `refused` makes of it.
        """
        slot = self._slot_of(key)
        future: Prompt[Any] = Prompt()
        if slot.gathered.add(Asked(handler, refused, future)):
            self._rounds.later(slot)
        return future

    def settled_slot(self, key: str) -> Slot[S] | None:
        """Whose core can be answered from at once; None where it cannot."""
        try:
            slot = self._slot_of(key)
            slot.check(self._kind)
        except KafkaError:
            return None
        return slot if slot.partition.is_committed(slot.last_core_offset) else None

    def _slot_of(self, key: str) -> Slot[S]:
        return self._slot_at(self.topic.partition_of(key))

    def _slot_at(self, index: int) -> Slot[S]:
        if not self._running:
            raise _shutting_down()
        slot = self._slots.get(index)
        if slot is None:
            # Ours and not there yet: being created, or not opened so far.
            is_ours = index in self.topic.led_by(self._broker_id)
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_ours else ErrorCode.NOT_COORDINATOR
            )
        return slot

    def call_each(
        self, handler: Callable[[S, Now], Outcome]
    ) -> Iterator[Any | asyncio.Future[Any]]:
        """The same for every shard that is led here; KafkaError where one is not loaded yet."""
        if any(index not in self._slots for index in self.topic.led_by(self._broker_id)):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        slots = tuple(self._slots.values())
        for slot in slots:
            if slot.error is not None:
                raise slot.error.again()
        for slot in slots:
            yield self._run(slot, handler, False)

    def shards(self) -> Iterator[S]:
        """The shards that are loaded."""
        return (slot.shard for slot in self._slots.values() if slot.error is None)

    # -- running a shard --------------------------------------------------------------------------

    def _run(
        self, slot: Slot[S], handler: Callable[[S, Now], Outcome], core_only: bool
    ) -> Any | asyncio.Future[Any]:
        slot.check(self._kind)
        try:
            outcome = handler(slot.shard, self.now())
            self._apply(slot, outcome)
        except (TidelogError, OSError):
            raise
        except Exception:
            self._give_up(slot)
            raise
        finally:
            if slot.answered:
                self._release(slot)
        self._arm_for(slot)
        answer = outcome.answer
        if isinstance(answer, Reply):
            return self._future(slot, answer, core_only)
        if slot.partition.is_committed(slot.last_core_offset if core_only else slot.last_offset):
            return answer
        reply: Reply[Any] = Reply()
        reply.resolve(answer)
        return self._future(slot, reply, core_only)

    def _run_gathered(self, slot: Slot[S]) -> None:
        """Handle what was gathered and append it in one batch, for which one wait does."""
        gathered, handled = slot.gathered, []
        gathered.is_held = False
        if not gathered.asked:
            return
        try:
            slot.check(self._kind)
            handled = gathered.handle(slot.shard, self.now())
            handled = self._apply_together(slot, handled)
        except Exception as error:
            gathered.fail(error)
            for _, asked in handled:
                asked.fail(error)
            if not isinstance(error, (TidelogError, OSError)):
                self._give_up(slot)
            return
        finally:
            self._release(slot)
        self._arm_for(slot)
        self._leave_together(slot, handled)

    def _apply_together(self, slot: Slot[S], handled: Handled[S]) -> Handled[S]:
        """Append and replay all in one; those that are written."""
        records = [record for outcome, _ in handled for record in outcome.records]
        try:
            self._apply(slot, Outcome(None, records))
            return handled
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise
        # One that cannot be written must not keep out the others.
        written = []
        for outcome, asked in handled:
            try:
                self._apply(slot, outcome)
            except KafkaError as error:
                asked.fail(error)
            else:
                written.append((outcome, asked))
        return written

    def _work(self, slot: Slot[S], outcomes: Iterable[Outcome], what: str) -> None:
        """Do what no client asked for: a refusal is logged, and the shard tries again itself."""
        try:
            for outcome in outcomes:
                try:
                    self._apply(slot, outcome)
                except (KafkaError, PartitionBrokenError) as error:
                    _log.warning(
                        "not written partition=%s work=%s reason=%s",
                        slot.partition.topic_partition, what, error,
                    )  # fmt: skip
                self._release(slot)
        except Exception:
            # Whatever it is, the other shards go on.
            self._give_up(slot)

    def _apply(self, slot: Slot[S], outcome: Outcome) -> None:
        """Append and replay; KafkaError where the log refuses, or a record cannot be written."""
        assert slot.error is None, "nothing is written to a shard before it is loaded"
        records = outcome.records
        for start in range(0, len(records), _BATCH_RECORDS_MAX):
            chunk = records[start : start + _BATCH_RECORDS_MAX]
            slot.append(self._kind, chunk, outcome.transaction, self._host.clock.wall_ms())
            for record in chunk:
                slot.replay(record, outcome.transaction)
                if self._kind.is_core(record):
                    slot.last_core_offset = slot.last_offset
        if outcome.then is not None:
            outcome.then()
        if outcome.committed is not None:
            slot.when_committed(outcome.committed, partial(self._give_up, slot))

    def begin_verification(self, key: str, producer_id: int, epoch: int) -> Verification | None:
        """For records that a producer writes to the key's shard in its transaction.

        None where that is open there already; KafkaError where the shard is not here.
        """
        slot = self._slot_of(key)
        slot.check(self._kind)
        header = BatchHeader(producer_id=producer_id, producer_epoch=epoch)
        return slot.partition.log.producers.begin_verification(header)

    def end_transaction(self, index: int, marker: Admitted, origin: Origin) -> int:
        """Append the marker of a producer to a shard's log; its offset. KafkaError where not."""
        slot = self._slot_at(index)
        slot.check(self._kind)
        slot.take(marker, self._host.clock.wall_ms(), origin)
        try:
            slot.ended(marker)
        except Exception:
            self._give_up(slot)
            raise
        return slot.last_offset

    # -- answers ----------------------------------------------------------------------------------

    def _future(self, slot: Slot[S], reply: Reply[Any], core_only: bool) -> asyncio.Future[Any]:
        """The reply as a future that is done when what it rests on is committed."""
        answer = Answer(reply, core_only, asyncio.get_running_loop().create_future())
        self._waiting[answer.future] = answer
        answer.future.add_done_callback(self._forget)
        if reply.is_done:
            self._leave_when_committed(slot, answer)
        else:
            reply.when_done(partial(slot.answered.append, answer))
        return answer.future

    def _release(self, slot: Slot[S]) -> None:
        """Whatever was answered just now rests on what is in the log by now, and no more."""
        for answer in slot.answered:
            self._leave_when_committed(slot, answer)
        slot.answered.clear()

    def _leave_when_committed(self, slot: Slot[S], answer: Answer) -> None:
        offset = slot.last_core_offset if answer.core_only else slot.last_offset
        if slot.partition.is_committed(offset):
            answer.leave()
            return
        answer.wait = slot.partition.committed(offset, self._commit_deadline())
        answer.wait.add_done_callback(partial(self._committed, answer))

    def _leave_together(self, slot: Slot[S], handled: Handled[S]) -> None:
        """As `_leave_when_committed`, for what rests on the same."""
        if slot.partition.is_committed(slot.last_offset):
            answer_all(handled)
            return
        wait = slot.partition.committed(slot.last_offset, self._commit_deadline())
        self._waiting[wait] = batch = Batch(handled, wait)
        wait.add_done_callback(self._forget)
        wait.add_done_callback(partial(self._committed, batch))
        if slot.partition.config.durability_fsync:
            slot.gathered.is_held = True
            wait.add_done_callback(lambda _: self._rounds.now(slot))

    def _commit_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._kind.commit_timeout_ms() / 1000

    def _committed(self, resting: Answer | Batch[S], wait: asyncio.Future[None]) -> None:
        if wait.cancelled():
            return
        error = wait.exception()
        assert error is None or isinstance(error, KafkaError)
        if error is not None and error.code is ErrorCode.REQUEST_TIMED_OUT:
            self.stats.timeouts += 1
        resting.leave(None if error is None else self._kind.refusal(error))

    def _forget(self, future: asyncio.Future[Any]) -> None:
        wait = self._waiting.pop(future).wait
        if wait is not None:
            wait.cancel()

    # -- time -------------------------------------------------------------------------------------

    def _arm_for(self, slot: Slot[S]) -> None:
        deadline = slot.shard.timers.next_deadline_ms()
        if deadline is not None and (deadline < self._armed_ms or self._timer is None):
            self._arm(deadline)

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = at_ms
        delay = max(0, at_ms - self.now().ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._running:
            return
        late_ms = self.now().ms - self._armed_ms
        if late_ms > _STALL_MS:
            # The broker was stopped or starved: nobody could be heard, nor answered.
            self._lost_ms += late_ms
            _log.warning("the loop stalled, deadlines are moved by that stall_ms=%d", late_ms)
        now = self.now()
        nearest = now.ms + _TICK_MS
        try:
            if self._is_incomplete:
                self._is_incomplete = False
                self._follow()
            for slot in tuple(self._slots.values()):
                if slot.error is None and slot.partition.leads:
                    self._work(slot, slot.shard.due(now), "a deadline")
                    deadline = slot.shard.timers.next_deadline_ms()
                    nearest = min(nearest, nearest if deadline is None else deadline)
        finally:
            # Without the next tick no deadline of any shard would be seen again.
            self._arm(nearest)

    # -- following the metadata -------------------------------------------------------------------

    def image_changed(
        self, old: MetadataImage, new: MetadataImage, changes: Sequence[Change]
    ) -> None:
        """Lead and stop leading shards, and have them heed what concerns them."""
        if not self._running:
            return
        if old.topics.get(self.topic.name) is not new.topics.get(self.topic.name):
            self._follow()
        heeded = [change for change in changes if isinstance(change, self._kind.heeds)]
        if heeded:
            for slot in tuple(self._slots.values()):
                if slot.error is None:
                    self._work(slot, slot.shard.changed(heeded), "heed a change")

    def partitions_followed(self, topic: str) -> None:
        """The partitions of a topic are as the image says: lead the shards that were not there."""
        if self._running and topic == self.topic.name:
            self._follow()

    def _follow(self) -> None:
        led = self.topic.led_by(self._broker_id)
        for index, slot in list(self._slots.items()):
            if led.get(index) != slot.leader_epoch:
                self._discard(index)
        for index, epoch in led.items():
            if index not in self._slots:
                self._take_up(index, epoch)

    def _take_up(self, index: int, leader_epoch: int) -> None:
        try:
            partition = self._replicas.find(self.topic.name, index)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # Being created: see `partitions_followed`.
                return
            _log.error("shard not taken up, will be tried again partition=%d %s", index, error)
            self._is_incomplete = True
            return
        if not partition.leads or partition.leader_epoch != leader_epoch:
            # Its log is being cut, say: only when it leads is known what it ends with.
            self._is_incomplete = True
            return
        slot = self._new_slot(partition, leader_epoch)
        if partition.log.log_end_offset > partition.log.log_start_offset:
            self._start_load(slot)
        else:
            self._work(slot, slot.shard.loaded(self.now()), "take up a shard")

    def _new_slot(self, partition: Partition, leader_epoch: int) -> Slot[S]:
        slot = Slot(partition, leader_epoch, self._kind.new_shard(partition))
        self._slots[partition.topic_partition.partition] = slot
        return slot

    def _start_load(self, slot: Slot[S], pause_seconds: float = 0.0) -> None:
        slot.error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        name = f"load-{slot.partition.topic_partition}"
        slot.loading = asyncio.create_task(self._load(slot, pause_seconds), name=name)

    async def _load(self, slot: Slot[S], pause_seconds: float) -> None:
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
        started = self._host.clock.monotonic()
        accept_loss = slot.partition.topic_partition in self._replicas.accept_loss
        said = ""
        while True:
            try:
                end = await load(
                    slot.partition, self._host.offload, partial(slot.replay_stored, self._kind),
                    accept_loss=accept_loss,
                )  # fmt: skip
                break
            except Exception as error:
                if said != str(error):
                    said = str(error)
                    _log.error(
                        "shard not loaded, will be tried again partition=%s error=%s",
                        slot.partition.topic_partition, said,
                    )  # fmt: skip
            await asyncio.sleep(_LOAD_RETRY_SECONDS)
            slot.shard = self._kind.new_shard(slot.partition)
        # What the leader before wrote last need not be committed yet.
        slot.last_offset = slot.last_core_offset = end - 1
        slot.loading = slot.error = None
        self._work(slot, slot.shard.loaded(self.now()), "take up a shard")
        seconds = self._host.clock.monotonic() - started
        self.stats.loads += 1
        self.stats.load_seconds += seconds
        self.stats.load_seconds_max = max(self.stats.load_seconds_max, seconds)
        _log.info(
            "shard loaded partition=%s end_offset=%d ms=%d",
            slot.partition.topic_partition, end, seconds * 1000,
        )  # fmt: skip

    def _discard(self, index: int) -> None:
        """Forget a shard: another broker has it, or will load it."""
        slot = self._slots.pop(index)
        slot.error = KafkaError(ErrorCode.NOT_COORDINATOR)
        slot.abandon(slot.error)

    def _give_up(self, slot: Slot[S]) -> None:
        """The shard is not what it must be: nothing more is answered from it."""
        name = slot.partition.topic_partition
        _log.exception("shard given up, will be loaded again partition=%s", name)
        if self._slots.get(name.partition) is slot:
            self._discard(name.partition)
            again = self._new_slot(slot.partition, slot.leader_epoch)
            self._start_load(again, _LOAD_RETRY_SECONDS)


def _shutting_down() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
