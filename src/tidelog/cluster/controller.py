"""The one writer of a cluster's metadata: a queue of commands in front of a store.

Promises: a command is answered once its changes are durable. A crash at any moment leaves it wholly
done or not done or, where it takes several transactions, such that the next controller undoes or
finishes it (`steps`, `repairs`). Commands take effect in the order of their submission; those that
wait while a transaction is written share the next one, each with an answer of its own.

Every transaction checks the controller epoch, so a deposed controller cannot write, and moves
`/controller/sequence` by compare-and-set: after a lost connection that one node tells whether the
transaction was done. A controller that is out of touch with the store for too long stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.audit import audit
from tidelog.cluster import layout
from tidelog.cluster.change_history import ChangeHistory
from tidelog.cluster.changes import ChangeBatch, Update
from tidelog.cluster.commands import (
    Answer,
    BalanceLeaders,
    BeginShutdown,
    Command,
    Decommission,
    RaiseInternalTopics,
    RegisterBroker,
    UnregisterBroker,
)
from tidelog.cluster.failover import Loss
from tidelog.cluster.image import Draft, MetadataImage
from tidelog.cluster.office import Place, resign, take_office
from tidelog.cluster.planner import PlannerRules, plan, refused_together
from tidelog.cluster.rounds import Pending, Round, refuse
from tidelog.cluster.upkeep import Upkeep
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.offload import Offload
from tidelog.store.port import (
    Check,
    Conflict,
    ConnectionLoss,
    Operation,
    SessionState,
    Set,
    Store,
    Stored,
    StoreError,
    StoreFull,
    WatchEvent,
)

logger = logging.getLogger(__name__)

UNKNOWN_EPOCH: Final = -1
_COMMANDS_PER_TURN: Final = 32
_READ_BACK_DELAY_S: Final = 0.1
_JUDGE_AGAIN_S: Final = 1.0
# From here on a decision about all partitions is made on a thread.
_MANY_PARTITIONS: Final = 1_000
# Decisions that look at all partitions.
_WIDE: Final = (
    RegisterBroker,
    UnregisterBroker,
    BeginShutdown,
    BalanceLeaders,
    Decommission,
    RaiseInternalTopics,
)
_LOOK_AGAIN: Final = WatchEvent(layout.BROKER_IDS, 0)


@dataclass(slots=True)
class ControllerLimits:
    """The bounds of the queue, of one transaction and of the history for feeds."""

    queued_commands: int = 20_000
    commands_per_write: int = 256
    operations_per_write: int = 2_000
    # Reached, a transaction takes no further command; one has at most 256 KiB of settings.
    bytes_per_write: int = 192 * 1024
    # Partitions and rules that changed, some hundred bytes each.
    history_size: int = 100_000
    # Two thirds of a session: then the office may be another's before this one knows.
    out_of_touch_s: float = 6.0


class Controller:
    """Owns the changes of one store's metadata, from `start` to `close`.

    controller = Controller(store, Place(broker_id=0), PlannerRules(host.random))
    await controller.start()
    created = await controller.submit(CreateTopic("orders", partitions=6))
    """

    def __init__(
        self,
        store: Store,
        place: Place,
        rules: PlannerRules,
        limits: ControllerLimits | None = None,
        offload: Offload | None = None,
    ) -> None:
        self._store = store
        self._place = place
        self._node_id = place.broker_id
        self._rules = rules
        self._limits = limits or ControllerLimits()
        # For what takes long on a large cluster; without, it is done on the loop.
        self._offload = offload
        # What is in the store; it may be ahead of what brokers have.
        self.image = MetadataImage()
        self._epoch_version = 0
        self._sequence = 0
        self._sequence_version = 0
        self._queue: deque[Pending] = deque()
        self._wake = asyncio.Event()
        self._history = ChangeHistory(0, self._limits.history_size)
        self._brokers_unseen = False
        self._upkeep = Upkeep(self.submit, rules.config)
        # Elections of leaders that may lack committed records, since the start.
        self.unclean_elections = 0
        self._closing = False
        self._out_of_touch: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done() and not self._closing

    async def start(self) -> None:
        """Take the office, read what the store holds, begin to serve.

        `OfficeTaken` where another broker has it; StorageError where what the store holds cannot
        be understood.
        """
        assert self._task is None, "a controller starts once"
        term = await take_office(self._store, self._place, self._rules.random, self._offload)
        self.image = term.image
        self._epoch_version = term.epoch_version
        self._sequence_version = term.sequence_version
        self._history = ChangeHistory(self.image.version, self._limits.history_size)
        self._task = asyncio.create_task(self._run(), name=f"controller-{self._node_id}")
        logger.info(
            "controller started node=%d epoch=%d version=%d topics=%d partitions=%d",
            self._node_id,
            self.image.controller_epoch,
            self.image.version,
            len(self.image.topics),
            self.image.partition_count,
        )

    async def close(self) -> None:
        """Finish the transaction at hand, refuse what waits behind it, stop."""
        self._closing = True
        self._wake.set()
        self._history.wake()
        if self._task is None:
            return
        await asyncio.wait([self._task])
        await resign(self._store, self._epoch_version)

    def abandon(self) -> None:
        """Stop at once: whether the transaction at hand is done, nobody learns."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    async def wait_closed(self) -> None:
        """Return once the controller has stopped; raise what made it stop, if it was not asked."""
        assert self._task is not None, "the controller was not started"
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def submit_all(self, commands: Sequence[Command]) -> list[Answer | KafkaError]:
        """Do the commands of one request, in order, each for itself; what each gave."""
        refusal = refused_together(commands, self._rules)
        if refusal is not None:
            return [refusal] * len(commands)
        answers: list[Answer | KafkaError] = []
        # What fits one transaction at a time, so that a long request lets others in between.
        count = self._limits.commands_per_write
        for start in range(0, len(commands), count):
            answers += await self._submit_some(commands[start : start + count])
        return answers

    async def _submit_some(self, commands: Sequence[Command]) -> list[Answer | KafkaError]:
        futures = [self.submit(command) for command in commands]
        answers: list[Answer | KafkaError] = []
        try:
            for future in futures:
                try:
                    answers.append(await future)
                except KafkaError as error:
                    answers.append(error)
        finally:
            for future in futures:
                future.cancel()
        return answers

    async def changes_after(
        self, version: int, timeout_s: float, controller_epoch: int = UNKNOWN_EPOCH
    ) -> Update:
        """What came after `version` of this controller's epoch, waiting up to `timeout_s` for it.

        The whole image where the epoch is another or the history does not reach back that far; an
        empty update where the time is over.
        """
        self._check_running()
        if controller_epoch != self.image.controller_epoch or version > self.image.version:
            # Who starts must not be told less than it knew when it stopped.
            least = version if controller_epoch != UNKNOWN_EPOCH else self.image.version
            return self._history.whole(least, self.image)
        if version == self.image.version:
            if not await self._history.wait(timeout_s):
                return Update()
            self._check_running()
        return self._history.after(version, self.image)

    def submit(self, command: Command) -> asyncio.Future[Answer]:
        """Do a command; durable when that is done. KafkaError where it is refused."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if not self.running:
            refuse(future, not_controller())
        elif len(self._queue) >= self._limits.queued_commands:
            message = "Too many metadata changes are waiting; try again later."
            refuse(future, KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message))
        else:
            self._queue.append(Pending(command, future))
            self._wake.set()
        return future

    def _check_running(self) -> None:
        if not self.running:
            raise not_controller()

    async def _run(self) -> None:
        cancels = (
            self._store.watch_session(self._session_changed),
            self._store.watch(layout.BROKER_IDS, self._brokers_changed),
        )
        self._brokers_changed(_LOOK_AGAIN)
        self._upkeep.start()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._brokers_unseen and not self._closing:
                    self._brokers_unseen = False
                    await self._see_brokers_patiently()
                while self._queue and not self._closing:
                    await self._do_round()
                if self._closing:
                    return
                if self._store.session_state is SessionState.LOST:
                    raise StoreError("the session with the metadata store was lost")
        except (StoreError, KafkaError) as error:
            logger.error("controller stopped node=%d reason=%s", self._node_id, error)
            raise
        finally:
            for cancel in cancels:
                cancel()
            self._stop_waiting_for_store()
            self._upkeep.stop()
            self._closing = True
            self._history.wake()
            for pending in self._queue:
                refuse(pending.answer, not_controller())
            self._queue.clear()

    def _brokers_changed(self, event: WatchEvent) -> None:
        self._brokers_unseen = True
        self._wake.set()

    async def _see_brokers_patiently(self) -> None:
        try:
            await self._see_brokers()
        except ConnectionLoss:
            # The queue must not wait for it; a store that stays away ends the controller.
            loop = asyncio.get_running_loop()
            loop.call_later(_READ_BACK_DELAY_S, self._brokers_changed, _LOOK_AGAIN)

    async def _see_brokers(self) -> None:
        """Compare the brokers' own nodes with the image: who came, who is gone, who came back."""
        await self._store.sync()
        tree = await self._store.tree(layout.BROKER_IDS)
        there = layout.load_brokers(tree)
        written = layout.written_version(self.image)
        for known in self.image.brokers.values():
            now = there.get(known.id)
            # One that comes back in a version that is too old is not let in below.
            if now is None or (now.epoch != known.epoch and now.metadata_version < written):
                self._enqueue_own(UnregisterBroker(known.id, known.epoch))
        joined = False
        for registration in there.values():
            if registration.metadata_version < written:
                logger.error(
                    "broker %d reads the metadata up to version %d, which is written in version %d;"
                    " start a newer version of Tidelog there",
                    registration.id, registration.metadata_version, written,
                )  # fmt: skip
                continue
            before = self.image.brokers.get(registration.id)
            if before is None or before.epoch < registration.epoch:
                self._enqueue_own(RegisterBroker(registration))
                joined = True
        if joined or self._upkeep.has_room(self.image):
            self._upkeep.brokers_joined()

    def _enqueue_own(self, command: RegisterBroker | UnregisterBroker) -> None:
        """What nobody waits for, and must be done in the end."""
        loop = asyncio.get_running_loop()

        def look_again(future: asyncio.Future[Answer]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None and self.running:
                logger.warning("broker not judged command=%r reason=%s", command, error)
                loop.call_later(_JUDGE_AGAIN_S, self._brokers_changed, _LOOK_AGAIN)

        self.submit(command).add_done_callback(look_again)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._wake.set()
        elif state is SessionState.SUSPENDED and self._out_of_touch is None:
            self._out_of_touch = asyncio.get_running_loop().call_later(
                self._limits.out_of_touch_s - self._store.silent_s, self._lost_touch
            )
        elif state is SessionState.CONNECTED:
            self._stop_waiting_for_store()

    def _stop_waiting_for_store(self) -> None:
        if self._out_of_touch is not None:
            self._out_of_touch.cancel()
            self._out_of_touch = None

    def _lost_touch(self) -> None:
        logger.error("controller stopped node=%d reason=out of touch with the store", self._node_id)
        self.abandon()

    async def _do_round(self) -> None:
        """Plan what waits, write it, make it true and tell everyone."""
        round_ = Round(Draft(self.image))
        written = 0
        try:
            await self._plan_round(round_)
            steps = list(round_.steps)
            for step in steps:
                revision = await self._write(step.operations)
                self.image = (
                    round_.draft.image(revision)
                    if len(steps) == 1
                    else self.image.apply_all(step.changes, revision)
                )
                self._history.add(ChangeBatch(revision, tuple(step.changes)))
                written += 1
        except StoreFull as error:
            round_.refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            if written:
                # The next one in office puts right what is half done.
                raise
            return
        except KafkaError as error:
            round_.refuse(error.code, error.message)
            raise
        except BaseException as error:
            # Nobody knows, or will know here, whether the transaction was done.
            round_.refuse(ErrorCode.REQUEST_TIMED_OUT, f"The outcome is unknown: {error}")
            raise
        self._report(round_.losses)
        round_.tell()

    async def _plan_round(self, round_: Round) -> None:
        """Plan as many commands as one transaction takes, each on what those before it left."""
        limits = self._limits
        while (
            self._queue
            and len(round_.outcomes) < limits.commands_per_write
            and round_.steps.count < limits.operations_per_write
            and round_.steps.size < limits.bytes_per_write
        ):
            pending = self._queue.popleft()
            if pending.answer.done():
                continue
            try:
                outcome = await self._plan_one(pending.command, round_)
            except BaseException:
                # Ended in the middle: nothing is written, another controller may do it.
                refuse(pending.answer, not_controller())
                raise
            round_.outcomes.append((pending.answer, outcome))
            if len(round_.outcomes) % _COMMANDS_PER_TURN == 0:
                # The draft is this task's own: others may run, they cannot see or change it.
                await asyncio.sleep(0)

    async def _plan_one(self, command: Command, round_: Round) -> Answer | KafkaError:
        draft = round_.draft
        is_wide = isinstance(command, _WIDE) and draft.partition_count > _MANY_PARTITIONS
        try:
            if is_wide and self._offload is not None:
                planned = await self._offload.run(plan, draft, command, self._rules)
            else:
                planned = plan(draft, command, self._rules)
        except KafkaError as error:
            return error
        except Exception as error:
            # Planning changes nothing, so a fault in it harms this one command only.
            logger.exception("planning failed command=%r", command)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
        for change in planned.changes:
            epoch = self.image.controller_epoch
            round_.steps.add(layout.operations_of(change, draft, epoch), change)
            change.apply_to(draft)
            if is_wide:
                await asyncio.sleep(0)
        round_.losses.extend(planned.losses)
        return planned.answer

    async def _write(self, operations: list[Operation]) -> int:
        """One transaction, fenced and recognisable; the revision that it made.

        KafkaError NOT_CONTROLLER where it was refused for certain; any other error but StoreFull
        leaves it open whether it was done.
        """
        epoch = self.image.controller_epoch
        mark = layout.encode_meeting(epoch=epoch, number=self._sequence + 1)
        transaction = (
            Check(layout.CONTROLLER_EPOCH, self._epoch_version),
            Set(layout.CONTROLLER_SEQUENCE, mark, self._sequence_version),
            *layout.in_version(operations, layout.written_version(self.image)),
        )
        lost = deposed = False
        while True:
            try:
                revision = await self._store.multi(transaction)
                break
            except ConnectionLoss:
                lost = True
            except Conflict as conflict:
                if conflict.index > 1:
                    raise
                if not lost:
                    raise not_controller() from conflict
                deposed = conflict.index == 0
            node = await self._read_back()
            if node is not None and node.value == mark:
                revision = node.modified
                break
            if deposed:
                # Not done, and it cannot be any more.
                raise not_controller()
            # Not done so far. Should the lost one arrive yet, then one of the two finds the
            # sequence moved and is refused, so that sending it again is safe.
            if node is None or node.version != self._sequence_version:
                raise ConnectionLoss("another controller has written since")
        self._sequence += 1
        self._sequence_version += 1
        return revision

    async def _read_back(self) -> Stored | None:
        while True:
            try:
                await self._store.sync()
                return await self._store.read(layout.CONTROLLER_SEQUENCE)
            except ConnectionLoss:
                await asyncio.sleep(_READ_BACK_DELAY_S)

    def _report(self, losses: Sequence[Loss]) -> None:
        """Committed records may be missing: an operator must find that again."""
        self.unclean_elections += len(losses)
        for topic, state, lost_by in losses:
            audit(
                "elected a leader that may lack committed records",
                partition=f"{topic}-{state.partition}",
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                replicas_that_had_them=list(lost_by),
            )


def not_controller() -> KafkaError:
    """What one is answered that takes this broker for the controller."""
    return KafkaError(ErrorCode.NOT_CONTROLLER)
