"""Writing the end of a transaction to a partition that this broker leads.

The marker that was written before is not written twice: a coordinator that got no answer asks
again, and after a failover so does the next one. Either way the answer comes when all is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.clock import Clock
from tidelog.model import TopicPartition
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    encode_control_batch,
    read_header,
)
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas
from tidelog.replication.waiters import CommitWait
from tidelog.storage.admission import Admitted
from tidelog.storage.verification import Origin

# Until a marker is committed; then its coordinator asks again.
_COMMIT_SECONDS: Final = 5.0
_GROUP_ERRORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Mark(NamedTuple):
    """How the transaction of a producer ends."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    version: int


class MarkerWriter:
    """Writes markers; one per broker."""

    def __init__(self, replicas: Replicas, groups: GroupCoordinator, clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    async def write(self, mark: Mark, partitions: Sequence[TopicPartition]) -> list[ErrorCode]:
        """What each partition came to, once it is committed there."""
        begun: list[CommitWait | ErrorCode] = []
        try:
            begun += (self._begin(mark, each) for each in partitions)
            return [await _outcome(each) for each in begun]
        finally:
            for wait in begun:
                if isinstance(wait, CommitWait):
                    wait.cancel()

    def _begin(self, mark: Mark, where: TopicPartition) -> CommitWait | ErrorCode:
        """Append the marker where it is not there; the wait for it, if one is needed."""
        try:
            partition = self._replicas.find(*where)
            partition.check_leader()
            last = self._append(mark, partition)
        except KafkaError as error:
            if where.topic == OFFSETS_TOPIC and error.code in _GROUP_ERRORS:
                # The group coordinator loads, say: nothing that another request cannot do.
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return error.code
        if partition.is_committed(last):
            return ErrorCode.NONE
        return partition.committed(last, asyncio.get_running_loop().time() + _COMMIT_SECONDS)

    def _append(self, mark: Mark, partition: Partition) -> int:
        """The offset that must be committed."""
        name = partition.topic_partition
        producers = partition.log.producers
        if producers.was_ended_by(mark.producer_id, mark.producer_epoch, mark.coordinator_epoch):
            producers.void(mark.producer_id, mark.producer_epoch, mark.version)
            return partition.log.log_end_offset - 1
        now_ms = self._clock.wall_ms()
        batch = encode_control_batch(
            CONTROL_COMMIT if mark.committed else CONTROL_ABORT,
            producer_id=mark.producer_id,
            producer_epoch=mark.producer_epoch,
            coordinator_epoch=mark.coordinator_epoch,
            timestamp=now_ms,
        )
        admitted = Admitted(memoryview(batch), read_header(batch))
        origin = Origin(from_client=False, transaction_version=mark.version)
        if name.topic == OFFSETS_TOPIC:
            return self._groups.end_transaction(name.partition, admitted, origin)
        return partition.append(admitted, -1, now_ms, origin).last_offset


async def _outcome(begun: CommitWait | ErrorCode) -> ErrorCode:
    if isinstance(begun, ErrorCode):
        return begun
    try:
        await begun
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
