"""A partition whose watermark moves by hand, and the broker around it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tidelog.cluster.image import MetadataImage, PartitionState, TopicImage
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.replication.waiters import CommitWait, CommitWaiters
from tidelog.storage.admission import Admitted
from tidelog.storage.verification import CLIENT, Origin

BROKER = 0


class ManualPartition:
    """Batches in memory; `commit` moves the watermark."""

    def __init__(self, topic: str) -> None:
        self.topic_partition = TopicPartition(topic, 0)
        self.contained = nullcontext()
        self.waiters = CommitWaiters()
        self.batches: list[bytes] = []
        self.end = 0
        self.watermark = 0
        self.refusal: KafkaError | None = None
        self.leads = True
        self.leader_epoch = 0
        self.leading = SimpleNamespace(may_be_deposed=False)
        self.config = SimpleNamespace(durability_fsync=False)
        clock = SimpleNamespace(ages=lambda: SimpleNamespace(age_ms=lambda _: 0))
        self.log = SimpleNamespace(
            context=SimpleNamespace(running_clock=clock), log_start_offset=0, read=self._read
        )
        self._note_end()

    def _note_end(self) -> None:
        self.log.log_end_offset = self.end
        self.log.end_position = SimpleNamespace(offset=self.end)

    def _read(self, offset: int, max_bytes: int, end: Any) -> Any:
        assert offset == 0, "all of it is read at once"
        data = b"".join(self.batches)
        return SimpleNamespace(read_all=lambda: data, release=lambda: None)

    def append(self, admitted: Admitted, acks: int, now_ms: int, origin: Origin = CLIENT) -> Any:
        assert acks == -1
        if self.refusal is not None:
            raise self.refusal
        batch = bytearray(admitted.buffer)
        batch[:8] = self.end.to_bytes(8)
        self.batches.append(bytes(batch))
        self.end += admitted.header.record_count
        self._note_end()
        return SimpleNamespace(last_offset=self.end - 1)

    def check_leader(self) -> None:
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def follow(self) -> None:
        """Another broker leads: those who wait are told."""
        self.leads = False
        self.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def is_committed(self, offset: int) -> bool:
        return offset < self.watermark

    def committed(self, offset: int, deadline: float) -> CommitWait:
        return self.waiters.wait_beyond(offset, deadline)

    def commit(self, end: int | None = None) -> None:
        """Everything below `end` is committed, or all that there is."""
        self.watermark = self.end if end is None else end
        self.waiters.advance(self.watermark)


class Replicas:
    """One topic with one partition, led by this broker."""

    def __init__(self, topic: str, **settings: str) -> None:
        self.config = BrokerConfig(settings)
        self.accept_loss: tuple[TopicPartition, ...] = ()
        self.partition = ManualPartition(topic)
        self.image = MetadataImage()
        self.lead(0)

    def find(self, topic: str, index: int) -> ManualPartition:
        if self.partition.topic_partition != (topic, index):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.partition

    def lead(self, epoch: int, leader: int = BROKER, *, at_once: bool = True) -> None:
        """The metadata says so; the partition follows at once, or not yet."""
        name = self.partition.topic_partition.topic
        if at_once:
            self.partition.leads, self.partition.leader_epoch = leader == BROKER, epoch
        state = PartitionState(0, leader, epoch, (BROKER,), (BROKER,))
        topic = TopicImage(name, UUID(int=1), (state,), {})
        self.image = MetadataImage(topics={name: topic}, topic_names={UUID(int=1): name})


async def turns(count: int = 5) -> None:
    """Let what is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)
