"""What a broker does by itself, now and then: retention, cleaning, flushing, checkpoints, the disk.

It also keeps the running clock in the data directory, every few seconds and at the end.

Each duty is a small function run at its own interval by one task. Work that blocks is handed to
threads; a duty that fails is logged and tried again at its next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import KafkaError, PartitionBrokenError
from tidelog.host.host import Host
from tidelog.protocol.apis import api
from tidelog.protocol.schema import warm
from tidelog.replication.scrubbing import Pace
from tidelog.storage.checkpoint import write_durably
from tidelog.storage.running_clock import CLOCK_FILE

if TYPE_CHECKING:
    from tidelog.replication.isr_changes import IsrChanges
    from tidelog.replication.mending import Mending
    from tidelog.replication.replicas import Replicas
    from tidelog.server.answer_cache import AnswerCache
    from tidelog.server.listener import Listener
    from tidelog.server.metrics import BrokerMetrics
    from tidelog.storage.data_dir import DataDir

_log = logging.getLogger(__name__)

# The three checkpoint files are written together, at the shortest of their intervals.
_CHECKPOINT_INTERVALS = (
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "replica.high.watermark.checkpoint.interval.ms",
)
# In the newest version served.
_WARM_APIS = ("ApiVersions", "Metadata", "Produce", "Fetch")
_HEARTBEAT_SECONDS = 0.05
_SWEEP_SECONDS = 1.0
_DISK_CHECK_SECONDS = 1.0
_CLOCK_SECONDS = 10.0
_STRAYS_SECONDS = 3600.0
# A cleaner that may not rest at all would keep the loop busy with looking.
_REST_SECONDS_MIN = 0.01
# How long retention goes from partition to partition before others get their turn on the loop.
_RETENTION_STRETCH_SECONDS = 0.005


@dataclass(slots=True)
class Duty:
    """Something to do again and again; `rest_seconds` is asked anew before each time."""

    name: str
    rest_seconds: Callable[[], float]
    run: Callable[[], Awaitable[None]]
    # Held while it runs: it is never done twice at once.
    running: asyncio.Lock = field(default_factory=asyncio.Lock)


class Household(NamedTuple):
    """What is kept in order."""

    replicas: Replicas
    isr_changes: IsrChanges
    data_dir: DataDir
    listeners: Sequence[Listener]
    answers: AnswerCache
    metrics: BrokerMetrics
    mending: Mending


class Housekeeping:
    """Owns the tasks that run the duties of one broker."""

    def __init__(self, household: Household, host: Host) -> None:
        self._replicas = household.replicas
        self._isr_changes = household.isr_changes
        self._data_dir = household.data_dir
        self._listeners = household.listeners
        self._answers = household.answers
        self._metrics = household.metrics
        self._mending = household.mending
        self._host = host
        self._duties: list[Duty] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._writing_clock: asyncio.Future[None] | None = None
        self._is_clock_kept = True
        self._checkpoint_fails = False

    def start(self) -> None:
        self._data_dir.context.running_clock.started()

        def seconds(*names: str, least: float = 0) -> Callable[[], float]:
            return lambda: max(least, min(map(self._replicas.config.get_int, names)) / 1000)

        duties = [
            Duty("sweep", lambda: _SWEEP_SECONDS, self._sweep),
            Duty("disk", lambda: _DISK_CHECK_SECONDS, self._look_at_disk),
            Duty("clock", lambda: _CLOCK_SECONDS, self._write_clock),
            Duty("retention", seconds("log.retention.check.interval.ms"), self._retention),
            Duty("flush", seconds("flusher.interval.ms"), self._flush),
            Duty("failed replicas", lambda: _DISK_CHECK_SECONDS, self._give_up),
            Duty("damage", lambda: _DISK_CHECK_SECONDS, self._mending.run),
            Duty("scrub", lambda: self._mending.scrubber.rest_seconds(self._pace()), self._scrub),
            Duty("lag", lambda: self._replicas.standing.lag_s / 2, self._look_for_lag),
            Duty("strays", lambda: _STRAYS_SECONDS, self._remove_strays),
            Duty("checkpoint", seconds(*_CHECKPOINT_INTERVALS), self._checkpoint),
        ]
        if self._replicas.config.get_bool("log.cleaner.enable"):
            rest = seconds("log.cleaner.backoff.ms", least=_REST_SECONDS_MIN)
            duties.append(Duty("cleaner", rest, self._clean))
        self._duties = duties
        for duty in duties:
            self._tasks.append(asyncio.create_task(self._repeat(duty), name=duty.name))
        self._tasks.append(asyncio.create_task(self._measure_stalls(), name="heartbeat"))
        self._tasks.append(asyncio.create_task(_warm_up(), name="warm-up"))
        self._tasks.append(asyncio.create_task(self._write_clock(), name="first clock"))

    async def stop(self) -> None:
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._write_clock()

    async def catch_up(self, passed_seconds: float) -> None:
        """Do at once what would have been done in the time that a test let pass."""
        for duty in self._duties:
            if duty.rest_seconds() <= passed_seconds:
                await self._do(duty)

    async def _repeat(self, duty: Duty) -> None:
        while True:
            await asyncio.sleep(duty.rest_seconds())
            await self._do(duty)

    async def _do(self, duty: Duty) -> None:
        async with duty.running:
            try:
                await duty.run()
            except Exception:
                _log.exception("housekeeping failed duty=%s", duty.name)

    async def _measure_stalls(self) -> None:
        clock, metrics = self._host.clock, self._metrics
        cpu_before = clock.cpu()
        while True:
            before = clock.monotonic()
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            late_seconds = max(0.0, clock.monotonic() - before - _HEARTBEAT_SECONDS)
            cpu = clock.cpu()
            metrics.observe_heartbeat(late_seconds, cpu - cpu_before)
            cpu_before = cpu

    async def _write_clock(self) -> None:
        """Have the data directory say when this broker last ran."""
        while (earlier := self._writing_clock) is not None:
            # Its task may have been cancelled. Two at once would write into the same file.
            with suppress(OSError):
                await earlier
            if self._writing_clock is earlier:
                self._writing_clock = None
        clock = self._data_dir.context.running_clock
        clock.observe()
        path = f"{self._data_dir.path}/{CLOCK_FILE}"
        writing = self._writing_clock = self._host.offload.run(
            write_durably, self._host.disk, path, clock.encode()
        )
        try:
            await asyncio.shield(writing)
            self._is_clock_kept = True
        except OSError as error:
            if self._is_clock_kept:
                _log.warning("clock not saved, will try again path=%s error=%s", path, error)
            self._is_clock_kept = False
        finally:
            if writing.done() and self._writing_clock is writing:
                self._writing_clock = None

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for listener in self._listeners:
            listener.configure(self._replicas.config)
            listener.sweep(now)
        if self._replicas.standing.entry.out_of_touch:
            for partition in self._replicas:
                partition.doubt()

    async def _look_at_disk(self) -> None:
        """See who may write; where clients may, try again what could not be created."""
        replicas = self._replicas
        await replicas.space.look(replicas.config.get_int("disk.min.free.bytes"))
        if replicas.space.clients.refusal is None:
            replicas.retry_offline()
        self._answers.tell_offline(replicas.offline.keys() | self._mending.damaged.keys())

    async def _retention(self) -> None:
        clock = self._host.clock
        now_ms = clock.wall_ms()
        resumed_at = clock.monotonic()
        for partition in self._replicas:
            if clock.monotonic() - resumed_at > _RETENTION_STRETCH_SECONDS:
                await asyncio.sleep(0)
                resumed_at = clock.monotonic()
            try:
                removed = partition.apply_retention(now_ms)
            except (KafkaError, PartitionBrokenError) as error:
                # One log's trouble does not keep the others from being trimmed.
                _log.warning(
                    "retention failed partition=%s reason=%s", partition.topic_partition, error
                )
                continue
            if removed:
                _log.info(
                    "segments removed partition=%s count=%d log_start_offset=%d",
                    partition.topic_partition, removed, partition.log.log_start_offset,
                )  # fmt: skip

    async def _remove_strays(self) -> None:
        """Remove what was put aside long enough ago."""
        ages = self._data_dir.context.running_clock.ages()
        await self._host.offload.run(self._data_dir.remove_old_strays, ages)

    async def _give_up(self) -> None:
        """Have other brokers lead what the disk here no longer serves."""
        await self._isr_changes.give_up(self._replicas.failed_in_sync())

    async def _scrub(self) -> None:
        await self._mending.scrubber.step(self._pace())

    def _pace(self) -> Pace:
        config = self._replicas.config
        return Pace(
            config.get_int("log.scrub.interval.ms") / 1000,
            config.get_int("log.scrub.io.max.bytes.per.second"),
        )

    async def _look_for_lag(self) -> None:
        """Have followers that fell behind leave the in-sync sets."""
        self._isr_changes.look_for_lag(self._replicas)

    async def _clean(self) -> None:
        replicas = self._replicas
        await replicas.cleaner.run(replicas.config.get_int("log.cleaner.dedupe.buffer.size"))

    async def _flush(self) -> None:
        """Bring what is dirty to the disk, the oldest first, one partition at a time."""
        dirty = [each for each in self._replicas if each.awaits_background_flush]
        dirty.sort(key=lambda partition: partition.log.last_flush_ms)
        for partition in dirty:
            await partition.flush_and_wait()

    async def _checkpoint(self) -> None:
        """Write the checkpoints; one line when that begins to fail, and one when it works again."""
        try:
            await self._replicas.checkpoints.write()
        except KafkaError as error:
            if not self._checkpoint_fails:
                _log.error("checkpoint failed, will be tried again reason=%s", error.message)
            self._checkpoint_fails = True
        else:
            if self._checkpoint_fails:
                _log.warning("checkpoint written again")
            self._checkpoint_fails = False


async def _warm_up() -> None:
    """Compile the codecs that every client needs, a millisecond each, before the first one asks."""
    for each in map(api, _WARM_APIS):
        for message in (each.request, each.response):
            await asyncio.sleep(0)
            warm(message, each.served[1])
