"""A damaged batch is the fault of its partition: other readers and producers do not notice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import InProcessBroker
from tests.e2e.produce_requests import values_in
from tests.e2e.test_fetch_sessions import Reader, run, send
from tidelog.errors import ErrorCode
from tidelog.server.handlers.fetch import FetchAttempt

LARGE = b"x" * 1500


async def damage(directory: Path, client: Any) -> int:
    """Write two batches to partition 0 and spoil the length of the first; the size of both."""
    for _ in range(2):
        await send(client, 0, LARGE)
    log = directory / "t-0" / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.seek(8)
        file.write(b"\x7f")
    return log.stat().st_size


@pytest.mark.parametrize("epoch", [-1, 0], ids=["no session", "a session"])
def test_a_fetch_serves_the_other_partitions_and_names_the_damaged_one(
    tmp_path: Path, epoch: int
) -> None:
    async def scenario(broker: InProcessBroker, client: Any) -> None:
        await damage(tmp_path, client)
        await send(client, 1)
        reader = Reader(broker.connect())
        reader.epoch = epoch
        told = await reader.fetch({1: 0, 0: 0}, max_bytes=2000)
        assert values_in(told[1]) == [b"value"]
        assert told[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario)


def test_a_damaged_partition_is_in_the_log_once_however_often_it_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: InProcessBroker, client: Any) -> None:
        await damage(tmp_path, client)
        reader = Reader(broker.connect())
        reader.epoch = -1
        for _ in range(20):
            told = await reader.fetch({0: 0}, max_bytes=2000)
            assert told[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario)
    lines = [each.getMessage() for each in caplog.records if "cannot read" in each.getMessage()]
    assert len(lines) == 1 and "partition=t-0 fetches=1 " in lines[0]


def test_an_append_wakes_everybody_where_one_of_them_also_reads_a_damaged_partition(
    tmp_path: Path,
) -> None:
    async def scenario(broker: InProcessBroker, client: Any) -> None:
        size = await damage(tmp_path, client)
        both, other = Reader(broker.connect()), Reader(broker.connect())
        both.epoch = other.epoch = -1
        limits = {"min_bytes": 1 << 20, "max_bytes": size + 2000, "max_wait_ms": 60_000}
        waiting = asyncio.ensure_future(both.fetch({1: 0, 0: 0}, **limits))
        innocent = asyncio.ensure_future(other.fetch({1: 0}, max_wait_ms=60_000))
        await asyncio.sleep(0)
        await send(client, 1, b"y" * 3000)
        assert values_in((await innocent)[1]) == [b"y" * 3000]
        told = await waiting
        assert values_in(told[1]) == [b"y" * 3000]
        assert told[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario)


def test_a_fault_while_a_wait_is_answered_costs_its_connection_and_not_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: InProcessBroker, client: Any) -> None:
        gone, other = broker.connect(), Reader(broker.connect())
        reader = Reader(gone)
        gone.send(gone.encode("Fetch", 11, reader.request({1: 0}, max_wait_ms=60_000)))
        innocent = asyncio.ensure_future(other.fetch({1: 0}, max_wait_ms=60_000))
        await asyncio.sleep(0)
        original = FetchAttempt.look_at
        looked: list[object] = []

        def look_at(self: FetchAttempt, target: Any) -> None:
            looked.append(target)
            if len(looked) == 1:
                raise ValueError("a fault of ours")
            original(self, target)

        monkeypatch.setattr(FetchAttempt, "look_at", look_at)
        await send(client, 1)
        assert values_in((await innocent)[1]) == [b"value"]
        assert gone.is_closed

    run(tmp_path, scenario)
