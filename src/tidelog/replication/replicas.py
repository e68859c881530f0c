"""The partitions that this broker holds, kept in step with the metadata image.

The owner of every `Partition`. It hears of each change of the image, opens, leads, reconfigures
and drops partitions accordingly, and knows whether the disk has room for writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from tidelog.cluster.changes import Change
from tidelog.cluster.image import MetadataImage, PartitionState, TopicImage
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.topic_config import TopicConfig, topic_config
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.host import Host
from tidelog.model import TopicPartition
from tidelog.replication.cleaner import LogCleaner
from tidelog.replication.partition import Partition
from tidelog.replication.settings import admission_rules, log_config
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log, LogConfig

_log = logging.getLogger(__name__)


class Replicas:
    """All partitions of one broker."""

    def __init__(self, broker_id: int, config: BrokerConfig, data_dir: DataDir, host: Host) -> None:
        self._broker_id = broker_id
        self._static_config = config
        # The settings in force: those of the files, and what was altered at run time.
        self.config = config
        self._data_dir = data_dir
        self._host = host
        self._by_name: dict[str, dict[int, Partition]] = {}
        # Partitions whose log could not be created, to be tried again: a full disk, mostly.
        self._unopened: dict[tuple[str, int], tuple[TopicImage, PartitionState, TopicConfig]] = {}
        self._running_checkpoint: asyncio.Future[None] | None = None
        self._next_checkpoint: asyncio.Future[None] | None = None
        # Set while the disk is below its low-water mark: what producers are told.
        self.refusing_writes: KafkaError | None = None
        self.cleaner = LogCleaner(self.__iter__, data_dir, host)

    def __iter__(self) -> Iterator[Partition]:
        for partitions in tuple(self._by_name.values()):
            yield from tuple(partitions.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def find(self, topic: str, partition: int) -> Partition:
        """The partition; KafkaError where it is not here, or its log could not be opened."""
        partitions = self._by_name.get(topic)
        found = None if partitions is None else partitions.get(partition)
        if found is not None:
            return found
        if (topic, partition) in self._unopened:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log could not be created")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- following the image ----------------------------------------------------------------------

    async def start(self, image: MetadataImage) -> None:
        """Open what the image says is ours, recovering it where need be; set the rest aside.

        Returns when all that was ever acknowledged can be read again.
        """
        self._take_broker_configs(image)
        configs: dict[str, LogConfig] = {}

        def expected(
            partition: TopicPartition, found_id: UUID | None
        ) -> tuple[UUID, LogConfig] | None:
            topic = image.topics.get(partition.topic)
            if topic is None or partition.partition >= len(topic.partitions):
                return None
            if self._broker_id not in topic.partitions[partition.partition].replicas:
                return None
            if topic.name not in configs:
                effective = topic_config(self.config, {}, topic.configs)
                configs[topic.name] = log_config(effective)
            return topic.topic_id, configs[topic.name]

        self._data_dir.load_logs(expected)
        for topic in image.topics.values():
            self._bring_up(topic)
        for partition in self:
            await partition.settle()

    def image_changed(
        self, old: MetadataImage, new: MetadataImage, changes: Sequence[Change] | None
    ) -> None:
        """Follow the image; `changes` is None where the whole image was taken anew."""
        if new.broker_configs is not old.broker_configs:
            self._take_broker_configs(new)
            names: Iterable[str] = new.topics.keys() | old.topics.keys()
        else:
            names = _changed_topics(old, new)
        for name in names:
            topic = new.topics.get(name)
            before = old.topics.get(name)
            if before is not None and (topic is None or topic.topic_id != before.topic_id):
                self._drop(name, before.topic_id)
            if topic is not None:
                self._bring_up(topic)

    def _take_broker_configs(self, image: MetadataImage) -> None:
        configs = image.broker_configs
        if configs:
            own = configs.get(str(self._broker_id), {})
            self.config = self._static_config.with_dynamic(own, configs.get("", {}))
        else:
            self.config = self._static_config

    def _bring_up(self, topic: TopicImage) -> None:
        config = topic_config(self.config, {}, topic.configs)
        for state in topic.partitions:
            if self._broker_id in state.replicas:
                self._bring_up_partition(topic, state, config)

    def _bring_up_partition(
        self, topic: TopicImage, state: PartitionState, config: TopicConfig
    ) -> None:
        partitions = self._by_name.setdefault(topic.name, {})
        partition = partitions.get(state.partition)
        limits = log_config(config)
        if partition is None:
            topic_partition = TopicPartition(topic.name, state.partition)
            log = self._data_dir.logs.get(topic_partition)
            if log is None:
                log = self._create_log(topic, state, config)
            if log is None:
                return
            partition = Partition(topic_partition, topic.topic_id, log, self._host.offload)
            partitions[state.partition] = partition
        else:
            partition.log.reconfigure(limits)
        partition.configure(config, admission_rules(config))
        if state.leader == self._broker_id:
            partition.lead(state)

    def _create_log(
        self, topic: TopicImage, state: PartitionState, config: TopicConfig
    ) -> Log | None:
        key = TopicPartition(topic.name, state.partition)
        try:
            log = self._data_dir.create_log(key, topic.topic_id, log_config(config))
        except OSError as error:
            _log.error("log not created, will be tried again partition=%s error=%s", key, error)
            self._unopened[key] = (topic, state, config)
            return None
        self._unopened.pop(key, None)
        return log

    def open_the_unopened(self) -> None:
        """Try again what could not be created."""
        for topic, state, config in tuple(self._unopened.values()):
            self._bring_up_partition(topic, state, config)

    def _drop(self, name: str, topic_id: UUID) -> None:
        for key in [key for key in self._unopened if key[0] == name]:
            del self._unopened[key]
        for partition in self._by_name.pop(name, {}).values():
            partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} was deleted")
            self._data_dir.delete_log(partition.topic_partition)
        _log.info("topic dropped topic=%s topic_id=%s", name, topic_id)

    # -- the disk ---------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Write down recovery points, log starts and high watermarks as they are now, off the loop.

        One is written at a time; those who ask meanwhile share the next. KafkaError where the
        disk does not take it.
        """
        if self._next_checkpoint is None:
            running = self._running_checkpoint
            self._next_checkpoint = asyncio.ensure_future(self._write_checkpoint(running))
        # One of several who wait may be cancelled: the writing goes on for the others.
        await asyncio.shield(self._next_checkpoint)

    async def _write_checkpoint(self, before: asyncio.Future[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        # What changes from here on is for the next one.
        self._running_checkpoint, self._next_checkpoint = self._next_checkpoint, None
        plan = self._data_dir.checkpoint(self._high_watermarks())
        try:
            await self._host.offload.run(plan.run)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"a checkpoint could not be written: {error}"
            ) from error

    async def close(self) -> None:
        """Stop serving, flush and close every log, leave the marker of a clean stop."""
        await self.cleaner.stop()
        for partition in self:
            partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        for partition in self:
            await partition.settle()
        for written in (self._running_checkpoint, self._next_checkpoint):
            if written is not None:
                await asyncio.wait([written])
        await self._host.offload.run(self._data_dir.close, self._high_watermarks())

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        return {each.topic_partition: each.high_watermark for each in self}


def _changed_topics(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    """Names of topics that differ; values are immutable, so identity tells."""
    for name, topic in new.topics.items():
        if old.topics.get(name) is not topic:
            yield name
    for name in old.topics.keys() - new.topics.keys():
        yield name
