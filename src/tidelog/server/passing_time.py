"""Time that a test lets pass for a running broker: its wall clock and its ages, and no deadline.

What the broker would have done meanwhile is done at once: retention, cleaning, checkpoints, the
expiry of committed offsets. Clients and their sessions notice nothing: they live by the real time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from inspect import isawaitable

from tidelog.errors import KafkaError
from tidelog.server.broker import Broker
from tidelog.server.parts import Parts

_log = logging.getLogger(__name__)


async def let_pass(brokers: Sequence[Broker], ms: int, move_clock: Callable[[], None]) -> None:
    """Have `move_clock` move the wall clock of these brokers by so much, and do what is due."""
    parts = [each.parts for each in brokers]
    clocks = [each.data_dir.context.running_clock for each in parts]
    # Nobody may look between these steps: a wall clock that moves alone has jumped.
    for clock in clocks:
        clock.observe()
    move_clock()
    for clock in clocks:
        clock.advanced(ms)
    for each in parts:
        await each.housekeeping.catch_up(ms / 1000)
        await _expire_offsets(each)


async def _expire_offsets(parts: Parts) -> None:
    age_ms = parts.data_dir.context.running_clock.ages().age_ms
    try:
        for answer in parts.groups.call_each(lambda shard, now: shard.expire_offsets(age_ms)):
            if isawaitable(answer):
                await answer
    except KafkaError as error:
        # A shard that is being loaded looks at its offsets by itself.
        _log.warning("committed offsets not looked at reason=%s", error)
