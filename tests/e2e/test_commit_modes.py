"""Ways to commit under one kill schedule: which lose, which repeat, and how much at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from confluent_kafka.admin import AdminClient

from examples.commit_mode_consumer import BATCH_MAX, MODES
from examples.commit_modes import HEADING, Schedule
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.example_process import ROOT, ExampleProcess
from tests.waiting import eventually

MESSAGES, KILLS, SEED, WORK_US = 2_400, 3, 1, 500
PAGES = ROOT / "docs" / "commits"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with BrokerProcess(tmp_path / "data", {"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap_servers


@dataclass
class Row:
    """A line of the table."""

    mode: str
    kills: int
    processed: int
    per_second: int
    lost: int
    repeated: int

    @classmethod
    def read(cls, line: str) -> Row:
        mode, *figures = line.split()[:6]
        return cls(mode, *(int(figure.replace(",", "")) for figure in figures))


@pytest.mark.long
def test_modes_lose_and_repeat_what_their_pages_say(servers: str) -> None:
    options = [
        "--messages", str(MESSAGES), "--kills", str(KILLS), "--seed", str(SEED),
        "--work-us", str(WORK_US),
    ]  # fmt: skip
    with ExitStack() as running:
        # Side by side, because each of them waits most of the time.
        demonstrations = [
            running.enter_context(ExampleProcess(servers, "commit_modes", mode, *options))
            for mode in MODES
        ]
        printed = [each.ends() for each in demonstrations]
    assert all(lines[1] == HEADING for lines in printed), printed
    rows = {row.mode: row for row in (Row.read(lines[2]) for lines in printed)}
    assert rows.keys() == MODES.keys()
    for row in rows.values():
        assert row.processed == MESSAGES - row.lost + row.repeated
        assert row.per_second > 0

    trap = rows.pop("auto-thread")
    assert trap.kills >= 1 and trap.lost > 0, trap
    for row in rows.values():
        assert row.kills == KILLS and row.lost == 0, row
    lives = Schedule.seeded(MESSAGES, KILLS, SEED, WORK_US).lives
    assert rows["per-record"].repeated <= KILLS
    assert rows["synchronous"].repeated <= KILLS * BATCH_MAX
    # What these repeat depends on time; a life repeats no more than all that went before it.
    for mode in ("auto", "asynchronous"):
        assert rows[mode].repeated <= sum(sum(lives[:end]) for end in range(1, KILLS + 1))


def test_a_demonstration_that_is_stopped_leaves_no_consumer_and_no_topic(servers: str) -> None:
    with ExampleProcess(servers, "commit_modes", "auto") as demonstration:
        demonstration.wait_for_line(HEADING)
        itself = psutil.Process(demonstration.process.pid)
        eventually(lambda: bool(itself.children()), lambda: demonstration.lines)
        consumers = itself.children()
        assert len(demonstration.stop(code=130)) == 2
    assert not [each for each in consumers if each.is_running()]
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
    assert topics.keys() <= {"__consumer_offsets"}


def test_every_mode_has_a_page_with_its_line_of_the_table() -> None:
    table = (PAGES / "README.md").read_text()
    assert HEADING in table
    lines = {line.split()[0]: line for line in table.split(HEADING)[1].splitlines()[1:6]}
    assert lines.keys() == MODES.keys()
    for mode in MODES.keys() - {"auto-thread"}:
        page = (PAGES / f"{mode}.md").read_text()
        assert HEADING in page and lines[mode] in page, mode
    assert lines["auto-thread"] in (PAGES / "auto.md").read_text()
