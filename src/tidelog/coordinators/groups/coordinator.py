"""The coordinator of groups: the runtime over shards of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.cluster.changes import TopicDeleted
from tidelog.cluster.commands import Command, CreateTopic
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinators.groups.records import decode_record, encode_record, is_of_members
from tidelog.coordinators.groups.settings import group_settings
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.groups.stats import GroupCensus, GroupStats
from tidelog.coordinators.internal_topic import InternalTopic
from tidelog.coordinators.kind import ShardKind
from tidelog.coordinators.runtime import CoordinatorRuntime
from tidelog.host.host import Host
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas

_REPLICAS_WITHOUT_SYNC: Final = 3


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """All groups that this broker coordinates."""

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        host: Host,
        image: Callable[[], MetadataImage],
        submit: Callable[[Command], Awaitable[object]],
    ) -> None:
        self.group_stats = stats = GroupStats()

        def creation(image: MetadataImage) -> CreateTopic:
            return offsets_topic(replicas.config, len(image.brokers))

        def new_shard(partition: Partition) -> GroupShard:
            clock = partition.log.context.running_clock
            settings = group_settings(replicas.config)
            return GroupShard(settings, host.random, image, stats, lambda: clock.ages().age_ms)

        kind = ShardKind(
            InternalTopic(OFFSETS_TOPIC, image, submit, creation),
            new_shard,
            encode_record,
            decode_record,
            lambda: replicas.config.get_int("offsets.commit.timeout.ms"),
            # A heartbeat need not wait for the offsets that are committed all the time.
            is_core=is_of_members,
            heeds=(TopicDeleted,),
        )
        super().__init__(kind, broker_id, replicas, host)

    def census(self) -> GroupCensus:
        """What the shards hold that are loaded."""
        return GroupCensus.of(self.shards())


def offsets_topic(config: BrokerConfig, brokers: int) -> CreateTopic:
    """The topic as it is created when a group is first asked for.

    Small, and dear to its owners: where fewer than three brokers have it, it is on their disks
    before it is answered for. How many must be in sync is what holds for all topics.
    """
    replicas = min(config.get_int("offsets.topic.replication.factor"), brokers)
    return CreateTopic(
        OFFSETS_TOPIC,
        partitions=config.get_int("offsets.topic.num.partitions"),
        replication_factor=replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
            **({"durability": "fsync"} if replicas < _REPLICAS_WITHOUT_SYNC else {}),
        },
    )
