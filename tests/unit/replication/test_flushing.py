"""Write-outs that are refused for a while."""

from __future__ import annotations

import asyncio
import errno

import pytest

from tests.unit.storage.helpers import World, append
from tidelog.errors import KafkaError
from tidelog.host.offload import ThreadOffload
from tidelog.replication import flushing
from tidelog.replication.flushing import Flushing


@pytest.mark.parametrize("call", ["open", "sync_dir"])
def test_a_write_out_that_gets_no_descriptor_is_tried_again_by_itself(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "_RETRY_SECONDS", 0.001)
    world = World()
    log = world.open()
    append(log)
    with world.context.files.lock:
        for file in tuple(world.context.files.opened):
            file.evict()
    for step in range(3):
        world.disk.fail_next(call, errno.EMFILE, after=step)
    failed: list[KafkaError] = []

    async def flush() -> None:
        flushed = asyncio.Event()
        offload = ThreadOffload("flush", 1)
        write_outs = Flushing(log, offload, flushed.set, failed.append)
        write_outs.start()
        async with asyncio.timeout(10):
            await flushed.wait()
        offload.close()

    asyncio.run(flush())
    assert (log.flushed_offset, log.offline, failed) == (1, False, [])
