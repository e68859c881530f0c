"""kazoo's lines without a quorum: some, and not one for each try."""

from __future__ import annotations

import logging

import pytest

from tests.unit.storage.helpers import ManualClock
from tidelog.store.kazoo_lines import KazooLines


def test_a_kind_of_line_comes_every_ten_seconds_and_errors_always(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    lines = KazooLines(clock)
    for second in range(30):
        lines.info("Connecting to %s", f"host-{second % 3}")
        lines.warning("Connection dropped: %s", "refused")
        clock.advance(1000)
    lines.error("cannot go on")
    lines.error("cannot go on")
    said = [each.getMessage() for each in caplog.records]
    assert {each: said.count(each) for each in said} == {
        "Connecting to host-0": 1,
        "Connecting to host-1": 1,
        "Connecting to host-2": 1,
        "Connection dropped: refused": 3,
        "cannot go on": 2,
    }
    assert {each.name for each in caplog.records} == {"kazoo.client"}
