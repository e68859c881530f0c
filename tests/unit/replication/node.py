"""The replicas of a broker in virtual time, led by commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from tests.unit.cluster.helpers import image_with, make_rules
from tests.unit.replication.helpers import Place
from tidelog.cluster.commands import Command
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.planner import plan
from tidelog.config import load
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas
from tidelog.testing.disk import SimulatedDisk


class Node(Place):
    """The replicas of one broker, and the commands that change its image."""

    def __init__(
        self,
        image: MetadataImage | None = None,
        disk: SimulatedDisk | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(disk=disk)
        self.image = image_with((0,)) if image is None else image
        self.replicas = Replicas(0, load(overrides=settings or {}), self.data_dir, self.host)
        self.confirmed: list[UUID] = []
        self.caught_up: list[str] = []
        self.replicas.on_caught_up.append(self.caught_up.append)
        self.rules = make_rules()

    async def start(self) -> Node:
        await self.replicas.start(self.image)
        await self.replicas.serve(self.image)
        self.replicas.confirm_deletions_through(self._confirm)
        return self

    async def _confirm(self, topic_ids: Sequence[UUID]) -> None:
        self.confirmed += topic_ids

    def change(self, *commands: Command) -> None:
        """Have the image move; the replicas hear of it, and have not followed yet."""
        for command in commands:
            old = self.image
            changes = plan(old, command, self.rules).changes
            self.image = old.apply_all(changes, old.version + 1)
            self.replicas.image_changed(old, self.image, changes)

    async def do(self, *commands: Command) -> None:
        self.change(*commands)
        await self.replicas.settled()

    def find(self, topic: str, partition: int = 0) -> Partition:
        return self.replicas.find(topic, partition)
