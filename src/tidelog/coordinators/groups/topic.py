"""The internal topic of groups: its name, its settings, and which partition keeps which group."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from tidelog.cluster.commands import CreateTopic
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError

# Every request of a member asks where its group is kept.
_GROUPS_REMEMBERED: Final = 10_000


def partition_of(group_id: str, partitions: int) -> int:
    """The partition that keeps a group, by the hash that Java gives its name."""
    return _java_hash(group_id) % partitions


@lru_cache(maxsize=_GROUPS_REMEMBERED)
def _java_hash(text: str) -> int:
    """The absolute value of Java's `String.hashCode`, 0 for the least integer, as in Kafka."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


def creation(config: BrokerConfig, image: MetadataImage) -> CreateTopic:
    """The topic as it is created when a group is first asked for."""
    brokers = len(image.brokers)
    if not brokers:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is registered")
    replicas = min(config.get_int("offsets.topic.replication.factor"), brokers)
    return CreateTopic(
        OFFSETS_TOPIC,
        partitions=config.get_int("offsets.topic.num.partitions"),
        replication_factor=replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
            # Small, and dear to its owners: on the disk before it is answered for.
            "durability": "fsync",
            "min.insync.replicas": str(min(2, replicas)),
        },
    )
