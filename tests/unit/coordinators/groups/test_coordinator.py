"""What the answers of a coordinator of groups wait for: members, or offsets too."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.unit.coordinators.groups.helpers import REBALANCE_MS, SESSION_MS, TOPIC_ID
from tests.unit.coordinators.helpers import BROKER, ManualPartition, Replicas, turns
from tidelog.cluster.changes import TopicDeleted
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.coordinator import GroupCoordinator, offsets_topic
from tidelog.coordinators.groups.settings import Caller
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.testing.virtual_loop import virtual_host, virtual_time


class World:
    """A coordinator with one shard, whose partition is committed by hand."""

    def __init__(self) -> None:
        delay = {"group.initial.rebalance.delay.ms": "0"}
        self.replicas = Replicas(OFFSETS_TOPIC, **delay)
        self.coordinator = self.start()

    @property
    def partition(self) -> ManualPartition:
        return self.replicas.partition

    def start(self) -> GroupCoordinator:
        replicas, nobody = cast("Any", self.replicas), cast("Any", None)
        image = lambda: self.replicas.image  # noqa: E731
        coordinator = GroupCoordinator(BROKER, replicas, virtual_host(), image, nobody)
        coordinator.start()
        self.coordinator = coordinator
        return coordinator

    def commit(self, group: str = "g", committer: Committer | None = None) -> Any:
        by = committer or Committer("", None, -1)
        commits = [Commit("t", TOPIC_ID, 0, 5, -1, "")]
        return self.coordinator.call(
            group, lambda shard, now: shard.commit(group, by, commits, now)
        )

    def ask(self, group: str, handler: Any) -> Any:
        return self.coordinator.call(group, handler, core_only=True)

    def join(self, group: str = "g") -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        caller = Caller("client", "/127.0.0.1")
        return self.ask(group, lambda shard, now: shard.join(request, 3, caller, now))

    def sync(self, joined: Any, group: str = "g") -> Any:
        request = SyncGroupRequest(group, joined.generation_id, joined.member_id)
        return self.ask(group, lambda shard, now: shard.sync(request, now))

    def beat(self, joined: Any, group: str = "g") -> Any:
        request = HeartbeatRequest(group, joined.generation_id, joined.member_id)
        return self.ask(group, lambda shard, now: shard.heartbeat(request, now))


@pytest.mark.parametrize(
    ("setting", "brokers", "replicas", "syncs"),
    [(3, 1, 1, True), (3, 2, 2, True), (3, 3, 3, False), (3, 5, 3, False), (1, 5, 1, True)],
)
def test_the_offsets_topic_is_synced_while_few_brokers_have_it(
    setting: int, brokers: int, replicas: int, syncs: bool
) -> None:
    config = BrokerConfig({"offsets.topic.replication.factor": str(setting)})
    made = offsets_topic(config, brokers)
    assert made.replication_factor == replicas
    assert (made.configs.get("durability") == "fsync") is syncs
    assert "min.insync.replicas" not in made.configs, "the ordinary rule holds"


@virtual_time
async def test_a_heartbeat_waits_for_the_members_and_not_for_the_offsets_behind_them() -> None:
    world = World()
    joined = await world.join()
    synced = world.sync(joined)
    members_end = world.partition.end
    commit = world.commit("other")
    beat = world.beat(joined)
    await turns()
    assert not synced.done() and not beat.done(), "the generation is not committed"
    world.partition.commit(members_end)
    await turns()
    assert synced.done() and (await beat).error_code == ErrorCode.NONE
    assert not commit.done()
    assert world.beat(joined).error_code == ErrorCode.NONE, "on the spot"
    world.coordinator.stop()


@virtual_time
async def test_a_join_that_ends_while_offsets_are_committed_waits_for_none() -> None:
    world = World()
    commit = world.commit("other")
    joined = await asyncio.wait_for(world.join(), 1)
    assert joined.generation_id == 1 and not commit.done()
    world.coordinator.stop()


@virtual_time
async def test_after_a_failover_a_heartbeat_waits_until_the_generation_is_committed() -> None:
    world = World()
    joined = await world.join()
    world.sync(joined)
    world.coordinator.stop()
    world.start()
    while True:
        try:
            beat = world.beat(joined)
            break
        except KafkaError as error:
            assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0.01)
    await turns()
    assert not beat.done()
    world.partition.commit()
    assert (await beat).error_code == ErrorCode.NONE
    world.coordinator.stop()


@virtual_time
async def test_the_end_of_a_topic_takes_its_offsets_with_it() -> None:
    world = World()
    world.commit()
    assert world.coordinator.census().offsets == 1
    gone = TopicDeleted("t", TOPIC_ID, 1)
    world.coordinator.image_changed(world.replicas.image, world.replicas.image, (gone,))
    assert world.coordinator.census().offsets == 0
    assert world.coordinator.group_stats.commits == 1
    world.coordinator.stop()


@virtual_time
async def test_a_group_is_not_found_before_its_topic_is_there() -> None:
    world = World()
    world.replicas.image = type(world.replicas.image)()
    with pytest.raises(KafkaError) as raised:
        world.coordinator.topic.leader_of("g")
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError) as raised:
        world.commit()
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.coordinator.stop()
