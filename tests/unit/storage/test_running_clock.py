"""Ages by the time that a broker has run, whatever its wall clock does."""

from __future__ import annotations

import logging
import random

import pytest

from tests.unit.storage.helpers import NOW_MS, ManualClock
from tidelog.storage.checkpoint import write_durably
from tidelog.storage.running_clock import CLOCK_FILE, RunningClock
from tidelog.testing.disk import SimulatedDisk

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
DIRECTORY = "/data"
PATH = f"{DIRECTORY}/{CLOCK_FILE}"
LOOK_MS = 60_000
# Both clocks may drift apart by so much before that is a jump.
TOLERANCE_MS = 5 * MINUTE_MS
JUMPS = {
    "nine days ahead": 9 * DAY_MS,
    "nine days back": -9 * DAY_MS,
    "ten years ahead": 10 * YEAR_MS,
    "ten years back": -10 * YEAR_MS,
    "1970": 1000 - NOW_MS,
}
each_jump = pytest.mark.parametrize("jump_ms", JUMPS.values(), ids=JUMPS)


class Life:
    """A broker's clock over its starts and stops."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self.disk.make_dir(DIRECTORY)
        self.disk.sync_dir("/")
        self.running = RunningClock(self.clock)
        self.running.resume(self.disk, DIRECTORY, is_new=True)

    @property
    def wall_ms(self) -> int:
        return self.clock.now_ms

    @property
    def is_careful(self) -> bool:
        return self.running.ages().is_careful

    def age_ms(self, written_ms: int) -> int:
        return self.running.ages().age_ms(written_ms)

    def run_for(self, ms: int) -> None:
        while ms > 0:
            step_ms = min(ms, LOOK_MS)
            self.clock.advance(step_ms)
            self.running.observe()
            ms -= step_ms

    def jump(self, ms: int) -> None:
        """Set the wall clock, not before 1970; nobody looks at it yet."""
        self.clock.now_ms = max(0, self.clock.now_ms + ms)

    def keep(self) -> None:
        write_durably(self.disk, PATH, self.running.encode())

    def restart(self, down_ms: int, *, kept: bool = True) -> None:
        if kept:
            self.running.observe()
            self.keep()
        self.clock.advance(down_ms)
        # Another process, perhaps after a boot: its monotonic clock begins anew.
        self.clock.seconds = 5.0
        self.running = RunningClock(self.clock)
        self.running.resume(self.disk, DIRECTORY, is_new=False)


def test_what_a_test_advances_is_time_that_the_broker_ran() -> None:
    life = Life()
    written_ms = life.wall_ms
    life.running.observe()
    life.jump(9 * DAY_MS)
    life.running.advanced(9 * DAY_MS)
    assert life.age_ms(written_ms) == 9 * DAY_MS
    assert not life.running.ages().is_careful


def test_only_time_in_which_the_broker_runs_makes_things_older() -> None:
    life = Life()
    written_ms = life.wall_ms
    life.run_for(3 * HOUR_MS)
    assert life.age_ms(written_ms) == 3 * HOUR_MS
    for _ in range(3):
        life.restart(9 * DAY_MS)
        assert life.age_ms(written_ms) % HOUR_MS == 0
        life.run_for(HOUR_MS)
    assert life.age_ms(written_ms) == 6 * HOUR_MS


def test_a_pause_of_the_process_does_not_count() -> None:
    life = Life()
    written_ms = life.wall_ms
    life.run_for(HOUR_MS)
    life.clock.advance(9 * DAY_MS)
    assert life.age_ms(written_ms) <= HOUR_MS + MINUTE_MS
    assert life.is_careful


def test_a_long_recovery_is_not_a_pause() -> None:
    life = Life()
    written_ms = life.wall_ms
    life.clock.advance(20 * MINUTE_MS)
    life.running.started()
    assert life.age_ms(written_ms) == 20 * MINUTE_MS
    assert not life.is_careful


@each_jump
def test_a_jump_makes_nothing_older_and_a_corrected_one_leaves_no_trace(jump_ms: int) -> None:
    life = Life()
    before_ms = life.wall_ms
    life.run_for(HOUR_MS)
    life.jump(jump_ms)
    assert life.age_ms(before_ms) == HOUR_MS
    life.run_for(HOUR_MS)
    meanwhile_ms = life.wall_ms
    life.run_for(HOUR_MS)
    assert (life.age_ms(before_ms), life.age_ms(meanwhile_ms)) == (3 * HOUR_MS, HOUR_MS)
    life.restart(0)
    assert (life.age_ms(before_ms), life.age_ms(meanwhile_ms)) == (3 * HOUR_MS, HOUR_MS)
    life.jump(-jump_ms)
    life.run_for(HOUR_MS)
    life.restart(0)
    after_ms = life.wall_ms
    life.run_for(5 * DAY_MS)
    expected = [4 * HOUR_MS + 5 * DAY_MS, 2 * HOUR_MS + 5 * DAY_MS, 5 * DAY_MS]
    assert [life.age_ms(each) for each in (before_ms, meanwhile_ms, after_ms)] == expected


@each_jump
def test_what_is_written_right_before_and_after_a_jump_is_new(jump_ms: int) -> None:
    life = Life()
    life.run_for(10 * DAY_MS)
    life.clock.advance(LOOK_MS // 3)
    before_ms = life.wall_ms
    life.jump(jump_ms)
    after_ms = life.wall_ms
    life.clock.advance(LOOK_MS // 3)
    for written_ms in (before_ms, after_ms):
        assert life.age_ms(written_ms) <= LOOK_MS
    life.run_for(DAY_MS)
    for written_ms in (before_ms, after_ms):
        assert DAY_MS <= life.age_ms(written_ms) <= DAY_MS + LOOK_MS


@each_jump
def test_what_is_written_after_the_file_was_is_new_after_a_crash(jump_ms: int) -> None:
    life = Life()
    life.run_for(10 * DAY_MS)
    life.keep()
    life.run_for(LOOK_MS // 3)
    before_ms = life.wall_ms
    life.jump(jump_ms)
    life.run_for(LOOK_MS // 3)
    after_ms = life.wall_ms
    life.restart(MINUTE_MS, kept=False)
    for written_ms in (before_ms, after_ms):
        assert life.age_ms(written_ms) == 0
    life.run_for(DAY_MS)
    for written_ms in (before_ms, after_ms):
        assert life.age_ms(written_ms) == DAY_MS


def test_small_corrections_of_the_clock_are_not_jumps_and_do_not_add_up() -> None:
    life = Life()
    written_ms = life.wall_ms
    life.run_for(HOUR_MS)
    for step in range(100):
        life.jump(-4 * MINUTE_MS)
        life.run_for(HOUR_MS)
        assert not life.is_careful
        assert abs(life.age_ms(written_ms) - (step + 2) * HOUR_MS) <= TOLERANCE_MS


def test_times_that_the_clock_never_showed_are_as_young_as_they_can_be() -> None:
    life = Life()
    life.run_for(HOUR_MS)
    assert life.age_ms(-1) == life.age_ms(NOW_MS - YEAR_MS) == HOUR_MS
    life.restart(DAY_MS)
    assert life.age_ms(NOW_MS + 12 * HOUR_MS) == 0
    life.run_for(HOUR_MS)
    assert life.age_ms(NOW_MS + 12 * HOUR_MS) == HOUR_MS
    # From the future: it was there when the process began, and does not stay for ever.
    assert life.age_ms(NOW_MS + 100 * YEAR_MS) == HOUR_MS


# Being careful


def test_a_start_after_more_than_five_minutes_is_careful_for_an_hour_of_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    life = Life()
    life.run_for(HOUR_MS)
    life.restart(5 * MINUTE_MS)
    assert not life.is_careful and not caplog.messages
    life.restart(5 * MINUTE_MS + 1)
    assert life.is_careful
    # Neither another start nor the time without the broker shortens the hour.
    for _ in range(3):
        life.run_for(19 * MINUTE_MS)
        life.restart(4 * MINUTE_MS)
        assert life.is_careful
    life.run_for(3 * MINUTE_MS)
    assert not life.is_careful
    assert len(caplog.messages) == 1
    assert "starts 0.1 hours after it last ran" in caplog.text
    assert "at most one segment per partition and minute" in caplog.text


def test_a_start_behind_the_last_time_is_not_careful_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    life = Life()
    life.run_for(HOUR_MS)
    life.keep()
    life.jump(-9 * DAY_MS)
    life.restart(0, kept=False)
    assert not life.is_careful
    assert "the clock moved 216.0 hours back" in caplog.text


def test_a_jump_is_careful_until_the_clock_is_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    life.run_for(HOUR_MS)
    life.jump(9 * DAY_MS)
    life.run_for(MINUTE_MS)
    assert life.is_careful
    life.jump(DAY_MS)
    life.run_for(MINUTE_MS)
    life.jump(-DAY_MS)
    assert life.is_careful, "that took back only a part of it"
    life.restart(MINUTE_MS)
    life.jump(-9 * DAY_MS)
    assert not life.is_careful
    assert caplog.messages[-1].endswith("deletion by age runs as usual again.")


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"crc32c 00000000\n", b"00000000\n", b"\xff" * 99]
)
def test_a_damaged_file_is_said_and_the_broker_starts_carefully(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life()
    life.run_for(HOUR_MS)
    write_durably(life.disk, PATH, content)
    life.restart(0, kept=False)
    assert life.is_careful
    assert f"{PATH} is damaged" in caplog.text
    life.run_for(HOUR_MS)
    assert not life.is_careful


def test_no_damage_to_the_file_is_believed() -> None:
    life = Life()
    for jump_ms in JUMPS.values():
        life.jump(jump_ms)
        life.run_for(HOUR_MS)
    life.keep()
    whole = life.running.encode()
    changed = [whole[:size] for size in range(len(whole))]
    for position in range(len(whole)):
        for bit in range(8):
            one = bytearray(whole)
            one[position] ^= 1 << bit
            changed.append(bytes(one))
    for content in changed:
        write_durably(life.disk, PATH, content)
        again = RunningClock(life.clock)
        again.resume(life.disk, DIRECTORY, is_new=False)
        assert again.ages().running_ms == 0, content
    assert len(changed) > 1000


def test_without_the_file_a_directory_with_data_is_started_carefully(
    caplog: pytest.LogCaptureFixture,
) -> None:
    life = Life()
    assert not life.is_careful and not caplog.messages
    life.restart(0, kept=False)
    assert life.is_careful
    assert f"{PATH} is missing" in caplog.text


def test_after_a_crash_at_any_time_the_file_is_an_old_one_or_the_new_one() -> None:
    life = Life()
    life.run_for(HOUR_MS)
    life.keep()
    life.run_for(HOUR_MS)
    write_plan = life.running.encode()
    fd = life.disk.open(PATH + ".tmp", create=True)
    life.disk.pwritev(fd, (write_plan[:20],), 0)
    life.disk.close(fd)
    life.disk = life.disk.crash()
    life.restart(0, kept=False)
    assert life.running.ages().running_ms == HOUR_MS


# Over a long life


def test_six_hundred_gaps_leave_a_small_file_and_things_still_get_older() -> None:
    life = Life()
    first_ms = life.wall_ms
    for _ in range(600):
        life.run_for(2 * MINUTE_MS)
        life.restart(HOUR_MS)
    assert len(life.running.encode()) < 32_000
    late_ms = life.wall_ms
    life.run_for(HOUR_MS)
    assert life.age_ms(late_ms) == HOUR_MS
    # The oldest gaps were joined: what is that old is known to be older than the rest.
    assert 250 * 2 * MINUTE_MS <= life.age_ms(first_ms) <= 1200 * MINUTE_MS + HOUR_MS


@pytest.mark.parametrize("seed", range(6))
def test_in_any_life_nothing_ages_faster_than_the_broker_runs(seed: int) -> None:
    chance = random.Random(seed)
    life = Life()
    true_ms = 0
    written: list[tuple[int, int]] = []
    looked = 0
    for _ in range(150):
        happens = chance.choice(("run", "run", "write", "write", "jump", "nudge", "stop", "crash"))
        if happens == "run":
            ms = chance.choice((MINUTE_MS, HOUR_MS, DAY_MS))
            life.run_for(ms)
            true_ms += ms
        elif happens == "write":
            written.append((life.wall_ms, true_ms))
        elif happens == "jump":
            life.jump(chance.choice(tuple(JUMPS.values())))
        elif happens == "nudge":
            life.jump(chance.randint(-4 * MINUTE_MS, 4 * MINUTE_MS))
        elif happens == "stop":
            life.restart(chance.choice((0, MINUTE_MS, 9 * DAY_MS)))
        else:
            life.running.observe()
            life.keep()
            life.jump(chance.choice((0, *JUMPS.values())))
            life.run_for(LOOK_MS)
            true_ms += LOOK_MS
            written.append((life.wall_ms, true_ms))
            life.restart(chance.choice((0, HOUR_MS // 2)), kept=False)
        for written_ms, written_true_ms in written:
            assert life.age_ms(written_ms) <= true_ms - written_true_ms + TOLERANCE_MS
            looked += 1
    assert looked > 1000
    # The clock shows some of these times again, which makes them new then; but not for ever.
    start_ms = life.wall_ms
    life.run_for(12 * DAY_MS)
    for written_ms, _ in written:
        passed_ms = life.wall_ms - max(written_ms, start_ms)
        expected_ms = passed_ms if passed_ms >= 0 else 12 * DAY_MS
        assert life.age_ms(written_ms) >= expected_ms - TOLERANCE_MS
