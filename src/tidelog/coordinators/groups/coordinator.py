"""The coordinator of groups: the runtime over shards of `__consumer_offsets`.

What shards are made of is imported with the first one: most brokers start without groups, and many
tests end without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from tidelog.cluster.changes import TopicDeleted
from tidelog.cluster.commands import Command, CreateTopic
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinators.groups.stats import GroupCensus, GroupStats
from tidelog.coordinators.internal_topic import InternalTopic, creation_of
from tidelog.coordinators.kind import ShardKind
from tidelog.coordinators.runtime import CoordinatorRuntime
from tidelog.host.host import Host
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas

if TYPE_CHECKING:
    from tidelog.coordinators.groups.beats import Beat, ConsumerBeat
    from tidelog.coordinators.groups.shard import GroupShard


class GroupCoordinator(CoordinatorRuntime["GroupShard"]):
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
            from tidelog.coordinators.groups.settings import group_settings
            from tidelog.coordinators.groups.shard import GroupShard

            clock = partition.log.context.running_clock
            settings = group_settings(replicas.config)
            return GroupShard(settings, host.random, image, stats, lambda: clock.ages().age_ms)

        kind = ShardKind(
            InternalTopic(OFFSETS_TOPIC, image, submit, creation),
            new_shard,
            lambda record: _records().encode_record(record),
            lambda key, value: _records().decode_record(key, value),
            lambda: replicas.config.get_int("offsets.commit.timeout.ms"),
            # A heartbeat need not wait for the offsets that are committed all the time.
            is_core=lambda record: _records().is_of_members(record),
            heeds=(TopicDeleted,),
        )
        super().__init__(kind, broker_id, replicas, host)

    def hear(self, beat: Beat | ConsumerBeat) -> bool:
        """Take a heartbeat that repeats the one before; False where there is more to say to it."""
        slot = self.settled_slot(beat.group_id)
        return slot is not None and slot.shard.hear(beat, self.now())

    def heartbeat_interval_ms(self, group_id: str) -> int | None:
        """How often the members of a consumer group are to beat; None where nobody can say."""
        slot = self.settled_slot(group_id)
        return None if slot is None else slot.shard.heartbeat_interval_ms(group_id)

    def census(self) -> GroupCensus:
        """What the shards hold that are loaded."""
        return GroupCensus.of(self.shards())


@cache
def _records() -> ModuleType:
    """What shards write, imported with the first record."""
    return import_module("tidelog.coordinators.groups.records")


def offsets_topic(config: BrokerConfig, brokers: int) -> CreateTopic:
    """The topic as it is created when a group is first asked for."""
    return creation_of(OFFSETS_TOPIC, "offsets.topic", "producer", config, brokers)
