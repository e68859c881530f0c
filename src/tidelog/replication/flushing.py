"""Group commit: when a log is brought to the disk, off the loop, one `fdatasync` at a time.

Everything appended while one write-out runs is covered by the next, so a busy topic pays one
`fdatasync` for many batches. With `durability=fsync` the committed end is what a finished write-out
covered. `flush.messages` and `flush.ms` say when one is due; without them it is due at every
append of an fsync topic, and otherwise whenever the background flusher comes round.

A write-out that fails is never tried again: the kernel may have dropped the dirty pages, and a
second `fdatasync` would then claim success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tidelog.config.topic_config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.offload import Offload
from tidelog.host.prompt import when_done
from tidelog.model import LogPosition
from tidelog.storage.flush import FlushPlan
from tidelog.storage.log import Log

NEVER = 2**63 - 1
# How long a write-out waits that a full disk or a lack of descriptors has refused.
_RETRY_SECONDS = 0.5


class Flushing:
    """The write-outs of one log."""

    def __init__(
        self,
        log: Log,
        offload: Offload,
        on_flushed: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._log = log
        self._offload = offload
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._running: asyncio.Future[None] | None = None
        self._again = False
        self._timer: asyncio.TimerHandle | None = None
        self._committed_end: LogPosition | None = None
        # How often the log had been cut when that was found.
        self._truncations = log.truncations
        self._flush_messages = self._flush_ms = NEVER
        self._every_append = False
        self._stopped = False

    def configure(self, config: TopicConfig) -> None:
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        explicit = config.flush_messages != NEVER or config.flush_ms != NEVER
        self._every_append = config.durability_fsync and not explicit

    def committed_end(self) -> LogPosition:
        """How far finished write-outs reach."""
        if self._committed_end is None or self._truncations != self._log.truncations:
            # Nothing that was written out before the log was cut says what is there now.
            return self._log.segments.position_after(self._log.flushed_offset)
        return self._committed_end

    def segments_replaced(self) -> None:
        """The place of the committed end may be another now, its offset is not."""
        if self._committed_end is not None:
            end = self.committed_end()
            self._committed_end = self._log.segments.position_after(end.offset)
            self._truncations = self._log.truncations

    def appended(self) -> None:
        """The log grew: write it out now, later, or leave it to the background flusher."""
        if self._every_append or self._log.unflushed_messages >= self._flush_messages:
            self.start()
        elif self._flush_ms != NEVER and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._flush_ms / 1000, self.start)

    def start(self) -> None:
        """Begin a write-out, or have one follow the one that runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None:
            self._again = True
            return
        if self._log.offline or self._log.closed or self._log.cuts.under_way:
            # A cut syncs all that is left; the next append comes behind it.
            return
        end = self._log.end_position
        try:
            plan = self._log.flush_plan()
        except KafkaError as error:
            self._refused(error)
        except AssertionError as error:
            self._on_failed(error)
        else:
            self._running = self._offload.run(plan.run)
            when_done(self._running, partial(self._ended, plan, end))

    def _ended(self, plan: FlushPlan, end: LogPosition, run: asyncio.Future[None]) -> None:
        self._running = None
        again, self._again = self._again, False
        raised = None if run.cancelled() else run.exception()
        if run.cancelled() or raised is not None:
            # A write-out reports its faults in the plan: this one did not even end.
            plan.release()
            broken_off = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a write-out was broken off")
            self._on_failed(raised if isinstance(raised, Exception) else broken_off)
            return
        try:
            if self._log.flushed(plan):
                self._committed_end = end
                self._truncations = self._log.truncations
                self._on_flushed()
        except KafkaError as error:
            self._refused(error)
        except AssertionError as error:
            self._on_failed(error)
        else:
            if again:
                self.start()

    def _refused(self, error: KafkaError) -> None:
        """Nothing was brought to the disk: give up, or try again where the fault may pass."""
        if self._log.offline:
            self._on_failed(error)
        elif self._timer is None and not self._stopped:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_RETRY_SECONDS, self.start)

    async def settle(self) -> None:
        """Return once no write-out runs or is to follow."""
        while self._running is not None:
            await asyncio.wait([self._running])
            # Our own callback comes after the wake-up: let it run before looking again.
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
