"""A broker as a process: the event loop, the signals (they drain and stop), the exit."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal

from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.host.host import system_host
from tidelog.host.parent import end_with_parent
from tidelog.host.signals import stop_signals
from tidelog.model import TopicPartition
from tidelog.server.broker import Broker
from tidelog.server.collecting import collect_rarely, collect_when_calm
from tidelog.server.descriptors import raise_descriptor_limit
from tidelog.server.stores import store_connector

if TYPE_CHECKING:
    from tidelog.server.first_user import FirstUser

_log = logging.getLogger(__name__)


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
    parent: int | None = None,
    first_users: Sequence[FirstUser] = (),
) -> None:
    """Run one broker until a signal asks it to stop, or until the process `parent` ends."""
    if not __debug__:
        raise ConfigError("a broker does not run with python -O: its checks protect data")
    raise_descriptor_limit()
    collect_rarely()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        host = system_host("broker", config.get_int("offload.threads"))
        broker = Broker(config, host, accept_loss, store_connector(config, host), first_users)
        runner.run(_serve(broker, on_started, parent))


async def _serve(broker: Broker, on_started: Callable[[Broker], None], parent: int | None) -> None:
    if parent is not None:
        end_with_parent(parent)
    asked = stop_signals()
    signalled = asyncio.ensure_future(asked.wait())
    if not await _started(broker, signalled):
        return
    # What was built at start lives as long as the process: keep it out of every collection. The
    # few hundred objects of garbage in it stay as well: with 10,000 partitions, a collection
    # would hold up a broker that already leads for 0.4 s.
    gc.freeze()
    collect_when_calm()
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
