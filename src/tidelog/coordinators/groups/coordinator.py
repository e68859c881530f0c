"""The coordinator of groups: the runtime over shards of `__consumer_offsets`.

What shards are made of is imported with the first one: most brokers start without groups, and many
tests end without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

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
            _encode,
            _decode,
            lambda: replicas.config.get_int("offsets.commit.timeout.ms"),
            # A heartbeat need not wait for the offsets that are committed all the time.
            is_core=_is_core,
            heeds=(TopicDeleted,),
        )
        super().__init__(kind, broker_id, replicas, host)

    def census(self) -> GroupCensus:
        """What the shards hold that are loaded."""
        return GroupCensus.of(self.shards())


def _encode(record: Any) -> tuple[bytes, bytes | None]:
    from tidelog.coordinators.groups.records import encode_record

    return encode_record(record)


def _decode(key: bytes | None, value: bytes | None) -> Any | None:
    from tidelog.coordinators.groups.records import decode_record

    return decode_record(key, value)


def _is_core(record: Any) -> bool:
    from tidelog.coordinators.groups.records import is_of_members

    return is_of_members(record)


def offsets_topic(config: BrokerConfig, brokers: int) -> CreateTopic:
    """The topic as it is created when a group is first asked for."""
    return creation_of(OFFSETS_TOPIC, "offsets.topic", "producer", config, brokers)
