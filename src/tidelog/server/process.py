"""A broker as a process: the event loop, the signals, the exit.

SIGTERM and SIGINT drain and stop; a second one stops at once, unless it follows within a second:
a terminal or a supervisor often sends the same signal to the whole group and to the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Collection
from typing import Literal

from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.host.host import system_host
from tidelog.model import TopicPartition
from tidelog.server.broker import Broker
from tidelog.server.descriptors import raise_descriptor_limit
from tidelog.server.stores import store_connector

_log = logging.getLogger(__name__)

# What requests leave behind goes by counting references. Thousands of them in work at once are no
# reason to look for cycles, and with thousands of connections looking costs more than the requests.
_COLLECT_AFTER = (50_000, 20, 50)
_SAME_SIGNAL_SECONDS = 1.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it exists, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_broker(
    config: BrokerConfig,
    on_started: Callable[[Broker], None],
    accept_loss: Collection[TopicPartition] = (),
) -> None:
    """Run one broker until a signal asks it to stop."""
    if not __debug__:
        raise ConfigError("a broker does not run with python -O: its checks protect data")
    raise_descriptor_limit()
    gc.set_threshold(*_COLLECT_AFTER)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        host = system_host("broker", config.get_int("offload.threads"))
        broker = Broker(config, host, accept_loss, store_connector(config, host))
        runner.run(_serve(broker, on_started))


async def _serve(broker: Broker, on_started: Callable[[Broker], None]) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    first_at = 0.0

    def on_signal() -> None:
        nonlocal first_at
        if not asked.is_set():
            first_at = loop.time()
            asked.set()
        elif loop.time() - first_at >= _SAME_SIGNAL_SECONDS:
            _log.warning("second signal, stopping at once")
            os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    signalled = asyncio.ensure_future(asked.wait())
    if not await _started(broker, signalled):
        return
    # What was built at start lives as long as the process: keep it out of every collection.
    gc.collect()
    gc.freeze()
    on_started(broker)
    failed = asyncio.ensure_future(broker.wait_failed())
    await asyncio.wait([signalled, failed], return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    await broker.stop()
    if failed.done():
        failed.result()
    failed.cancel()


async def _started(broker: Broker, signalled: asyncio.Task[Literal[True]]) -> bool:
    """Whether the broker serves; not, where a signal came while it waited for something."""
    starting = asyncio.ensure_future(broker.start())
    await asyncio.wait([starting, signalled], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        return True
    _log.info("stopping before the start is complete")
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled():
        # It failed, or came through at the last moment.
        starting.result()
        await broker.stop()
    return False
