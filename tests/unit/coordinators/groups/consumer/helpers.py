"""Members of consumer groups, as their own programs see themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from tests.unit.coordinators.groups.helpers import REBALANCE_MS, World
from tidelog.coordinators.groups.beats import ConsumerBeat
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.settings import Caller
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Owned = frozenset[tuple[UUID, int]]


def is_plain(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a heartbeat tells nothing but that its member lives."""
    who = request.group_id, request.member_id, request.member_epoch, request.instance_id
    return request.member_epoch > 0 and request == ConsumerGroupHeartbeatRequest(*who)


@dataclass(slots=True, eq=False)
class Consumer:
    """One member. It gives back what it lost, says so, and only then takes what it got."""

    world: World
    member_id: str
    topics: list[str] = field(default_factory=lambda: ["t"])
    instance_id: str | None = None
    group: str = "g"
    assignor: str | None = None
    epoch: int = 0
    owned: Owned = frozenset()
    target: Owned = frozenset()
    # What the coordinator has not been told yet.
    has_news: bool = True
    heartbeat_interval_ms: int = -1
    pattern: str | None = None
    may_describe: Callable[[str], bool] = lambda _: True

    @property
    def committer(self) -> Committer:
        return Committer(self.member_id, self.instance_id, self.epoch, 9)

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        caller = Caller("client", "/127.0.0.1", self.may_describe)
        if is_plain(request):
            return self._send_plain(request, caller)
        response: ConsumerGroupHeartbeatResponse = self.world.run(
            lambda shard, now: shard.consumer_heartbeat(request, 1, caller, now)
        )
        return response

    def _send_plain(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        """Where the short way would take it, the long one says the same and writes nothing."""
        shard, written = self.world.shard, len(self.world.log)
        interval_ms = shard.heartbeat_interval_ms(request.group_id)
        who = request.group_id, request.member_id, request.instance_id, request.member_epoch
        beat = ConsumerBeat(*who, caller.client_id, caller.client_host, interval_ms)
        is_heard = shard.hear(beat, self.world.now)
        same = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=interval_ms,
        )
        response: ConsumerGroupHeartbeatResponse | None = None
        try:
            response = self.world.run(
                lambda shard, now: shard.consumer_heartbeat(request, 1, caller, now)
            )
        finally:
            assert not is_heard or (response == same and len(self.world.log) == written)
        assert response is not None
        return response

    def join(self) -> None:
        self.epoch, self.owned, self.target = 0, frozenset(), frozenset()
        self.take(self.send(self.full_request()))

    def full_request(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.pattern,
            server_assignor=self.assignor,
            topic_partitions=self.reported(),
        )

    def beat(self) -> None:
        """A heartbeat that tells what is new."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=self.reported() if self.has_news else None,
        )
        response = self.send(request)
        self.has_news = False
        self.take(response)

    def subscribe(self, *topics: str) -> None:
        self.topics = list(topics)
        self.take(self.send(self.full_request()))

    def subscribe_to_pattern(self, pattern: str) -> None:
        self.pattern = pattern
        self.take(self.send(self.full_request()))

    @property
    def topic_names(self) -> set[str]:
        """The names of the topics that it owns partitions of."""
        return {self.world.image.topic_names[topic_id] for topic_id, _ in self.owned}

    def leave(self, epoch: int = -1) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )
        assert self.send(request).member_epoch == epoch
        self.epoch, self.owned, self.target = epoch, frozenset(), frozenset()

    def reported(self) -> list[TopicPartitions]:
        topics: dict[UUID, list[int]] = {}
        for topic_id, partition in sorted(self.owned, key=str):
            topics.setdefault(topic_id, []).append(partition)
        return [TopicPartitions(*each) for each in topics.items()]

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        assert response.error_code == ErrorCode.NONE
        self.epoch = response.member_epoch
        self.member_id = response.member_id or self.member_id
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self.target = frozenset(
                (each.topic_id, partition)
                for each in response.assignment.topic_partitions
                for partition in each.partitions
            )

    def reconcile(self) -> bool:
        """One step towards what it was told: give back, or else take. True where it did either."""
        before = self.owned
        self.owned = self.owned & self.target if self.owned - self.target else self.target
        self.has_news = self.has_news or self.owned != before
        return self.owned != before

    def step(self) -> bool:
        """Reconcile and beat."""
        moved = self.reconcile()
        before = (self.epoch, self.target)
        self.beat()
        return moved or before != (self.epoch, self.target)

    @property
    def partitions(self) -> set[int]:
        return {partition for _, partition in self.owned}

    def commit(self, partition: int, offset: int, *, epoch: int | None = None) -> ErrorCode:
        topic = self.world.image.topics["t"]
        by = self.committer if epoch is None else self.committer._replace(generation=epoch)
        commits = [Commit("t", topic.topic_id, partition, offset, -1, "")]
        try:
            codes: list[ErrorCode] = self.world.run(
                lambda shard, now: shard.commit(self.group, by, commits, now)
            )
        except KafkaError as error:
            if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                raise
            return error.code
        return codes[0]


def settle(*consumers: Consumer) -> int:
    """Let everybody beat until nothing moves any more; how many rounds that took."""
    for rounds in range(1, 50):
        moves = [each.step() for each in consumers]
        if not any(moves):
            return rounds
    raise AssertionError("the group does not come to rest")


def group_of(world: World, group: str = "g") -> ConsumerGroup:
    found = world.shard.table.consumer(group)
    assert found is not None
    return found
