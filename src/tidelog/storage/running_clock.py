"""The time that a broker has seen itself run, and what its wall clock showed meanwhile.

A wall clock can be wrong, so nothing is forgotten because of it alone. The running clock counts the
milliseconds that the broker has run. It stands still while the broker is stopped or paused, and
goes on from there at the next start. Beside it is kept what the wall clock showed: a list of
stretches in which both clocks moved together. That list turns a wall time that the broker wrote
down back into a running time, whatever happened to the wall clock since. Ages are differences of
running times: `Ages.age_ms`. Where the list leaves room for doubt, things are taken for young: a
time that the wall clock has shown twice counts as the later one, and one that it never showed as
the next one that it did.

Where the wall clock gets more than five minutes ahead of the running one, by a jump or because the
broker did not run, the clock is careful for an hour of running: deletion by age goes slowly then
(`retention`). It stops being careful once the wall clock is set back to where it was before.

File `clock-checkpoint` in the data directory, text, a line `ran` per stretch, the oldest first:

    0
    now RUNNING_MS WALL_MS
    careful UNTIL_RUNNING_MS WALL_MINUS_RUNNING_BEFORE_MS     (the latter is - where not known)
    ran RUNNING_START_MS RUNNING_END_MS WALL_START_MS WALL_END_MS WALL_MINUS_RUNNING_MS
    crc32c CHECKSUM_OF_ALL_LINES_ABOVE

If the file is missing or damaged, the broker starts all the same: history begins again, and the
clock is careful.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.host.clock import Clock
from tidelog.host.disk import Disk
from tidelog.protocol.checksum import crc32c
from tidelog.storage.checkpoint import read_bytes

logger = logging.getLogger(__name__)

CLOCK_FILE = "clock-checkpoint"
_VERSION = "0"
# How far the two clocks may drift apart before that counts as a jump.
_JUMP_MS = 300_000
# The broker looks at its clocks every few seconds: a longer time between two looks was a pause.
_STEP_MS_MAX = 60_000
_HOUR_MS = 3_600_000
_CAREFUL_MS = _HOUR_MS
_STRETCHES_MAX = 256
_MOVED_AHEAD = "the clock moved %.1f hours ahead, or the broker was paused"
_SLOWED = (
    "For an hour, deletion by age takes at most one segment per partition and minute. If the clock"
    " is wrong, set it right now; if it is right, there is nothing to do."
)


class Stretch(NamedTuple):
    """A time of running in which the wall clock neither jumped nor drifted by five minutes."""

    running_start_ms: int
    running_end_ms: int
    # What the wall clock may have shown meanwhile, and by how much it was ahead of the running one.
    wall_start_ms: int
    wall_end_ms: int
    lead_ms: int

    def covers(self, wall_ms: int) -> bool:
        return self.wall_start_ms <= wall_ms <= self.wall_end_ms

    def running_at(self, wall_ms: int) -> int:
        return max(self.running_start_ms, min(wall_ms - self.lead_ms, self.running_end_ms))

    def extended_to(self, running_ms: int, wall_ms: int) -> Stretch:
        """With all that the wall clock may have shown until now; it may have gone back a little."""
        since_ms = wall_ms - (running_ms - self.running_end_ms)
        return self._replace(
            running_end_ms=running_ms,
            wall_start_ms=min(self.wall_start_ms, since_ms),
            wall_end_ms=max(self.wall_end_ms, wall_ms),
        )

    def joined_with(self, later: Stretch) -> Stretch:
        """Both as one, in which no time is taken for an older one than it was."""
        return Stretch(
            self.running_start_ms,
            later.running_end_ms,
            min(self.wall_start_ms, later.wall_start_ms),
            max(self.wall_end_ms, later.wall_end_ms),
            min(self.lead_ms, later.lead_ms),
        )


class Ages(NamedTuple):
    """How old things are at one moment, in time that the broker has run. May be handed on."""

    running_ms: int
    wall_ms: int
    # When this process began, and whether deletion by age goes slowly now.
    started_ms: int
    is_careful: bool
    current: Stretch
    ended: tuple[Stretch, ...]

    def age_ms(self, written_ms: int) -> int:
        """How long the broker has run since its wall clock showed `written_ms`.

        Where that is not known, it is the shortest time that it can have been; never negative.
        """
        return max(0, self.running_ms - self._running_at(written_ms))

    def _running_at(self, written_ms: int) -> int:
        current = self.current
        if current.covers(written_ms):
            return current.running_at(written_ms)
        for stretch in reversed(self.ended):
            if stretch.covers(written_ms):
                return stretch.running_at(written_ms)
        # Never shown: written by another broker, or before there was a history.
        earlier = [each.running_end_ms for each in self.ended if each.wall_end_ms < written_ms]
        oldest = self.ended[0] if self.ended else current
        running_ms = max(earlier, default=oldest.running_start_ms)
        if written_ms > self.wall_ms:
            # The future: all that is known is that it was here when this process began.
            return max(running_ms, self.started_ms)
        return running_ms


@dataclass(slots=True)
class _State:
    """What is kept in the file."""

    running_ms: int
    wall_ms: int
    careful_until_ms: int
    # What the wall clock showed more than the running one before the clock became careful.
    lead_before_ms: int | None
    current: Stretch
    ended: tuple[Stretch, ...] = ()


class RunningClock:
    """Owns the running time of one broker. Only the event loop's thread calls it."""

    __slots__ = ("_clock", "_monotonic", "_started_ms", "_state")

    def __init__(self, clock: Clock) -> None:
        wall_ms = clock.wall_ms()
        self._clock = clock
        self._monotonic = clock.monotonic()
        self._started_ms = 0
        self._state = _State(0, wall_ms, 0, None, Stretch(0, 0, wall_ms, wall_ms, wall_ms))

    def resume(self, disk: Disk, directory: str, *, is_new: bool) -> None:
        """Go on from what the data directory says; `is_new` where there is nothing in it yet."""
        path = f"{directory}/{CLOCK_FILE}"
        try:
            data = read_bytes(disk, path)
            state = None if data is None else decode(data, path)
        except (OSError, StorageError) as error:
            state, reason = None, str(error)
        else:
            reason = f"{path} is missing"
        if state is not None:
            self._state = state
            self._started_ms = state.running_ms
            self._monotonic = self._clock.monotonic()
            # What was written after the file was belongs to its last stretch; or to the one that
            # begins now, where the clock jumped in between. That may have been long before now.
            known = state.current.extended_to(state.running_ms, state.wall_ms + _STEP_MS_MAX)
            state.current = known
            self._look("the broker starts %.1f hours after it last ran, by its clock")
            if state.current.lead_ms != known.lead_ms:
                wall_start_ms = state.current.wall_start_ms - _HOUR_MS
                state.current = state.current._replace(wall_start_ms=wall_start_ms)
        elif not is_new:
            self._state.careful_until_ms = _CAREFUL_MS
            logger.warning("the broker does not know when it last ran: %s. %s", reason, _SLOWED)

    def started(self) -> None:
        """The broker serves now; a long recovery before that was not a pause."""
        self._look(_MOVED_AHEAD, _HOUR_MS)

    def observe(self) -> None:
        """Look at both clocks: time has passed, or one of them has jumped."""
        self._look(_MOVED_AHEAD)

    def advanced(self, ms: int) -> None:
        """A test has moved the wall clock ahead, and the broker is to have run for as long."""
        state = self._state
        state.running_ms += ms
        state.wall_ms += ms
        state.current = state.current.extended_to(state.running_ms, state.wall_ms)

    def _look(self, how_it_moved: str, step_ms_max: int = _STEP_MS_MAX) -> None:
        state = self._state
        wall_ms = self._clock.wall_ms()
        elapsed_ms = max(0, round((self._clock.monotonic() - self._monotonic) * 1000))
        if not elapsed_ms and wall_ms == state.wall_ms:
            return
        # Not the time of this look: the fraction of a millisecond is for the next one.
        self._monotonic += elapsed_ms / 1000
        step_ms = min(elapsed_ms, step_ms_max)
        ahead_ms = wall_ms - state.wall_ms - step_ms
        if ahead_ms > _JUMP_MS:
            self._moved_ahead(how_it_moved % (ahead_ms / _HOUR_MS))
        running_ms = state.running_ms + step_ms
        if ahead_ms < -_JUMP_MS:
            self._moved_back(-ahead_ms, wall_ms - running_ms)
        current = state.current
        lead_ms = wall_ms - running_ms
        if abs(lead_ms - current.lead_ms) <= _JUMP_MS:
            state.current = current.extended_to(running_ms, wall_ms)
        else:
            # The jump may have been at any time since the last look: both stretches cover it.
            ended = current.extended_to(running_ms, state.wall_ms + step_ms)
            state.ended = _bounded((*state.ended, ended))
            state.current = Stretch(
                state.running_ms, running_ms, wall_ms - step_ms, wall_ms, lead_ms
            )
        state.running_ms, state.wall_ms = running_ms, wall_ms

    def ages(self) -> Ages:
        """Look at the clocks, and how old things are by them."""
        self.observe()
        state = self._state
        return Ages(
            state.running_ms,
            state.wall_ms,
            self._started_ms,
            state.running_ms < state.careful_until_ms,
            state.current,
            state.ended,
        )

    def encode(self) -> bytes:
        """The file's bytes, as of the last look."""
        return encode(self._state)

    def _moved_ahead(self, how_it_moved: str) -> None:
        state = self._state
        if state.running_ms >= state.careful_until_ms:
            state.lead_before_ms = state.wall_ms - state.running_ms
        state.careful_until_ms = state.running_ms + _CAREFUL_MS
        logger.warning("%s. %s", how_it_moved, _SLOWED)

    def _moved_back(self, back_ms: int, lead_ms: int) -> None:
        state = self._state
        before_ms = state.lead_before_ms
        outcome = (
            "If it is wrong, set it right. Until then the broker refuses records that are more than"
            " message.timestamp.after.max.ms ahead of it."
        )
        is_careful = state.running_ms < state.careful_until_ms
        if is_careful and before_ms is not None and abs(lead_ms - before_ms) <= _JUMP_MS:
            state.careful_until_ms = 0
            outcome = "It is where it was before; deletion by age runs as usual again."
        logger.warning("the clock moved %.1f hours back. %s", back_ms / _HOUR_MS, outcome)


def _bounded(stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """As many as are kept; the oldest become one."""
    if len(stretches) < _STRETCHES_MAX:
        return stretches
    return (stretches[0].joined_with(stretches[1]), *stretches[2:])


def encode(state: _State) -> bytes:
    before_ms = "-" if state.lead_before_ms is None else state.lead_before_ms
    lines = [
        _VERSION,
        f"now {state.running_ms} {state.wall_ms}",
        f"careful {state.careful_until_ms} {before_ms}",
        *(
            f"ran {each.running_start_ms} {each.running_end_ms}"
            f" {each.wall_start_ms} {each.wall_end_ms} {each.lead_ms}"
            for each in (*state.ended, state.current)
        ),
    ]
    body = "".join(f"{line}\n" for line in lines).encode()
    return body + f"crc32c {crc32c(body):08x}\n".encode()


def decode(data: bytes, path: str) -> _State:
    """The reverse of `encode`; StorageError where a byte of it is not as it was written."""
    body, _, checksum = data.rpartition(b"crc32c ")
    if checksum != f"{crc32c(body):08x}\n".encode():
        raise StorageError(f"{path} is damaged: its checksum does not match")
    try:
        version, *lines = body.decode().splitlines()
        if version != _VERSION:
            raise ValueError(f"unknown version {version}")
        (_, running, wall), (_, careful, before), *ran = (line.split(" ") for line in lines)
        *ended, current = (Stretch(*map(int, fields)) for _, *fields in ran)
        lead_before_ms = None if before == "-" else int(before)
        return _State(int(running), int(wall), int(careful), lead_before_ms, current, tuple(ended))
    except (ValueError, TypeError) as error:
        raise StorageError(f"{path} is damaged or of another version: {error}") from error
