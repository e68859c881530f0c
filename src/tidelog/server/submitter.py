"""Commands of this broker to the controller, answered once this broker knows what they changed."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cluster.commands import Answer, Command
from tidelog.cluster.controller import Controller
from tidelog.cluster.image_feed import ImageFeed
from tidelog.errors import KafkaError
from tidelog.replication.replicas import Replicas


class Submitter:
    """Has the controller do something; one per broker."""

    def __init__(self, controller: Controller, metadata: ImageFeed, replicas: Replicas) -> None:
        self._controller = controller
        self._metadata = metadata
        self._replicas = replicas

    async def submit(self, command: Command) -> Answer:
        """Returns when the change is durable and this broker's partitions follow it."""
        answer = await self._controller.submit(command)
        await self._catch_up()
        return answer

    async def submit_all(self, commands: Sequence[Command]) -> list[Answer | KafkaError]:
        """As `submit` for several at once, each done or refused by itself."""
        answers = await self._controller.submit_all(commands)
        await self._catch_up()
        return answers

    async def _catch_up(self) -> None:
        await self._metadata.wait_for_version(self._controller.image.version)
        await self._replicas.settled()
