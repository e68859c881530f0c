"""The topic that a kind of shard is kept in: created when it is first asked for, one shard to a
partition, and each key in the partition that its name falls on.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tidelog.cluster.commands import Command, CreateTopic
from tidelog.cluster.image import MetadataImage
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError

# Every request of a member asks where its group is kept.
_KEYS_REMEMBERED: Final = 10_000
_REPLICAS_WITHOUT_SYNC: Final = 3


@dataclass(slots=True, eq=False)
class InternalTopic:
    """One such topic, as the metadata show it."""

    name: str
    _image: Callable[[], MetadataImage]
    _submit: Callable[[Command], Awaitable[object]]
    _creation: Callable[[MetadataImage], CreateTopic]
    _creating: asyncio.Task[None] | None = field(default=None, init=False)

    async def ensure(self) -> None:
        """Return once the topic is there and its leaders here lead; KafkaError where it cannot be.

        A client that goes meanwhile does not stop the creation: the next one waits for its end.
        """
        if self._creating is None:
            if self.name in self._image().topics:
                return
            self._creating = asyncio.create_task(self._create(), name=f"create-{self.name}")
            self._creating.add_done_callback(self._created)
        await asyncio.shield(self._creating)

    async def _create(self) -> None:
        image = self._image()
        if not image.brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is registered")
        try:
            await self._submit(self._creation(image))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    def _created(self, creation: asyncio.Task[None]) -> None:
        self._creating = None
        if not creation.cancelled():
            # Nobody need be there any more to hear of it.
            creation.exception()

    def partition_of(self, key: str) -> int:
        """The partition that keeps what the key names; KafkaError where there is no topic yet."""
        topic = self._image().topics.get(self.name)
        if topic is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic {self.name} is not created yet"
            )
        return java_hash(key) % len(topic.partitions)

    def leader_of(self, key: str) -> int:
        """The broker that coordinates what the key names; KafkaError where there is none now."""
        image, partition = self._image(), self.partition_of(key)
        leader = image.topics[self.name].partitions[partition].leader
        if leader not in image.brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    def led_by(self, broker_id: int) -> dict[int, int]:
        """The partitions that a broker leads, with their leader epochs."""
        topic = self._image().topics.get(self.name)
        return {
            each.partition: each.leader_epoch
            for each in (() if topic is None else topic.partitions)
            if each.leader == broker_id
        }


@lru_cache(maxsize=_KEYS_REMEMBERED)
def java_hash(text: str) -> int:
    """The absolute value of Java's `String.hashCode`, 0 for the least integer, as in Kafka."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


def creation_of(
    name: str, settings: str, compression: str, config: BrokerConfig, brokers: int
) -> CreateTopic:
    """A topic as the broker settings that begin with `settings` have it.

    Small, and dear to its owners: where fewer than three brokers have it, it is on their disks
    before it is answered for. How many must be in sync is what holds for all topics.
    """
    replicas = min(config.get_int(f"{settings}.replication.factor"), brokers)
    return CreateTopic(
        name,
        partitions=config.get_int(f"{settings}.num.partitions"),
        replication_factor=replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": compression,
            "segment.bytes": str(config.get_int(f"{settings}.segment.bytes")),
            **({"durability": "fsync"} if replicas < _REPLICAS_WITHOUT_SYNC else {}),
        },
    )
