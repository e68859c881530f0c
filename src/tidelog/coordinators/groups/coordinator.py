"""The coordinator of groups: the runtime over shards of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from tidelog.cluster.changes import Change, TopicDeleted
from tidelog.cluster.commands import Command, CreateTopic
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinators.groups.records import (
    CoordinatorRecord,
    OffsetCommitKey,
    decode_record,
    encode_record,
)
from tidelog.coordinators.groups.settings import group_settings
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.groups.stats import GroupCensus, GroupStats
from tidelog.coordinators.internal_topic import InternalTopic
from tidelog.coordinators.kind import ShardKind
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.runtime import CoordinatorRuntime
from tidelog.coordinators.timers import Now
from tidelog.host.host import Host
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas

Images = Callable[[], MetadataImage]
Submit = Callable[[Command], Awaitable[object]]


class GroupShards(ShardKind[GroupShard]):
    """Shards of groups and their offsets. Members are the core: a heartbeat need not wait for
    the offsets that are committed all the time."""

    heeds = (TopicDeleted,)

    def __init__(self, replicas: Replicas, host: Host, image: Images, submit: Submit) -> None:
        self._replicas = replicas
        self._host = host
        self._image = image
        self.topic = InternalTopic(OFFSETS_TOPIC, image, submit, self._creation)
        self.stats = GroupStats()

    def _creation(self, image: MetadataImage) -> CreateTopic:
        return offsets_topic(self._replicas.config, len(image.brokers))

    def new_shard(self, partition: Partition) -> GroupShard:
        clock = partition.log.context.running_clock
        return GroupShard(
            group_settings(self._replicas.config),
            self._host.random,
            self._image,
            self.stats,
            lambda: clock.ages().age_ms,
        )

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
        return decode_record(key, value)

    @property
    def commit_timeout_ms(self) -> int:
        return self._replicas.config.get_int("offsets.commit.timeout.ms")

    def is_core(self, record: CoordinatorRecord) -> bool:
        return type(record.key) is not OffsetCommitKey

    def appended(self, records: Iterable[CoordinatorRecord]) -> None:
        self.stats.appended(records)

    def loaded(self, shard: GroupShard, now: Now) -> Iterator[Outcome]:
        yield shard.loaded(now)
        # Topics may have gone while nobody could hear of it.
        ids = {name: topic.topic_id for name, topic in self._image().topics.items()}
        yield shard.forget_missing_topics(ids)

    def changed(self, shard: GroupShard, changes: Sequence[Change]) -> Iterator[Outcome]:
        for change in changes:
            assert isinstance(change, TopicDeleted)
            yield shard.topic_deleted(change.topic, change.topic_id)


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """All groups that this broker coordinates."""

    def __init__(
        self, broker_id: int, replicas: Replicas, host: Host, image: Images, submit: Submit
    ) -> None:
        kind = GroupShards(replicas, host, image, submit)
        super().__init__(kind, broker_id, replicas, host)
        self.group_stats = kind.stats

    def census(self) -> GroupCensus:
        """What the shards hold that are loaded."""
        return GroupCensus.of(self.shards())


def offsets_topic(config: BrokerConfig, brokers: int) -> CreateTopic:
    """The topic as it is created when a group is first asked for."""
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
