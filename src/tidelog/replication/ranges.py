"""Offsets that lie outside of a leader's log, and what a follower may do about it.

Below the leader's start all of the follower's records are deleted: it starts over there. Else the
leader is asked where the follower's last epoch ends in its log, and what lies beyond is cut as by
any divergence. Where the leader knows nothing of that epoch either, nothing is cut: the log says
so, and an operator has to look.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from tidelog.client.faults import error_code
from tidelog.cluster.peer import PeerConnection
from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.replication.fetch_core import Followed
from tidelog.replication.following import EpochEnd, FetchFrom

_log = logging.getLogger(__name__)

_EARLIEST: Final = -2


class Owner(Protocol):
    """The fetcher that met the offsets."""

    @property
    def replica_id(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...

    def trouble(self, followed: Followed, kind: str, error: Exception | None = None) -> None: ...
    def cut(self, followed: Followed, work: Coroutine[Any, Any, bool]) -> None: ...


class Ranges:
    """The partitions of one leader that have to be looked into."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._doubtful: dict[TopicPartition, tuple[Followed, FetchFrom]] = {}

    def add(self, followed: Followed, asked: FetchFrom) -> None:
        self._doubtful[followed.partition.topic_partition] = (followed, asked)

    def forget(self) -> None:
        """The connection is gone: whoever is still out of range will hear of it again."""
        self._doubtful.clear()

    async def look_up(self, peer: PeerConnection) -> None:
        """Ask the leader about all that were added since, and do what follows from it."""
        if not self._doubtful:
            return
        doubtful, self._doubtful = self._doubtful, {}
        for partition in await self._below_start(peer, doubtful):
            del doubtful[partition]
        if doubtful:
            await self._by_epoch(peer, doubtful)

    async def _below_start(
        self, peer: PeerConnection, doubtful: dict[TopicPartition, tuple[Followed, FetchFrom]]
    ) -> list[TopicPartition]:
        """Have those start over that lie below the leader's log; which are dealt with."""
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, (_, asked) in doubtful.items():
            topic = topics.setdefault(
                partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[])
            )
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=asked.leader_epoch,
                    timestamp=_EARLIEST,
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._owner.replica_id, topics=list(topics.values())
        )
        response = await peer.request("ListOffsets", request, self._owner.timeout_s)
        settled = []
        for topic in response.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                if partition not in doubtful:
                    continue
                followed, asked = doubtful[partition]
                if found.error_code:
                    self._owner.trouble(followed, error_code(found.error_code).name)
                elif found.offset > asked.offset:
                    _log.warning(
                        "the leader has deleted all of a replica's records: it starts over"
                        " partition=%s end_offset=%d leader_log_start=%d",
                        partition, asked.offset, found.offset,
                    )  # fmt: skip
                    work = followed.partition.start_over_at(asked, found.offset)
                    self._owner.cut(followed, work)
                else:
                    continue
                settled.append(partition)
        return settled

    async def _by_epoch(
        self, peer: PeerConnection, doubtful: dict[TopicPartition, tuple[Followed, FetchFrom]]
    ) -> None:
        """Cut what the leader's log does not have of the follower's last epoch."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for partition, (_, asked) in doubtful.items():
            topic = topics.setdefault(
                partition.topic, OffsetForLeaderTopic(topic=partition.topic, partitions=[])
            )
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=asked.leader_epoch,
                    leader_epoch=asked.last_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._owner.replica_id, topics=list(topics.values())
        )
        response = await peer.request("OffsetForLeaderEpoch", request, self._owner.timeout_s)
        for topic in response.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.topic, found.partition)
                if partition not in doubtful:
                    continue
                followed, asked = doubtful.pop(partition)
                if found.error_code:
                    self._owner.trouble(followed, error_code(found.error_code).name)
                    continue
                end = EpochEnd(found.leader_epoch, found.end_offset)
                diverges = end.leader_epoch < asked.last_epoch or end.end_offset < asked.offset
                if end.end_offset >= 0 and diverges:
                    self._owner.cut(followed, followed.partition.truncate_to(asked, end))
                else:
                    self._refuse(followed, asked)
        for followed, _ in doubtful.values():
            self._owner.trouble(followed, ErrorCode.OFFSET_OUT_OF_RANGE.name)

    def _refuse(self, followed: Followed, asked: FetchFrom) -> None:
        if not followed.rests:
            _log.error(
                "a replica is out of its leader's range, and the leader does not know its epoch:"
                " nothing is cut partition=%s end_offset=%d last_epoch=%d leader_epoch=%d",
                followed.partition.topic_partition, asked.offset, asked.last_epoch,
                asked.leader_epoch,
            )  # fmt: skip
        self._owner.trouble(followed, ErrorCode.OFFSET_OUT_OF_RANGE.name)
