"""The scrub: reads all logs slowly, again and again, and holds every batch to its checksum.

A pass is spread over `log.scrub.interval.ms`, within `log.scrub.io.max.bytes.per.second`. It is
done in steps of about a megabyte on a thread; between two of them nothing is held. What was cut,
compacted or deleted meanwhile is passed over: the next pass comes to what is there then. What is
found is marked (`storage/damage`), and whoever mends it is told by that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tidelog.errors import StorageError
from tidelog.host.host import Host
from tidelog.replication.partition import Partition
from tidelog.storage.damage import Checked, check, mark
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.storage.slices import FileSlice, Slices

_STEP_BYTES: Final = 1 << 20
# Files that one step may open: most segments of most brokers are small.
_STEP_SEGMENTS: Final = 64
# A pass begins so long after a start or after the last one, if not later.
_FIRST_SECONDS: Final = 60.0
# Where all that a step came to was gone.
_REST_SECONDS_MIN: Final = 0.05
# How much is read where a reader has met damage.
_SUSPECT_BYTES: Final = 8 << 20


class Pace(NamedTuple):
    """How fast a pass goes; an interval of 0 is none at all."""

    interval_s: float
    bytes_per_second_max: int


class Scrubber:
    """Checks the logs of one broker."""

    def __init__(self, partitions: Callable[[], Iterable[Partition]], host: Host) -> None:
        self._partitions = partitions
        self._host = host
        # What is left of this pass; where its first segment was left, and how often that was cut.
        self._left: deque[tuple[Partition, Segment]] = deque()
        self._at: tuple[Checked, int] | None = None
        self._pass_bytes = 0
        self._rest_s, self._rest_s_min = _FIRST_SECONDS, _REST_SECONDS_MIN
        self.passes = 0
        self.checked_bytes = 0

    def rest_seconds(self, pace: Pace) -> float:
        """How long to wait before the next step."""
        if not pace.interval_s:
            return _FIRST_SECONDS
        return max(min(self._rest_s, pace.interval_s), self._rest_s_min)

    async def step(self, pace: Pace) -> None:
        """Check about a megabyte."""
        if not pace.interval_s:
            self._left.clear()
            return
        if not self._left:
            self._begin()
        done = 0
        for _ in range(_STEP_SEGMENTS):
            if not self._left or done >= _STEP_BYTES:
                break
            done += await self._check_some(*self._left[0])
        self.checked_bytes += done
        if not self._left:
            self.passes += 1
        share = done / self._pass_bytes if self._pass_bytes else 1.0
        self._rest_s = share * pace.interval_s
        self._rest_s_min = max(done / pace.bytes_per_second_max, _REST_SECONDS_MIN)

    def _begin(self) -> None:
        """All that there is now, from another partition on each time: a broker that is often
        started again comes to all of them, too."""
        partitions = list(self._partitions())
        found = [(one, each) for one in partitions for each in one.log.segments if each.size_bytes]
        self._pass_bytes = sum(segment.size_bytes for _, segment in found)
        self._left = deque(found)
        self._left.rotate(-(self._host.clock.wall_ms() % max(1, len(found))))
        self._at = None

    async def _check_some(self, partition: Partition, segment: Segment) -> int:
        """Check the next piece of a segment; how many bytes it had."""
        log = partition.log
        begin = Checked(0, segment.base_offset)
        if self._at is not None and self._at[1] == segment.truncations:
            begin = self._at[0]
        # A sole replica must not be refused for the sake of a file of its own that nobody mends.
        epochs = tuple(log.epochs.entries) if len(partition.replicas) > 1 else ()
        checked = await self.check(log, segment, begin, _STEP_BYTES, epochs)
        if checked is None or checked.damage is not None or checked.end >= segment.size_bytes:
            self._left.popleft()
            self._at = None
        else:
            self._at = checked, segment.truncations
        return 0 if checked is None else checked.end - begin.end

    async def look_at(self, log: Log, offset: int) -> None:
        """Check what a reader at `offset` is given: it could not use it."""
        segment = log.segments.holder(offset)
        try:
            position, left = segment.find(offset), _SUSPECT_BYTES
        except StorageError:
            # There is no batch of that offset: one before it is damaged, wherever it is.
            position, left = 0, segment.size_bytes
        begin = Checked(position, segment.base_offset)
        for each in [each for each in log.segments if each.base_offset >= segment.base_offset]:
            checked = await self.check(log, each, begin, left)
            if checked is None or checked.damage is not None:
                break
            left -= checked.end - begin.end
            begin = Checked(0, each.next_offset)
            if left <= 0:
                break

    async def check(
        self,
        log: Log,
        segment: Segment,
        begin: Checked,
        bytes_max: int,
        epochs: tuple[tuple[int, int], ...] = (),
    ) -> Checked | None:
        """Check a piece on a thread and mark what is found; None where the log moved on."""
        end = segment.size_bytes
        if begin.end >= end or not _is_there(log, segment):
            return None
        truncations = segment.truncations
        held = Slices([FileSlice(segment, begin.end, end - begin.end)], end - begin.end)
        try:
            checked = await self._host.offload.run(check, segment, begin, end, bytes_max, epochs)
        except OSError:
            # A disk that cannot be read is found by those who need it.
            return None
        finally:
            held.release()
        if not _is_there(log, segment) or segment.truncations != truncations:
            return None
        if checked.damage is not None:
            mark(segment, checked.damage)
        return checked


def _is_there(log: Log, segment: Segment) -> bool:
    return not log.closed and not log.offline and log.segments.has([segment])
