"""A client that goes away during its fetch leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import InProcessBroker
from tests.e2e.test_fetch_sessions import PARTITIONS, Reader, run, send
from tidelog.server import fetch_sessions, pieces
from tidelog.server.dispatch import Dispatcher


def held(broker: InProcessBroker) -> tuple[int, int, int]:
    """Watchers of partitions, readers of segments, and the memory of those who wait."""
    partitions = list(broker.parts.replicas)
    return (
        sum(len(each.watermark.watchers) for each in partitions),
        sum(segment.readers for each in partitions for segment in each.log.segments),
        broker.parts.fetch_sessions.size_bytes,
    )


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_UNITS", 8)
    monkeypatch.setattr(fetch_sessions, "SMALL_FETCH_PARTITIONS", 8)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# The turns of the loop after which a session may be complete, and stays until it gives way.
LOOKED_AT_ALL = 12


# From the first piece of the look at the partitions to the end of the answer's encoding.
@pytest.mark.parametrize("turns_before", range(0, 24, 3))
@pytest.mark.parametrize("epoch", [-1, 0], ids=["no session", "a new session"])
def test_a_client_that_leaves_a_large_fetch_leaves_no_reader_and_no_watcher(
    tmp_path: Path, epoch: int, turns_before: int
) -> None:
    async def scenario(broker: InProcessBroker, client: Any) -> None:
        for partition in range(0, PARTITIONS, 2):
            await send(client, partition)
        gone = broker.connect()
        reader = Reader(gone)
        reader.epoch = epoch
        request = reader.request(dict.fromkeys(range(PARTITIONS), 0))
        gone.send(gone.encode("Fetch", 11, request))
        await turns(turns_before)
        gone.close()
        await turns(5)
        # An answer that was being encoded is held by the frames of the task that was cancelled.
        gc.collect()
        watchers, readers, size_bytes = held(broker)
        assert readers == 0
        if epoch == -1 or turns_before < LOOKED_AT_ALL:
            assert (watchers, size_bytes) == (0, 0)

    run(tmp_path, scenario)


@pytest.mark.parametrize("turns_before", range(0, 16, 3))
def test_a_client_that_leaves_while_its_wait_is_answered_leaves_nothing_behind(
    tmp_path: Path, turns_before: int
) -> None:
    async def scenario(broker: InProcessBroker, client: Any) -> None:
        gone = broker.connect()
        reader = Reader(gone)
        reader.epoch = -1
        request = reader.request(dict.fromkeys(range(PARTITIONS), 0), max_wait_ms=60_000)
        gone.send(gone.encode("Fetch", 11, request))
        while held(broker)[2] == 0:
            await asyncio.sleep(0)
        assert held(broker)[0] == PARTITIONS
        await send(client, 0)
        await turns(turns_before)
        gone.close()
        await turns(5)
        # An answer that was being encoded is held by the frames of the task that was cancelled.
        gc.collect()
        assert held(broker) == (0, 0, 0)

    run(tmp_path, scenario)


def test_an_answer_that_is_dropped_before_it_is_sent_holds_no_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: InProcessBroker, client: Any) -> None:
        await send(client, 0)
        original = Dispatcher._encode
        dropped = []

        def encode(self: Dispatcher, *arguments: Any) -> Any:
            dropped.append(original(self, *arguments))

        monkeypatch.setattr(Dispatcher, "_encode", encode)
        reader = Reader(broker.connect())
        reader.client.send(reader.client.encode("Fetch", 11, reader.request({0: 0})))
        assert held(broker)[1] == 1
        dropped.clear()
        assert held(broker)[1] == 0

    run(tmp_path, scenario)
