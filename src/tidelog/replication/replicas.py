"""The partitions that this broker holds, kept in step with the metadata image.

It owns every `Partition`. It hears of each change of the image and works towards the newest one:
what is gone is dropped, what is new is created, what is there leads or follows. What needs no disk
is done at once; the rest is done by one task, in batches on a thread, and `settled` waits for it.

At a start all logs are recovered first, without serving any (`start`); once the broker is
registered the metadata says what it leads in this life (`serve`). A partition that cannot be
opened, created or led is offline and says why; its fault reaches no other partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from uuid import UUID

from tidelog.cluster.changes import Change
from tidelog.cluster.commands import ReplicaKey
from tidelog.cluster.image import MetadataImage, PartitionState, TopicImage, changed_topics
from tidelog.cluster.min_isr import min_isr_in
from tidelog.cluster.reassignment import may_delete_replica
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.topic_config import TopicConfig, topic_config
from tidelog.errors import ErrorCode, KafkaError, PartitionBrokenError, StorageError
from tidelog.host.host import Host
from tidelog.model import TopicPartition
from tidelog.replication.checkpoints import Checkpoints
from tidelog.replication.cleaner import LogCleaner
from tidelog.replication.deletions import Confirm, Deletions
from tidelog.replication.disk_space import DiskSpace
from tidelog.replication.offline import OfflinePartition, OfflinePartitions
from tidelog.replication.partition import Partition
from tidelog.replication.standing import Registered, Standing, Unregistered
from tidelog.replication.truncations import DiskWork, Truncations
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.reopening import reopen

_log = logging.getLogger(__name__)

# How many partitions are dropped or led before others get their turn on the loop.
_SLICE = 128
# How many are created by one step on a thread: a sync of the disk serves them all.
_CREATED_TOGETHER = 1024
# How many settings that nothing uses are named in a line of the log.
_NAMED_MAX = 10


async def _confirm_nothing(topic_ids: Sequence[UUID]) -> None:
    """Until the broker is registered, tombstones stay."""


class Replicas:
    """All partitions of one broker."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        data_dir: DataDir,
        host: Host,
        entry: Registered | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._static_config = config
        # The settings in force: those of the files, and what was altered at run time.
        self.config = config
        self._data_dir = data_dir
        self._host = host
        self._image = MetadataImage()
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._offline = OfflinePartitions()
        # Topics whose partitions are not yet as the image says; those who wait for each.
        self._behind: dict[str, asyncio.Future[None]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._deletions = Deletions(data_dir, host, _confirm_nothing)
        self._retired_at_start: list[str] = []
        # Partitions to be served with what is left of them.
        self.accept_loss: Collection[TopicPartition] = ()
        # Those who are told of a topic whose partitions have followed the image.
        self.on_caught_up: list[Callable[[str], None]] = []
        self.standing = Standing(broker_id, host.clock, entry or Unregistered())
        self._is_serving = False
        self.space = DiskSpace(data_dir, host)
        self.cleaner = LogCleaner(self.__iter__, data_dir, host)
        self.checkpoints = Checkpoints(data_dir, host, self._high_watermarks)
        self.truncations = Truncations(self.checkpoints, host)
        self._disk_work = DiskWork(host.offload, self.truncations)

    def __iter__(self) -> Iterator[Partition]:
        for partitions in tuple(self._by_name.values()):
            yield from tuple(partitions.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    @property
    def offline(self) -> dict[TopicPartition, str]:
        """The partitions that are ours and not served, and why."""
        found = {key: each.reason for key, each in self._offline.items()}
        for partition in self:
            reason = partition.offline_reason
            if reason is not None:
                found[partition.topic_partition] = reason
        return found

    def failed_in_sync(self) -> list[ReplicaKey]:
        """Replicas that cannot be served here, and that the metadata counts on all the same."""
        found = []
        for key in self.offline.keys() - self._offline.damaged.keys():
            state = self._image.partition(*key)
            if state is None or len(state.replicas) == 1:
                continue
            if self._broker_id in (*state.isr, *state.elr):
                found.append(ReplicaKey(self._image.topics[key.topic].topic_id, key.partition))
        return found

    @property
    def damaged(self) -> dict[TopicPartition, UUID]:
        """The topic ids of those that could not be opened because their files are damaged."""
        return self._offline.damaged

    def state_of(self, key: TopicPartition) -> PartitionState | None:
        """What the metadata says of a partition."""
        return self._image.partition(*key)

    def held(self, topic: str, partition: int) -> Partition | None:
        """The partition, where it is here and was opened."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(partition)

    def find(self, topic: str, partition: int) -> Partition:
        """The partition; KafkaError where it is not here, or cannot be served."""
        found = self.held(topic, partition)
        if found is not None:
            return found
        offline = self._offline.get(TopicPartition(topic, partition))
        if offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, offline.reason)
        if self._image.partition(topic, partition) is not None:
            # It is being created, or others have it: who asks here has old metadata.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has no replica of it")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- start ------------------------------------------------------------------------------------

    async def start(
        self, image: MetadataImage, accept_loss: Collection[TopicPartition] = ()
    ) -> None:
        """Open what the image says is ours, recovering it where need be; set the rest aside."""
        self._image = image
        self.accept_loss = accept_loss
        self._take_broker_configs(image)
        wanted = self._wanted(image.topics.values())
        loaded = await self._host.offload.run(
            partial(
                self._data_dir.load_logs, wanted, deleted=image.deleted, accept_loss=accept_loss
            )
        )
        for key, reason in loaded.offline.items():
            self._offline[key] = OfflinePartition(
                wanted[key].topic_id, reason, may_pass=False, damaged=key in loaded.damaged
            )
        self._retired_at_start = loaded.retired

    async def serve(self, image: MetadataImage) -> None:
        """Lead and follow as the image says, in which this life of the broker is registered;
        return when all that was ever acknowledged here can be read again."""
        self._is_serving = True
        self._image = image
        self._take_broker_configs(image)
        self._take_brokers(image)
        wanted = self._wanted(image.topics.values())
        for key, log in self._data_dir.logs.items():
            if key not in wanted or wanted[key].topic_id != log.topic_id:
                # Deleted or moved away since `start`: it goes before another gets its files.
                self._offline[key] = OfflinePartition(log.topic_id, "not ours", may_pass=False)
        self._fall_behind([*image.topics, *(key.topic for key in self._offline)])
        await self.settled()
        for partition in self:
            await partition.settle()

    def confirm_deletions_through(self, confirm: Confirm) -> None:
        """The broker is registered: finish the deletions that the last stop left."""
        self._deletions.confirm = confirm
        topic_ids = [
            topic_id for topic_id, holders in self._image.deleted.items()
            if self._broker_id in holders
        ]  # fmt: skip
        if topic_ids:
            self._deletions.remove_later(topic_ids, self._retired_at_start, 0)

    # -- following the image ----------------------------------------------------------------------

    def image_changed(
        self, old: MetadataImage, new: MetadataImage, changes: Sequence[Change]
    ) -> None:
        """Follow the image: at once where the disk is not needed, else in the background."""
        self._image = new
        if not self._is_serving:
            return
        if new.brokers is not old.brokers:
            self._take_brokers(new)
        if new.broker_configs is not old.broker_configs:
            self._take_broker_configs(new)
            names: Iterable[str] = sorted(new.topics.keys() | self._by_name.keys())
        else:
            names = changed_topics(old, new)
        for name in names:
            if name in self._behind or not self._follow_at_once(name):
                self._fall_behind([name])

    async def settled(self) -> None:
        """Return once the partitions are as the image says now."""
        if self._behind:
            await asyncio.wait(tuple(self._behind.values()))

    def retry_offline(self) -> None:
        """Try again what could not be created."""
        self._fall_behind(self._offline.topics_to_retry)

    async def open_again(self, key: TopicPartition) -> Partition | None:
        """Take what is whole of a damaged log into service; the metadata counts on others."""
        offline, topic = self._offline[key], self._image.topics[key.topic]
        new = NewLog(offline.topic_id, self._topic_config(topic))
        try:
            log = await self._host.offload.run(reopen, self._data_dir, key, new)
        except (OSError, StorageError) as error:
            self._offline.went(key, offline._replace(reason=str(error)))
            return None
        if self._offline.get(key) is not offline:
            log.abandon()  # Deleted meanwhile.
            return None
        del self._offline[key]
        self._data_dir.add(log)
        self._fall_behind([key.topic])
        await self.settled()
        return self.held(*key)

    def _fall_behind(self, names: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        for name in names:
            if name not in self._behind:
                self._behind[name] = loop.create_future()
        if self._behind and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._catch_up(), name="partitions")

    def _follow_at_once(self, name: str) -> bool:
        """Lead or follow with what is there; False where there is more to do than that."""
        topic = self._image.topics.get(name)
        held = self._by_name.get(name, {})
        if topic is None or len(topic.partitions) > _SLICE:
            return False
        ours = self._ours(topic)
        if len(held) != len(ours) or any(
            state.partition not in held or held[state.partition].topic_id != topic.topic_id
            for state in ours
        ):
            return False
        config = self._topic_config(topic)
        for state in ours:
            self._follow(held[state.partition], topic, state, config)
        return True

    async def _catch_up(self) -> None:
        while self._behind:
            names = self._next_names()
            topics = {name: self._image.topics.get(name) for name in names}
            try:
                await self._drop_all(topics)
                await self._create_all(topics)
                await self._follow_all(topics)
            except Exception as error:
                _log.exception("partitions not brought up topics=%s", ",".join(names[:10]))
                self._all_offline(topics, f"{type(error).__name__}: {error}")
            for name in names:
                if self._image.topics.get(name) is topics[name]:
                    self._behind.pop(name).set_result(None)
                    for told in self.on_caught_up:
                        told(name)

    def _next_names(self) -> list[str]:
        """Topics to work on together: one sync serves all their new partitions."""
        names, count = [], 0
        for name in self._behind:
            topic = self._image.topics.get(name)
            names.append(name)
            count += 1 if topic is None else len(topic.partitions)
            if count >= _CREATED_TOGETHER:
                break
        return names

    async def _drop_all(self, topics: Mapping[str, TopicImage | None]) -> None:
        """Let go of the partitions that are no longer ours."""
        gone: dict[TopicPartition, UUID] = {}
        delay_s = 0.0
        for name, topic in topics.items():
            ours = {} if topic is None else {state.partition for state in self._ours(topic)}
            for key in [key for key in self._offline if key.topic == name]:
                is_same = topic is not None and self._offline[key].topic_id == topic.topic_id
                if not is_same or key.partition not in ours:
                    gone[key] = self._offline.pop(key).topic_id
                    self._data_dir.drop(key)
            for partition in tuple(self._by_name.get(name, {}).values()):
                is_same = topic is not None and partition.topic_id == topic.topic_id
                if is_same and partition.topic_partition.partition in ours:
                    continue
                gone[partition.topic_partition] = partition.topic_id
                delay_s = max(delay_s, partition.log.config.file_delete_delay_ms / 1000)
                self._drop(partition)
                if len(gone) % _SLICE == 0:
                    await asyncio.sleep(0)
        deleted = {key: each for key, each in gone.items() if each in self._image.deleted}
        moved = {key: each for key, each in gone.items() if self._was_moved(key, each)}
        await self._deletions.let_go(gone, deleted, moved, delay_s)
        self._confirm_what_never_was_here(topics)

    def _was_moved(self, key: TopicPartition, topic_id: UUID) -> bool:
        """Whether the files may go because others have the partition now."""
        epoch = self.standing.entry.broker_epoch
        return may_delete_replica(self._image, self._broker_id, epoch, topic_id, key.partition)

    def _confirm_what_never_was_here(self, topics: Mapping[str, TopicImage | None]) -> None:
        """Have no tombstone wait for a topic that was gone before its partitions were created."""
        deleted, known = self._image.deleted, self._deletions.known
        known &= deleted.keys()
        unknown = {key for key in deleted if key not in known and self._broker_id in deleted[key]}
        if unknown:
            unknown -= {partition.topic_id for partition in self}
            unknown -= {offline.topic_id for offline in self._offline.values()}
            # What was deleted a moment ago, and is about to be created all the same.
            unknown -= {topic.topic_id for topic in topics.values() if topic is not None}
        if unknown:
            self._deletions.remove_later(sorted(unknown), (), 0)

    def _drop(self, partition: Partition) -> None:
        key = partition.topic_partition
        del self._by_name[key.topic][key.partition]
        if not self._by_name[key.topic]:
            del self._by_name[key.topic]
        if self._was_moved(key, partition.topic_id):
            partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{key} was moved to other brokers")
        else:
            partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {key.topic} was deleted")
        self.standing.role_changed(partition)
        self._data_dir.drop(key)

    async def _create_all(self, topics: Mapping[str, TopicImage | None]) -> None:
        """Make what is missing on disk, a slice at a time."""
        missing: dict[TopicPartition, NewLog] = {}
        for key, new in self._wanted(filter(None, topics.values())).items():
            offline = self._offline.get(key)
            if key not in self._data_dir.logs and (offline is None or offline.may_pass):
                missing[key] = new
            if len(missing) == _CREATED_TOGETHER:
                await self._create(missing)
                missing = {}
        if missing:
            await self._create(missing)

    async def _create(self, missing: Mapping[TopicPartition, NewLog]) -> None:
        outcomes = await self._host.offload.run(self._data_dir.create_logs, missing)
        for key, outcome in outcomes.items():
            if isinstance(outcome, Log):
                self._offline.pop(key, None)
                self._data_dir.add(outcome)
            else:
                self._offline.may_pass(key, missing[key].topic_id, str(outcome))

    async def _follow_all(self, topics: Mapping[str, TopicImage | None]) -> None:
        """Lead or follow with what is there, in the epochs that the image names."""
        done = 0
        for name, topic in topics.items():
            if topic is None:
                continue
            config = self._topic_config(topic)
            for state in self._ours(topic):
                key = TopicPartition(name, state.partition)
                log = self._data_dir.logs.get(key)
                if log is None or log.topic_id != topic.topic_id:
                    continue
                held = self._by_name.setdefault(name, {})
                partition = held.get(state.partition) or self._build(log, config)
                if partition is None:
                    continue
                assert partition.log is log, "one owner per partition"
                held[state.partition] = partition
                self._offline.pop(key, None)
                self._follow(partition, topic, state, config)
                done += 1
                if done % _SLICE == 0:
                    await asyncio.sleep(0)

    def _build(self, log: Log, config: TopicConfig) -> Partition | None:
        key = log.topic_partition
        try:
            room = self.space.room_for(key.topic)
            return Partition(log, config, self._disk_work, room, self.standing)
        except Exception as error:
            _log.exception("cannot open partition=%s", key)
            self._offline.may_pass(key, log.topic_id, f"{type(error).__name__}: {error}")
            return None

    def _follow(
        self, partition: Partition, topic: TopicImage, state: PartitionState, config: TopicConfig
    ) -> None:
        before = partition.role
        try:
            if config != partition.config:
                partition.reconfigure(config)
            partition.follow_image(state, min_isr_in(self._image, topic, state))
        except PartitionBrokenError:
            pass  # It is offline and has said why.
        except Exception as error:
            _log.exception("cannot serve partition=%s", partition.topic_partition)
            partition.go_offline(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if partition.role != before:
            self.standing.role_changed(partition)

    def _all_offline(self, topics: Mapping[str, TopicImage | None], reason: str) -> None:
        """Nothing more is known than that a step failed: what is not served is offline."""
        for name, topic in topics.items():
            held = self._by_name.get(name, {})
            for state in [] if topic is None else self._ours(topic):
                key = TopicPartition(name, state.partition)
                if topic is not None and state.partition not in held:
                    self._offline.may_pass(key, topic.topic_id, reason)

    def _wanted(self, topics: Iterable[TopicImage]) -> dict[TopicPartition, NewLog]:
        """What this broker has of topics."""
        return {
            TopicPartition(topic.name, state.partition): new
            for topic in topics
            for new in (NewLog(topic.topic_id, self._topic_config(topic)),)
            for state in self._ours(topic)
        }

    def _ours(self, topic: TopicImage) -> list[PartitionState]:
        return [state for state in topic.partitions if self._broker_id in state.replicas]

    def _topic_config(self, topic: TopicImage) -> TopicConfig:
        return topic_config(self.config, topic.configs)

    def _take_brokers(self, image: MetadataImage) -> None:
        brokers = image.brokers.values()
        self.standing.eligible = {each.id: each.epoch for each in brokers if not each.shutting_down}
        for partition in self:
            # A replica that was not in sync leaves without a word of the partition's own state.
            partition.leading.deletions_moved()
            if partition.leading.lacks_followers:
                self.standing.reconsider(partition)

    def _take_broker_configs(self, image: MetadataImage) -> None:
        configs, known = image.broker_configs, set(self.config.unused())
        own, default = configs.get(str(self._broker_id), {}), configs.get("", {})
        self.config = self._static_config.with_dynamic(own, default)
        self.standing.take_settings(self.config)
        new = [name for name in self.config.unused() if name not in known]
        if new:
            more = f" and {len(new) - _NAMED_MAX} more" if len(new) > _NAMED_MAX else ""
            names = ",".join(new[:_NAMED_MAX])
            _log.warning("altered settings are not used by this broker settings=%s%s", names, more)

    # -- the disk ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop serving, flush and close every log, leave the marker of a clean stop."""
        await self.cleaner.stop()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        await self._deletions.stop()
        for partition in self:
            partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        for partition in self:
            await partition.settle()
        self.truncations.retry_no_more()
        await self.truncations.settle()
        await self.checkpoints.settle()
        await self._host.offload.run(self._data_dir.close, self._high_watermarks())

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        return {each.topic_partition: each.high_watermark for each in self}
