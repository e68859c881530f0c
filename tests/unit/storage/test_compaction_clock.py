"""Compaction while the wall clock jumps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.storage.compaction_helpers import COMPACT, clean, keyed, pairs, put, seal, stored
from tests.unit.storage.helpers import World
from tidelog.storage.dirt import measure

DAY_MS = 86_400_000


def test_s18_a_jump_of_the_clock_takes_no_tombstone_and_keeps_none_for_ever() -> None:
    here = World(config=replace(COMPACT))
    log = here.open()
    put(log, ("a", None))
    put(log, ("z", "0"))
    seal(log)
    for jump_ms in (9 * DAY_MS, -9 * DAY_MS, 3650 * DAY_MS):
        clean(log)
        here.clock.advance(400)
        here.clock.now_ms += jump_ms
        put(log, ("b", None))
        put(log, ("z", "1"))
        seal(log)
    clean(log)
    tombstones = {key for _, key, value in pairs(stored(log)) if value is None}
    assert tombstones == {"b"}, "that of a is 1200 ms old, that of b 400"
    # The horizon of b lies ten years ahead of a clock that is right again.
    here.clock.now_ms -= 3650 * DAY_MS
    for passed_ms, there in ((500, True), (500, False)):
        here.clock.advance(passed_ms)
        put(log, ("z", "2"))
        seal(log)
        clean(log)
        assert ("b" in {key for _, key, _ in pairs(stored(log))}) is there


@pytest.mark.parametrize("jump_ms", [9 * DAY_MS, -9 * DAY_MS, 3650 * DAY_MS])
def test_a_jump_of_the_clock_neither_shortens_nor_prolongs_the_least_lag(jump_ms: int) -> None:
    here = World(config=replace(COMPACT, min_compaction_lag_ms=5000))
    log = here.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    seal(log)
    here.clock.advance(1000)
    here.clock.now_ms += jump_ms
    assert not measure(log, 2, here.clock.now_ms).dirty_bytes
    for value in ("3", "4"):
        log.append(keyed([("a", value)], timestamp=here.clock.now_ms), 0, here.clock.now_ms)
    seal(log)
    here.clock.advance(4000)
    assert measure(log, 4, here.clock.now_ms).end_offset == 2
    here.clock.now_ms -= jump_ms
    assert measure(log, 4, here.clock.now_ms).end_offset == 2
    here.clock.advance(1000)
    assert measure(log, 4, here.clock.now_ms).end_offset == 4
