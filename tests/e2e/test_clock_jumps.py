"""A running broker whose wall clock jumps nine days ahead, and one that starts nine days ahead."""

from __future__ import annotations

import errno
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.produce_requests import batch, create_topic, offset_at, produce
from tests.e2e.raw_client import RawClient
from tests.e2e.test_groups_runtime import commit, fetched, find_coordinator
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.host.clock import SystemClock
from tidelog.host.disk import Disk
from tidelog.host.host import Host, system_host
from tidelog.storage.checkpoint import write_durably
from tidelog.testing import Broker

DAY_MS = 86_400_000
EARLIEST = -2
SEGMENTS = 5
SETTINGS = {
    "log.retention.check.interval.ms": "50",
    "offsets.retention.check.interval.ms": "50",
    "offsets.topic.num.partitions": "1",
}


class ShiftedClock(SystemClock):
    """The system's clocks; tests set the wall clock off."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ShiftedClock:
    clock = ShiftedClock()

    def host(name: str, threads: int = 4) -> Host:
        real = system_host(name, threads)
        return Host(clock, real.disk, real.offload, real.random)

    monkeypatch.setattr("tidelog.testing.broker.system_host", host)
    return clock


def fill(client: RawClient, topic: str, segments: int = SEGMENTS) -> None:
    """One segment for each batch, as the smallest segment has room for one of them."""
    for _ in range(segments):
        answer = client.call("Produce", 9, produce(topic, batch([bytes(600_000)])))
        assert answer.responses[0].partition_responses[0].error_code == 0


def let_retention_run(client: RawClient) -> None:
    """Return when every partition was looked at since the call; size is never slowed."""
    for _ in range(2):
        fill(client, "small", 2)
        end = offset_at(client, "small", -1)
        eventually(lambda end=end: offset_at(client, "small", EARLIEST) == end)  # type: ignore[misc]


def let_offsets_expire(client: RawClient) -> None:
    """Return when every committed offset was looked at since the call."""
    asked = commit("witness", 1)
    asked.retention_time_ms = 1
    assert client.call("OffsetCommit", 4, asked).topics[0].partitions[0].error_code == 0
    eventually(lambda: committed(client, "witness") == -1)


def committed(client: RawClient, group: str) -> int:
    found: int = fetched(client, group).topics[0].partitions[0].committed_offset
    return found


def set_up(client: RawClient) -> None:
    create_topic(client, "t", message_timestamp_type="LogAppendTime", segment_bytes="1048576")
    create_topic(client, "small", retention_bytes="0", retention_ms="-1", segment_bytes="1048576")
    create_topic(client, "live", retention_ms="-1")
    find_coordinator(client, "g")
    fill(client, "t")
    assert client.call("OffsetCommit", 8, commit("g", 42)).topics[0].partitions[0].error_code == 0
    first = client.call("Produce", 9, produce("live", idempotent(0, producer_id=1)))
    assert first.responses[0].partition_responses[0].error_code == 0


def idempotent(sequence: int, producer_id: int) -> bytes:
    """A batch whose event time is years ago."""
    return batch([b"x"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


@contextmanager
def load(servers: str) -> Iterator[Callable[[], None]]:
    """An idempotent producer that never stops; gives a wait for its next acknowledgements."""
    stop = threading.Event()
    failures: list[object] = []
    acknowledged = 0

    def run() -> None:
        nonlocal acknowledged
        with RawClient(servers) as client:
            for sequence in itertools.count():
                if stop.is_set():
                    return
                answer = client.call("Produce", 9, produce("live", idempotent(sequence, 2)))
                result = answer.responses[0].partition_responses[0]
                if result.error_code:
                    failures.append(ErrorCode(result.error_code))
                    return
                acknowledged += 1

    def more() -> None:
        target = acknowledged + 10
        eventually(lambda: acknowledged >= target, lambda: failures)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield more
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_a_clock_nine_days_ahead_takes_neither_segments_at_once_nor_offsets_nor_producers(
    tmp_path: Path, clock: ShiftedClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with Broker(data_dir=str(tmp_path / "data"), settings=SETTINGS) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            set_up(client)
            with load(broker.bootstrap_servers) as more:
                more()
                clock.ahead_ms += 9 * DAY_MS
                more()
                let_retention_run(client)
                let_offsets_expire(client)
                more()
            # The first segment goes a minute after the start at the earliest.
            assert offset_at(client, "t", EARLIEST) == 0
            assert committed(client, "g") == 42
            # A repetition is known for one: the producer was not forgotten.
            again = client.call("Produce", 9, produce("live", idempotent(0, producer_id=1)))
            assert again.responses[0].partition_responses[0].base_offset == 0
            assert sum("deletion by age" in each for each in caplog.messages) == 1
            # The clock is set right: no trace is left.
            clock.ahead_ms = 0
            let_retention_run(client)
            let_offsets_expire(client)
            assert offset_at(client, "t", EARLIEST) == 0
            assert committed(client, "g") == 42


def test_a_start_nine_days_ahead_takes_nothing_at_once(
    tmp_path: Path, clock: ShiftedClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for starts in range(3):
        caplog.clear()
        with Broker(data_dir=str(tmp_path / "data"), settings=SETTINGS) as broker:
            with RawClient(broker.bootstrap_servers) as client:
                if not starts:
                    set_up(client)
                let_retention_run(client)
                let_offsets_expire(client)
                assert offset_at(client, "t", EARLIEST) == 0
                assert committed(client, "g") == 42
                again = client.call("Produce", 9, produce("live", idempotent(0, producer_id=1)))
                assert again.responses[0].partition_responses[0].base_offset == 0
            # Said at the start that is ahead. The one after it is in the same hour.
            assert sum("deletion by age" in each for each in caplog.messages) == (starts == 1)
        if not starts:
            clock.ahead_ms = 9 * DAY_MS


def test_a_clean_stop_keeps_the_last_time(
    tmp_path: Path, clock: ShiftedClock, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(data_dir=str(tmp_path / "data")):
        clock.ahead_ms = 9 * DAY_MS
    caplog.clear()
    with Broker(data_dir=str(tmp_path / "data")):
        assert "after it last ran" not in caplog.text


def test_a_clock_that_cannot_be_kept_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = threading.Event()
    tries = itertools.count()

    def write(disk: Disk, path: str, data: bytes) -> None:
        if next(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write_durably(disk, path, data)
        written.set()

    monkeypatch.setattr("tidelog.server.housekeeping.write_durably", write)
    monkeypatch.setattr("tidelog.server.housekeeping._CLOCK_SECONDS", 0.01)
    with Broker(data_dir=str(tmp_path / "data")):
        assert written.wait(30)
    refusals = [each for each in caplog.messages if "clock-checkpoint" in each]
    assert len(refusals) == 1 and "No space left on device" in refusals[0]
    assert "housekeeping failed" not in caplog.text
