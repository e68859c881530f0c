"""Commands of this broker to the controller, answered once this broker knows what they changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tidelog.cluster.commands import Answer, Command
from tidelog.cluster.controller_link import (
    COMMAND_TIMEOUT_S,
    Charged,
    ControllerLink,
    Mutations,
)
from tidelog.cluster.image_feed import ImageFeed
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.replicas import Replicas

# Of the time that a client waits, so that an answer in words still reaches it.
_USED: Final = 0.8
# Whoever gives less time than a failover may take is answered, but not at once.
_TIMEOUT_MIN_S: Final = 2.0
_AT_ONCE: Final = 256


def seconds_for(timeout_ms: int) -> float:
    """How long a request that names its time may wait for the controller."""
    if timeout_ms <= 0:
        return COMMAND_TIMEOUT_S
    return min(COMMAND_TIMEOUT_S, max(_TIMEOUT_MIN_S, timeout_ms / 1000 * _USED))


class Submitter:
    """Has the controller do something; one per broker."""

    def __init__(self, link: ControllerLink, metadata: ImageFeed, replicas: Replicas) -> None:
        self._link = link
        self._metadata = metadata
        self._replicas = replicas

    async def submit(self, command: Command, principal: str = "") -> Answer:
        """Returns when the change is durable and this broker's partitions follow it."""
        (outcome,) = await self.submit_all([command], principal)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    async def submit_all(
        self,
        commands: Sequence[Command],
        principal: str = "",
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> list[Answer | KafkaError]:
        """As `submit` for several at once, each done or refused by itself."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        decided = await self._link.decide(commands, principal, timeout_s)
        try:
            async with asyncio.timeout_at(deadline):
                await self._metadata.wait_for_version(decided.version)
                await self._replicas.settled()
        except TimeoutError:
            return [
                each if isinstance(each, KafkaError) else _not_seen() for each in decided.outcomes
            ]
        return decided.outcomes

    async def charge(self, mutations: Mutations) -> Charged | None:
        """What a client's quota says at the controller; None where it is to be judged here."""
        return await self._link.charge(mutations)

    async def submit_many(
        self, commands: Sequence[Command], principal: str
    ) -> list[Answer | KafkaError]:
        """As `submit_all`, some at a time, for requests that may make thousands of commands."""
        outcomes: list[Answer | KafkaError] = []
        for start in range(0, len(commands), _AT_ONCE):
            outcomes += await self.submit_all(commands[start : start + _AT_ONCE], principal)
        return outcomes


def _not_seen() -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        "The change was made, but this broker has not learned of it in time.",
    )
