"""Commands of this broker to the controller, answered once this broker knows what they changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.cluster.commands import Answer, Command
from tidelog.cluster.controller_link import COMMAND_TIMEOUT_S, ControllerLink
from tidelog.cluster.image_feed import ImageFeed
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.replicas import Replicas


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


def _not_seen() -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        "The change was made, but this broker has not learned of it in time.",
    )
