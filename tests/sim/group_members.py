"""Members of groups, one process each: as little as an honest client does, over the wire.

A classic member joins, syncs, and gives everything back before it joins again. One of the newer
protocol (KIP-848) gives back what it is told to, and says so with its next heartbeat. Both commit
offsets of what they hold, and read them. What each is told goes to the ledger of its group.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import Any, Final
from uuid import UUID

from tests.sim.group_ledger import SESSION_S, GroupLedger
from tidelog.client.aio import Client
from tidelog.client.connection import Call
from tidelog.client.group import range_assignment
from tidelog.client.group_admin import find_coordinator
from tidelog.errors import ErrorCode, TidelogError
from tidelog.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
    read_topics,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC: Final = "shared"
_SESSION_MS: Final = int(SESSION_S * 1000)
_JOIN_TIMEOUT_MS: Final = 3 * _SESSION_MS
_RETRY_S: Final = 0.2
_HEARTBEAT_S: Final = 0.35
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
# The coordinator is elsewhere, or not ready.
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Replaced(Exception):
    """Another process has come in this member's name: it ends."""


class Member(ABC):
    """What members of both protocols have."""

    is_classic: bool

    def __init__(
        self, ledger: GroupLedger, client: Client, name: str, instance_id: str | None
    ) -> None:
        self._ledger = ledger
        self._client = client
        self._chance = random.Random(name)
        self.holder = ledger.enter(name, instance_id, is_classic=self.is_classic)
        self._member_id = ""
        self._generation = -1
        self._coordinator: int | None = None
        # Set from outside: it is to leave the group and end.
        self.is_leaving = False

    async def run(self) -> None:
        try:
            while not self.is_leaving:
                if not await self._keep_up():
                    await asyncio.sleep(_RETRY_S)
                    continue
                await asyncio.sleep(self._chance.expovariate(1 / _HEARTBEAT_S))
                if self.holder.held and self._chance.random() < 0.6:
                    await self._commit()
                if self.holder.held and self._chance.random() < 0.1:
                    await self._read()
            self._ledger.released(self.holder)
            await self._leave()
        except Replaced:
            self._ledger.released(self.holder)
        finally:
            self.holder.is_alive = False
        await self._client.close()

    @abstractmethod
    async def _keep_up(self) -> bool:
        """Do what the group needs next; whether the member is in it."""

    @abstractmethod
    async def _leave(self) -> None:
        """Say that the member goes; whether anybody hears is another matter."""

    # -- offsets ----------------------------------------------------------------------------------

    async def _commit(self) -> None:
        held = sorted(self.holder.held)
        chosen = self._chance.sample(held, self._chance.randint(1, len(held)))
        asked = self._ledger.commits(self.holder, self._generation, chosen)
        partitions = [
            OffsetCommitRequestPartition(partition, offset, -1, "")
            for partition, offset in asked.offsets.items()
        ]
        request = OffsetCommitRequest(
            self._ledger.name, self._generation, self._member_id, self.holder.instance_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )  # fmt: skip
        answer = await self._ask("OffsetCommit", request, 9)
        codes = set() if answer is None else {
            ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions
        }  # fmt: skip
        assert len(codes) < 2, codes
        code = codes.pop() if codes else None
        if not self._ledger.committed(asked, code):
            self._refused(code)

    async def _read(self) -> None:
        asked = self._ledger.order()
        held = sorted(self.holder.held)
        topics = [OffsetFetchRequestTopic(TOPIC, held)]
        request = OffsetFetchRequest(self._ledger.name, topics)
        answer = await self._ask("OffsetFetch", request, 7)
        if answer is None or answer.error_code:
            return
        for each in answer.topics[0].partitions:
            if not each.error_code:
                self._ledger.read(each.partition_index, each.committed_offset, asked)

    @abstractmethod
    def _refused(self, code: ErrorCode | None) -> None:
        """Heed what an error says of the member; `Replaced` where that is all."""

    # -- asking -----------------------------------------------------------------------------------

    async def _ask(
        self, api: str, request: object, version: int, timeout_ms: int = 0
    ) -> Any | None:
        """The coordinator's answer, asked once; None where it did not answer, or is elsewhere."""
        if self._coordinator is None:
            try:
                self._coordinator = await self._client.run(
                    find_coordinator(self._client.cluster, self._ledger.name)
                )
            except TidelogError:
                return None
        call = Call(self._coordinator, api, request, version, timeout_ms=timeout_ms)
        answer: Any = await self._client.network.request(call)
        if isinstance(answer, TidelogError):
            self._coordinator = None
            return None
        if getattr(answer, "error_code", 0) in _ELSEWHERE:
            self._coordinator = None
            return None
        return answer

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat; the leader shares partitions by `range`."""

    is_classic = True
    _is_in = False

    async def _keep_up(self) -> bool:
        if not self._is_in:
            return await self._join()
        sent_at, asked = self._now, self._ledger.order()
        request = HeartbeatRequest(
            self._ledger.name, self._generation, self._member_id, self.holder.instance_id
        )
        answer = await self._ask("Heartbeat", request, 4)
        if answer is None:
            return False
        if not answer.error_code:
            self._ledger.heard(self.holder, sent_at)
            self._ledger.counted(self.holder, self._generation, asked)
            return True
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS and self.holder.held:
            # As clients do before they join again.
            await self._commit()
        self._refused(ErrorCode(answer.error_code))
        return False

    async def _join(self) -> bool:
        # All of it, before anybody hears that this member is ready for what comes next.
        self._ledger.released(self.holder)
        asked = self._ledger.asks_to_join(self.holder)
        version = self._chance.choice((5, 9))
        protocols = [JoinGroupRequestProtocol("range", encode_subscription([TOPIC]))]
        request = JoinGroupRequest(
            self._ledger.name, _SESSION_MS, _SESSION_MS, self._member_id, self.holder.instance_id,
            "consumer", protocols,
        )  # fmt: skip
        joined = await self._ask("JoinGroup", request, version, _JOIN_TIMEOUT_MS)
        if joined is None:
            return False
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return await self._join()
        if joined.error_code:
            self._refused(ErrorCode(joined.error_code))
            return False
        self._member_id, self._generation = joined.member_id, joined.generation_id
        return await self._sync(joined, asked)

    async def _sync(self, joined: Any, asked: int) -> bool:
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            topics = {each.member_id: read_topics(each.metadata) or [] for each in joined.members}
            shares = range_assignment(topics, {TOPIC: len(self._ledger.partitions)})
            assignments = [
                SyncGroupRequestAssignment(member, encode_assignment(share))
                for member, share in shares.items()
            ]
        request = SyncGroupRequest(
            self._ledger.name, joined.generation_id, joined.member_id, self.holder.instance_id,
            assignments=assignments,
        )  # fmt: skip
        sent_at, asked_to_sync = self._now, self._ledger.order()
        synced = await self._ask("SyncGroup", request, 3, _JOIN_TIMEOUT_MS)
        if synced is None:
            return False
        if synced.error_code:
            self._refused(ErrorCode(synced.error_code))
            return False
        self._is_in = True
        self._ledger.heard(self.holder, sent_at)
        self._ledger.joined(self.holder, self._generation, asked)
        owned = decode_assignment(synced.assignment).get(TOPIC, []) if synced.assignment else []
        self._ledger.told(self.holder, self._generation, owned, asked_to_sync)
        if owned:
            await self._read()
        return True

    def _refused(self, code: ErrorCode | None) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise Replaced
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self._member_id = ""
        if code is not None and code not in _ELSEWHERE:
            self._is_in = False

    async def _leave(self) -> None:
        identity = MemberIdentity(self._member_id, self.holder.instance_id)
        await self._ask("LeaveGroup", LeaveGroupRequest(self._ledger.name, members=[identity]), 4)


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat, and nothing else; the coordinator shares."""

    is_classic = False
    _topic_id: UUID | None = None
    _was_lost = True

    async def _keep_up(self) -> bool:
        if not self._member_id:
            self._member_id = str(UUID(int=self._chance.getrandbits(128), version=4))
        is_join = self._generation <= 0
        if is_join:
            self._ledger.released(self.holder)
        sent_at, asked = self._now, self._ledger.order()
        answer = await self._ask("ConsumerGroupHeartbeat", self._request(is_join), 1)
        if answer is None:
            # Whether it was heard is not known: the next one says everything.
            self._was_lost = True
            return False
        if answer.error_code:
            self._refused(ErrorCode(answer.error_code))
            return False
        self._was_lost = False
        self._ledger.heard(self.holder, sent_at)
        self._generation = answer.member_epoch
        if is_join:
            self._ledger.joined(self.holder, self._generation, asked)
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._topic_id = topics[0].topic_id if topics else self._topic_id
            owned = [each for topic in topics for each in topic.partitions]
            self._ledger.told(self.holder, self._generation, owned, asked)
            if not self.holder.held.keys() <= set(owned):
                return await self._give_back(owned)
        return True

    async def _give_back(self, owned: list[int]) -> bool:
        """Finish what was begun, then say so: somebody waits for it."""
        await asyncio.sleep(self._chance.uniform(0, _HEARTBEAT_S))
        if self._chance.random() < 0.5:
            await self._commit()
        self._ledger.released(self.holder, owned)
        return await self._keep_up()

    def _request(self, is_join: bool) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            self._ledger.name, self._member_id, max(self._generation, 0), self.holder.instance_id
        )
        if is_join or self._was_lost:
            request.rebalance_timeout_ms = _SESSION_MS
            request.subscribed_topic_names = [TOPIC]
        held = sorted(self.holder.held)
        request.topic_partitions = []
        if held and not is_join:
            assert self._topic_id is not None
            request.topic_partitions = [TopicPartitions(self._topic_id, held)]
        return request

    def _refused(self, code: ErrorCode | None) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise Replaced
        if code in (
            ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):  # fmt: skip
            self._ledger.released(self.holder)
            self._generation = 0

    async def _leave(self) -> None:
        is_back_soon = self.holder.instance_id is not None and self._chance.random() < 0.7
        epoch = _LEAVE_FOR_A_WHILE if is_back_soon else _LEAVE
        request = ConsumerGroupHeartbeatRequest(
            self._ledger.name, self._member_id, epoch, self.holder.instance_id
        )
        await self._ask("ConsumerGroupHeartbeat", request, 1)
