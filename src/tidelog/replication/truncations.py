"""Cutting logs off the loop, as followers do where their log differs from the leader's.

Cuts that are asked for together share one checkpoint (`storage/truncation` says why there must be
one), so a failover of a thousand partitions writes a few of them and not a thousand. A cut that was
begun is carried through though whoever asked for it is gone: until then nothing can be written to
the log. A full disk or a lack of descriptors delays it; any other fault takes the log offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import KafkaError
from tidelog.host.host import Host
from tidelog.host.offload import Offload
from tidelog.replication.checkpoints import Checkpoints
from tidelog.storage.log import Log
from tidelog.storage.truncation import Truncation

_log = logging.getLogger(__name__)

# How long a cut waits that a full disk or a lack of descriptors has refused.
_RETRY_SECONDS = 0.5


class Truncations:
    """The cuts of one broker that are under way."""

    def __init__(self, checkpoints: Checkpoints, host: Host) -> None:
        self.checkpoints = checkpoints
        self._host = host
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stopping = False

    async def finish(
        self, log: Log, cut: Truncation | None, on_end: Callable[[], None] = lambda: None
    ) -> None:
        """Have the disk do its part of a cut that `Log.cuts` began; None has none to do.

        Returns when that is done; raises where the log went offline over it. `on_end` is called
        in either case, also where the caller is cancelled meanwhile: the cut is not.
        """
        if cut is None:
            on_end()
            return
        task = asyncio.create_task(self._carry_through(log, cut), name="truncation")
        self._tasks[task] = None

        def ended(_: object) -> None:
            del self._tasks[task]
            on_end()

        task.add_done_callback(ended)
        await asyncio.shield(task)

    async def _carry_through(self, log: Log, cut: Truncation) -> None:
        while not log.closed:
            try:
                await self.checkpoints.write()
                await self._host.offload.run(cut.run)
                log.cuts.done(cut)
            except KafkaError as error:
                if log.offline or self._stopping:
                    raise
                _log.warning("log not cut yet directory=%s reason=%s", log.directory, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def retry_no_more(self) -> None:
        """Leave cuts that the disk refuses to the next start, which finds the logs as they are."""
        self._stopping = True

    async def settle(self) -> None:
        """Return once no cut is under way, whatever came of it."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
            # The callbacks come after the wake-up: let them run before looking again.
            await asyncio.sleep(0)


class DiskWork(NamedTuple):
    """What a partition leaves to threads."""

    offload: Offload
    truncations: Truncations
