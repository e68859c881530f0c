"""Both sides of a fetch on real logs: a partition that follows, and a broker that leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.unit.cluster.scripted_broker import ScriptedBroker
from tests.unit.storage.helpers import World as Storage
from tests.unit.storage.helpers import append, batch, start_over, stored_batches, truncate
from tidelog.cluster.image import Endpoint
from tidelog.cluster.peer import PeerConnection, PeerOptions
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.host import Host
from tidelog.model import TopicPartition
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset as EpochEndAnswer,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.replication.fetchers import Fetchers, FetchLinks, FetchSettings
from tidelog.replication.following import EpochEnd, FetchFrom
from tidelog.replication.throttle import Quota
from tidelog.replication.waiters import Watchers
from tidelog.storage.log import Log
from tidelog.storage.replicated import CheckedBatches
from tidelog.testing.simulation.machines import World
from tidelog.testing.simulation.nodes import SimulatedLoop

TOPIC = "orders"
TOPIC_ID = UUID(int=77)
SETTINGS = FetchSettings(
    wait_max_ms=500, min_bytes=1, partition_bytes_max=4 << 20, response_bytes_max=10 << 20,
    backoff_ms=1000, socket_timeout_ms=30_000,
)  # fmt: skip

Key = tuple[UUID, int]


def new_log() -> Log:
    return Storage(config=TopicConfig(segment_bytes=1 << 16)).open()


def large_log() -> Log:
    return Storage(config=TopicConfig(segment_bytes=1 << 26)).open()


def write(log: Log, epoch: int, *fills: int) -> None:
    """One batch of three records for each fill."""
    for fill in fills:
        append(log, batch(3, fill=fill), epoch=epoch)


class FakePartition:
    """A replica that follows, on a real log; its rules are as plain as they can be."""

    def __init__(self, index: int = 0, log: Log | None = None) -> None:
        self.topic_partition = TopicPartition(TOPIC, index)
        self.topic_id = TOPIC_ID
        self.fetch_watchers = Watchers()
        self.is_throttled = False
        self.log = log or new_log()
        self.leader_epoch = 0
        self.follows = True
        self.high_watermark = 0
        # Cuts below the watermark that was known.
        self.alarms: list[tuple[int, int]] = []
        self.cuts: list[int] = []
        self.refuses: Exception | None = None
        self.appended = self.checked_elsewhere = 0
        # While set, a cut waits for it.
        self.gate: asyncio.Event | None = None

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def next_fetch(self) -> FetchFrom | None:
        if not self.follows:
            return None
        log = self.log
        return FetchFrom(
            log.log_end_offset, log.epochs.latest, self.leader_epoch, log.log_start_offset
        )

    def _stands_at(self, asked: FetchFrom) -> bool:
        place = self.next_fetch()
        return place is not None and place[:3] == asked[:3]

    def append_from_leader(
        self,
        asked: FetchFrom,
        records: memoryview | CheckedBatches,
        high_watermark: int,
        leader_log_start: int,
    ) -> bool:
        if not self._stands_at(asked):
            return False
        if self.refuses is not None:
            raise self.refuses
        if isinstance(records, CheckedBatches):
            self.log.append_checked(records)
            self.checked_elsewhere += 1
        elif records:
            self.log.append_as_follower(records, asked.leader_epoch)
            self.appended += 1
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.log_end_offset))
        return True

    async def truncate_to(self, asked: FetchFrom, diverging: EpochEnd) -> bool:
        if self.gate is not None:
            await self.gate.wait()
        if not self._stands_at(asked):
            return False
        log = self.log
        _, own_end = log.epochs.end_offset_for(diverging.leader_epoch, log.log_end_offset)
        offset = min(own_end, diverging.end_offset, log.log_end_offset)
        if offset < self.high_watermark:
            self.alarms.append((offset, self.high_watermark))
            self.high_watermark = offset
        self.cuts.append(offset)
        truncate(log, offset)
        log.epochs.truncate_from_end(offset)
        return True

    async def start_over_at(self, asked: FetchFrom, offset: int) -> bool:
        if not self._stands_at(asked) or offset <= self.log_end_offset:
            return False
        start_over(self.log, offset)
        self.high_watermark = offset
        return True

    def moved(self) -> None:
        """Its place has changed by itself."""
        self.fetch_watchers.notify()


@dataclass
class Led:
    """A partition at its leader."""

    log: Log
    epoch: int = 0
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int | None = None

    @property
    def watermark(self) -> int:
        return self.log.log_end_offset if self.high_watermark is None else self.high_watermark


@dataclass
class Session:
    session_id: int
    epoch: int = 1
    parts: dict[Key, FetchPartition] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)


class FakeLeader:
    """A leader's answers to followers: sessions, epochs, divergence, range, records."""

    def __init__(self) -> None:
        self.led: dict[Key, Led] = {}
        self.session: Session | None = None
        self.gives_sessions = True
        self.fetches: list[FetchRequest] = []
        self._sessions = 0

    def lead(self, log: Log, index: int = 0, epoch: int = 0) -> Led:
        led = self.led[TOPIC_ID, index] = Led(log, epoch)
        log.epochs.assign(epoch, log.log_end_offset)
        return led

    def respond(self, header: RequestHeader, message: Any) -> Any:
        if isinstance(message, FetchRequest):
            return self._fetch(message)
        if isinstance(message, ListOffsetsRequest):
            return self._list_offsets(message)
        return self._epoch_ends(message)

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        self.fetches.append(request)
        if request.session_epoch == 0:
            self._sessions += 1
            session = Session(self._sessions)
            self.session = session if self.gives_sessions else None
        else:
            found = self.session
            if found is None or found.session_id != request.session_id:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if found.epoch != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session = found
            session.epoch += 1
        for topic in request.topics:
            for part in topic.partitions:
                session.parts[topic.topic_id, part.partition] = part
                session.told.pop((topic.topic_id, part.partition), None)
        for left in request.forgotten_topics_data:
            for index in left.partitions:
                session.parts.pop((left.topic_id, index))
        answers: dict[UUID, FetchableTopicResponse] = {}
        for key, part in session.parts.items():
            data = self._read(key, part)
            news = (data.high_watermark, data.log_start_offset)
            if data.records or data.error_code or data.diverging_epoch or (
                session.told.get(key) != news
            ):  # fmt: skip
                session.told[key] = news
                topic = answers.setdefault(
                    key[0], FetchableTopicResponse(topic_id=key[0], partitions=[])
                )
                topic.partitions.append(data)
        session_id = session.session_id if self.gives_sessions else 0
        return FetchResponse(session_id=session_id, responses=list(answers.values()))

    def _read(self, key: Key, part: FetchPartition) -> PartitionData:
        data = PartitionData(partition_index=key[1], records=b"")
        led = self.led.get(key)
        try:
            if led is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._read_into(data, led, part)
        except KafkaError as error:
            data.error_code = error.code
        return data

    def _read_into(self, data: PartitionData, led: Led, part: FetchPartition) -> None:
        if led.error:
            raise KafkaError(led.error)
        if part.current_leader_epoch != led.epoch:
            older = part.current_leader_epoch < led.epoch
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        log = led.log
        if part.last_fetched_epoch >= 0:
            epoch, end = log.epochs.end_offset_for(part.last_fetched_epoch, log.log_end_offset)
            if end < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < part.last_fetched_epoch or end < part.fetch_offset:
                data.diverging_epoch = EpochEndOffset(epoch, end)
                return
        data.high_watermark, data.log_start_offset = led.watermark, log.log_start_offset
        slices = log.read(part.fetch_offset, part.partition_max_bytes, log.end_position)
        data.records = slices.read_all()
        slices.release()

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                led = self.led[TOPIC_ID, part.partition_index]
                assert part.timestamp == -2 and part.current_leader_epoch == led.epoch
                start = led.log.log_start_offset
                parts.append(
                    ListOffsetsPartitionResponse(partition_index=part.partition_index, offset=start)
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, request: Any) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                log = self.led[TOPIC_ID, part.partition].log
                epoch, end = log.epochs.end_offset_for(part.leader_epoch, log.log_end_offset)
                parts.append(
                    EpochEndAnswer(partition=part.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(topics=topics)


class Stage:
    """A follower's fetchers and a leader, broker 1, on the simulated network."""

    def __init__(
        self, host: Host, network: Any, broker: ScriptedBroker, leader: FakeLeader
    ) -> None:
        self.host = host
        self.network = network
        self.broker = broker
        self.leader = leader
        self.endpoint: Endpoint | None = None
        self.replica = ReplicaState(2, 40)
        links = FetchLinks(host, SETTINGS, self._open_peer, lambda: self.replica, Quota())
        self.fetchers = Fetchers(links)

    def _open_peer(self, broker_id: int) -> PeerConnection | None:
        if broker_id != 1 or self.endpoint is None:
            return None
        return PeerConnection(self.host.network, self.endpoint, PeerOptions(reuses_memory=True))

    async def until(self, condition: Callable[[], bool], limit_s: float = 30.0) -> None:
        """Let virtual time pass until something holds."""
        end = self.host.clock.monotonic() + limit_s
        while not condition():
            assert self.host.clock.monotonic() < end, "it does not come to pass"
            await asyncio.sleep(0.005)

    async def until_equal(self, *partitions: FakePartition) -> None:
        """Until the followers have what the leader has."""
        await self.until(lambda: all(map(self.is_equal, partitions)))

    def is_equal(self, partition: FakePartition) -> bool:
        led = self.leader.led[TOPIC_ID, partition.topic_partition.partition]
        if partition.log_end_offset != led.log.log_end_offset:
            return False
        return stored_batches(partition.log) == stored_batches(led.log)


def staged(test: Callable[[Stage], Any]) -> Callable[[], None]:
    """Run a test with a stage."""

    def run() -> None:
        play(test)

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def play(test: Callable[[Stage], Any], seed: int = 1) -> None:
    loop = SimulatedLoop(seed, limit_seconds=3600)

    async def main() -> None:
        world = World(loop)
        leader = FakeLeader()
        # As if every answer had waited for news a little.
        broker = ScriptedBroker(leader.respond, delay_s=0.02)
        host = world.client_host()
        stage = Stage(host, world.network, broker, leader)
        stage.endpoint = await loop.add("far").start(broker.listen(host, "far"))
        try:
            await test(stage)
        finally:
            await stage.fetchers.stop()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
