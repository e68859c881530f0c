"""kazoo's lines in the broker's log: each kind now and then, however often ZooKeeper is tried."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from tidelog.host.clock import Clock
from tidelog.host.line_rate import LineRate

if TYPE_CHECKING:
    Adapter = logging.LoggerAdapter[logging.Logger]
else:
    Adapter = logging.LoggerAdapter


class KazooLines(Adapter):
    """A logger for one client: without a quorum it would write several lines a second."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.getLogger("kazoo.client"), {})
        self._rate = LineRate(clock)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        # By what is said, not of whom: the servers of an ensemble are tried in turn.
        if level >= logging.ERROR or self._rate.count(str(msg)):
            super().log(level, msg, *args, **kwargs)
