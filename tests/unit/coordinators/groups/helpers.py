"""A group shard on a virtual clock, with a log that can refuse, and members to drive it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidelog.cluster.image import MetadataImage, PartitionState, TopicImage
from tidelog.coordinators.groups.beats import Beat
from tidelog.coordinators.groups.classic.group import ClassicGroup
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.records import CoordinatorRecord, decode_record, encode_record
from tidelog.coordinators.groups.settings import Caller, GroupSettings
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

START_WALL_MS = 1_700_000_000_000
TOPIC_ID = uuid.UUID(int=1)
SESSION_MS = 10_000
REBALANCE_MS = 30_000
DUE_AT_ONCE_MAX = 10_000


class SeededRandom:
    """Identifiers that a seed repeats."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128))

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class World:
    """One shard, the log that it is kept in, and the time."""

    def __init__(self, settings: GroupSettings | None = None, seed: int = 1) -> None:
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.random = SeededRandom(seed)
        self.image = MetadataImage()
        self.shard = self._new_shard()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now = Now(1_000, START_WALL_MS)
        self.is_refusing = False

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, self.random, lambda: self.image)

    def set_topics(self, **partitions: int) -> None:
        """The topics that there are; one that was there before keeps its id."""
        topics = {}
        for name, count in partitions.items():
            known = self.image.topics.get(name)
            topic_id = self.random.uuid() if known is None else known.topic_id
            states = tuple(PartitionState(each, 0, 0, (0,), (0,)) for each in range(count))
            topics[name] = TopicImage(name, topic_id, states, {})
        names = {each.topic_id: name for name, each in topics.items()}
        self.image = MetadataImage(topics=topics, topic_names=names)

    def run(self, handler: Callable[[GroupShard, Now], Outcome]) -> Any:
        """Handle, append, replay; the answer, or a Reply that waits for it."""
        outcome = handler(self.shard, self.now)
        self._apply(outcome)
        self._run_due()
        answer = outcome.answer
        if isinstance(answer, Reply) and answer.is_done:
            return result(answer)
        return answer

    def _apply(self, outcome: Outcome) -> None:
        if outcome.records and self.is_refusing:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for record in outcome.records:
            encoded = encode_record(record)
            self.log.append(encoded)
            decoded = decode_record(*encoded)
            assert decoded == record
            self.shard.replay(record)
        if outcome.then is not None:
            outcome.then()

    def _run_due(self) -> None:
        for count, outcome in enumerate(self.shard.due(self.now)):
            assert count < DUE_AT_ONCE_MAX, "timers come up for ever"
            try:
                self._apply(outcome)
            except KafkaError as error:
                assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def pass_time(self, ms: int, wall_ms: int | None = None) -> None:
        """Let time pass; what becomes due meanwhile happens at its time."""
        end = self.now.ms + ms
        wall = self.now.wall_ms + (ms if wall_ms is None else wall_ms)
        while True:
            deadline = self.shard.timers.next_deadline_ms()
            if deadline is None or deadline > end:
                break
            self.now = Now(max(deadline, self.now.ms), self.now.wall_ms)
            self._run_due()
        self.now = Now(end, wall)
        self._run_due()

    def restart(self) -> None:
        """Another broker loads the shard from the log."""
        self.shard.abandon(KafkaError(ErrorCode.NOT_COORDINATOR))
        self.shard = self._new_shard()
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record)
        # What comes second forgets topics that the image does not have.
        self._apply(next(self.shard.loaded(self.now)))

    def expire_offsets(self) -> None:
        """Forget offsets that are due; the broker ran all the time that the wall clock shows."""
        self.run(lambda shard, now: shard.expire_offsets(lambda written: now.wall_ms - written))

    def compact(self) -> None:
        """Keep the newest record of each key, as the cleaner does."""
        self.log = list({key: (key, value) for key, value in self.log}.values())

    # Offsets

    def commit(
        self, offset: int, committer: Committer | None = None, *, group: str = "g",
        partition: int = 0, topic: str = "t",
    ) -> list[ErrorCode]:  # fmt: skip
        commits = [Commit(topic, TOPIC_ID, partition, offset, -1, "")]
        by = committer or Committer("", None, -1)
        codes: list[ErrorCode] = self.run(lambda shard, now: shard.commit(group, by, commits, now))
        return codes

    def committed(
        self, *, group: str = "g", partition: int = 0, topic: str = "t",
        topic_id: uuid.UUID = TOPIC_ID,
    ) -> int | None:  # fmt: skip
        found = self.shard.offsets.find(group, topic, topic_id, partition)
        return None if found is None else found.offset


def result(reply: Reply[Any]) -> Any:
    assert reply.is_done
    if reply.error is not None:
        raise reply.error
    return reply.value


@dataclass(slots=True)
class Client:
    """A member as its own program sees itself."""

    world: World
    instance_id: str | None = None
    group: str = "g"
    protocols: list[str] = field(default_factory=lambda: ["range"])
    member_id: str = ""
    generation: int = -1
    assignment: bytes | None = None
    is_leader: bool = False
    members: list[str] = field(default_factory=list)
    waiting: Reply[Any] | None = None
    version: int = 9

    @property
    def committer(self) -> Committer:
        return Committer(self.member_id, self.instance_id, self.generation)

    def join(self) -> bool:
        """Join, twice where an id has to be asked for; True once the generation is there."""
        answer = self._join_once()
        if isinstance(answer, JoinGroupResponse) and answer.error_code:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_id = answer.member_id
            answer = self._join_once()
        return self._take_join(answer)

    def _join_once(self) -> Any:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name, subscription("t")) for name in self.protocols
            ],
        )
        caller = Caller("client", "/127.0.0.1")
        return self.world.run(lambda shard, now: shard.join(request, self.version, caller, now))

    def _take_join(self, answer: Any) -> bool:
        if isinstance(answer, Reply):
            self.waiting = answer
            return False
        assert isinstance(answer, JoinGroupResponse)
        self.waiting = None
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.is_leader = answer.leader == answer.member_id
        self.members = [each.member_id for each in answer.members]
        return True

    def joined(self) -> bool:
        """Look whether the join that was waited for has ended; raises how it failed."""
        if self.waiting is None or not self.waiting.is_done:
            return False
        waiting, self.waiting = self.waiting, None
        return self._take_join(result(waiting))

    def sync(self) -> bool:
        """Fetch the assignment, as leader hand in everybody's; True once it is there."""
        assignments = [
            SyncGroupRequestAssignment(member, f"{index}".encode())
            for index, member in enumerate(self.members)
            if self.is_leader
        ]
        request = SyncGroupRequest(
            self.group, self.generation, self.member_id, self.instance_id, "consumer", None,
            assignments,
        )  # fmt: skip
        return self._take_sync(self.world.run(lambda shard, now: shard.sync(request, now)))

    def _take_sync(self, answer: Any) -> bool:
        if isinstance(answer, Reply):
            self.waiting = answer
            return False
        assert isinstance(answer, SyncGroupResponse)
        self.assignment = answer.assignment
        return True

    def synced(self) -> bool:
        if self.waiting is None or not self.waiting.is_done:
            return False
        waiting, self.waiting = self.waiting, None
        return self._take_sync(result(waiting))

    @property
    def beat(self) -> Beat:
        return Beat(self.group, self.member_id, self.instance_id, self.generation)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        # Where the short way would take it, the long one says the same.
        is_heard, code = self.world.shard.hear(self.beat, self.world.now), -1
        try:
            code = self.world.run(lambda shard, now: shard.heartbeat(request, now)).error_code
        finally:
            assert not is_heard or code == ErrorCode.NONE
        return code

    def leave(self) -> None:
        request = LeaveGroupRequest(
            self.group, members=[MemberIdentity(self.member_id, self.instance_id)]
        )
        response = self.world.run(lambda shard, now: shard.leave(request, 5, now))
        assert [each.error_code for each in response.members] == [0]


def subscription(*topics: str) -> bytes:
    parts = [b"\0\1", len(topics).to_bytes(4)]
    for topic in topics:
        parts += [len(topic).to_bytes(2), topic.encode()]
    return b"".join([*parts, b"\xff\xff\xff\xff"])


def form_group(world: World, clients: list[Client]) -> None:
    """Bring the clients into one stable generation."""
    for client in clients:
        client.join()
    for client in clients:
        client.joined()
        if classic_group(world, client.group).state == "PreparingRebalance" and not client.waiting:
            client.join()
    for client in sorted(clients, key=lambda each: each.is_leader):
        client.joined()
        client.sync()
    for client in clients:
        client.synced()
    assert classic_group(world, clients[0].group).state == "Stable"


def classic_group(world: World, group: str = "g") -> ClassicGroup:
    found = world.shard.table.classic(group)
    assert found is not None
    return found


def records_of(world: World) -> list[CoordinatorRecord]:
    return [each for key, value in world.log if (each := decode_record(key, value)) is not None]
