"""The scrub: all batches come to be checked, at its pace, and what moves meanwhile is no damage."""

from __future__ import annotations

import pytest

from tests.unit.replication.helpers import Place
from tidelog.replication import scrubbing
from tidelog.replication.partition import Partition
from tidelog.replication.scrubbing import Pace, Scrubber
from tidelog.storage.damage import Checked
from tidelog.storage.segment import Segment
from tidelog.testing.virtual_loop import run_virtual

PACE = Pace(3600.0, 1 << 20)
BATCHES = 20


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "_STEP_BYTES", 1)


class Scrubbed:
    """A led partition, what scrubs it, and the damage that was told of."""

    def __init__(self) -> None:
        self.place = Place()
        self.partition: Partition = self.place.lead()
        for number in range(BATCHES):
            self.place.put(self.partition, b"%020d" % number)
        self.scrubber = Scrubber(lambda: [self.partition], self.place.host)
        self.found: list[Segment] = []
        self.place.data_dir.context.on_damage = self.found.append

    @property
    def path(self) -> str:
        return self.partition.log.segments.active.log_file.path

    async def whole_pass(self) -> int:
        passes, steps = self.scrubber.passes, 0
        while self.scrubber.passes == passes:
            await self.scrubber.step(PACE)
            steps += 1
        return steps

    async def cut(self, offset: int) -> None:
        cut = self.partition.log.cuts.truncation(offset)
        assert cut is not None
        cut.run()
        self.partition.log.cuts.done(cut)


def test_a_pass_comes_to_all_bytes_and_finds_what_is_damaged() -> None:
    async def main() -> None:
        here = Scrubbed()
        size = here.partition.log.segments.size_bytes
        await here.whole_pass()
        assert here.scrubber.checked_bytes == size and not here.found
        here.place.disk.corrupt(here.path, size - 3)
        await here.whole_pass()
        assert here.found == [here.partition.log.segments.active]

    run_virtual(main())


def test_a_log_that_was_cut_and_grew_between_two_steps_is_checked_from_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrubbing, "_STEP_SEGMENTS", 1)

    async def main() -> None:
        here = Scrubbed()
        checks = scrubbing.check

        def half(segment: Segment, begin: Checked, end: int, most: int, epochs: object) -> Checked:
            return checks(segment, begin, end // 2, most)

        monkeypatch.setattr(scrubbing, "check", half)
        await here.scrubber.step(PACE)
        assert here.scrubber.checked_bytes < here.partition.log.segments.size_bytes
        monkeypatch.setattr(scrubbing, "check", checks)
        await here.cut(3)
        for number in range(BATCHES):
            here.place.put(here.partition, b"another length %d" % number)
        await here.whole_pass()
        assert not here.found

    run_virtual(main())


def test_the_pace_is_that_of_the_interval_and_never_above_the_rate() -> None:
    async def main() -> None:
        here = Scrubbed()
        assert here.scrubber.rest_seconds(PACE) == 60.0
        assert here.scrubber.rest_seconds(Pace(5.0, 1)) == 5.0
        await here.whole_pass()
        assert here.scrubber.rest_seconds(PACE) == pytest.approx(3600.0)
        await here.scrubber.step(Pace(0.001, 100))
        size = here.partition.log.segments.size_bytes
        assert here.scrubber.rest_seconds(Pace(0.001, 100)) == pytest.approx(size / 100)
        # Switched off, it looks now and then whether it still is, and does nothing.
        before = here.scrubber.checked_bytes
        await here.scrubber.step(Pace(0.0, 100))
        assert here.scrubber.checked_bytes == before
        assert here.scrubber.rest_seconds(Pace(0.0, 100)) == 60.0

    run_virtual(main())


def test_a_broker_without_a_log_rests() -> None:
    async def main() -> None:
        scrubber = Scrubber(list, Place().host)
        await scrubber.step(PACE)
        assert scrubber.rest_seconds(PACE) == pytest.approx(3600.0)

    run_virtual(main())
