"""What the controller does of its own accord, without a broker or an operator asking for it.

Preferred replicas lead again some time after they are back in sync, unless
`auto.leader.rebalance.enable` says no, and internal topics get more replicas as brokers join. Both
are commands like any other, and what fails now is tried again at the next occasion.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidelog.cluster.commands import Answer, BalanceLeaders, Command, RaiseInternalTopics
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.reassignment import raise_internal_topics
from tidelog.config import BrokerConfig

logger = logging.getLogger(__name__)


class Upkeep:
    """The timer of one controller, from `start` to `stop`."""

    def __init__(
        self, enqueue: Callable[[Command], asyncio.Future[Answer]], config: BrokerConfig
    ) -> None:
        self._enqueue = enqueue
        self._config = config
        self._balances = config.get_bool("auto.leader.rebalance.enable")
        self._interval_s = config.get_int("leader.imbalance.check.interval.seconds")
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._balances:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._balance)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def has_room(self, image: MetadataImage) -> bool:
        """Whether internal topics can have more replicas: the last controller did not get to it."""
        return bool(raise_internal_topics(image, self._config).changes)

    def brokers_joined(self) -> None:
        """There may be room for more replicas of what matters to all."""
        self._submit(RaiseInternalTopics())

    def _balance(self) -> None:
        self._submit(BalanceLeaders())
        self.start()

    def _submit(self, command: Command) -> None:
        def judge(done: asyncio.Future[Answer]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                logger.info("upkeep not done command=%r reason=%s", command, error)

        self._enqueue(command).add_done_callback(judge)
