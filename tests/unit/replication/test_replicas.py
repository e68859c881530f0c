"""The partitions of a broker follow the metadata, and no fault of one reaches another."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

import pytest

from tests.unit.cluster.helpers import image_with
from tests.unit.replication.helpers import in_seconds, read
from tests.unit.replication.node import Node
from tidelog.cluster.changes import PartitionsChanged
from tidelog.cluster.commands import (
    AddPartitions,
    AlterConfigs,
    ConfigChange,
    CreateTopic,
    DeleteTopic,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigResourceType, TopicPartition
from tidelog.replication.standing import Unregistered
from tidelog.storage.data_dir import DataDir
from tidelog.testing.disk import CrashMode
from tidelog.testing.virtual_loop import virtual_time


def refusal(node: Node, topic: str, partition: int = 0) -> str:
    with pytest.raises(KafkaError) as raised:
        node.find(topic, partition)
    return raised.value.code.name


@virtual_time
async def test_a_new_topic_is_being_created_and_then_led() -> None:
    node = await Node().start()
    assert refusal(node, "orders") == "UNKNOWN_TOPIC_OR_PARTITION"
    node.change(CreateTopic("orders", 2))
    assert refusal(node, "orders") == "NOT_LEADER_OR_FOLLOWER"
    await node.replicas.settled()
    assert node.caught_up == ["orders"]
    for index in range(2):
        node.put(node.find("orders", index), b"a")
    assert refusal(node, "orders", 2) == "UNKNOWN_TOPIC_OR_PARTITION"
    await node.do(AddPartitions("orders", 3))
    assert len(node.replicas) == 3
    assert read(node.find("orders", 1)) == [b"a"]


@virtual_time
async def test_a_deleted_topic_tells_who_waits_and_its_files_go_after_their_delay() -> None:
    node = await Node().start()
    await node.do(CreateTopic("orders", 1, configs={"durability": "fsync"}))
    topic_id = node.image.topics["orders"].topic_id
    partition = node.find("orders")
    wait = partition.committed(node.put(partition, b"a").last_offset, in_seconds(60))
    await node.do(DeleteTopic("orders"))
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: topic orders was deleted"):
        await wait
    assert refusal(node, "orders") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert "orders-0" not in node.disk.list_dir("/data")
    await asyncio.sleep(50)
    assert (node.confirmed, left_of(node, "orders")) == ([], 1)
    await asyncio.sleep(20)
    assert (node.confirmed, left_of(node, "orders")) == ([topic_id], 0)


@virtual_time
async def test_a_deletion_that_was_not_confirmed_is_confirmed_with_the_next_change() -> None:
    node = await Node().start()
    answers: list[ErrorCode | None] = [ErrorCode.NOT_CONTROLLER, None]

    async def confirm(topic_ids: Sequence[UUID]) -> None:
        code = answers.pop(0)
        if code is not None:
            raise KafkaError(code)
        node.confirmed += topic_ids

    node.replicas.confirm_deletions_through(confirm)
    await node.do(CreateTopic("orders"))
    topic_id = node.image.topics["orders"].topic_id
    await node.do(DeleteTopic("orders"))
    await asyncio.sleep(120)
    assert (len(answers), node.confirmed, left_of(node, "orders")) == (1, [], 0)
    await node.do(CreateTopic("payments"))
    await asyncio.sleep(1)
    assert node.confirmed == [topic_id]


def left_of(node: Node, topic: str) -> int:
    return sum(name.startswith(topic) for name in node.disk.list_dir("/data"))


@virtual_time
async def test_a_topic_deleted_and_created_again_at_once_is_empty_and_has_its_own_files() -> None:
    node = await Node().start()
    await node.do(CreateTopic("orders"))
    before = node.find("orders")
    node.put(before, b"of the first")
    node.change(DeleteTopic("orders"), CreateTopic("orders"))
    await node.replicas.settled()
    after = node.find("orders")
    assert after is not before
    assert after.topic_id == node.image.topics["orders"].topic_id != before.topic_id
    assert read(after) == []
    node.put(after, b"of the second")
    await asyncio.sleep(120)
    assert node.confirmed == [before.topic_id]
    assert read(after) == [b"of the second"]
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        node.put(before, b"late")


@virtual_time
async def test_a_topic_that_is_absent_without_a_tombstone_keeps_its_files() -> None:
    node = await Node().start()
    await node.do(CreateTopic("orders"))
    old, new = node.image, image_with((0,))
    node.replicas.image_changed(old, new, ())
    await node.replicas.settled()
    await asyncio.sleep(600)
    assert refusal(node, "orders") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert left_of(node, "orders") == 1
    assert node.confirmed == []


@virtual_time
async def test_a_topic_deleted_and_created_again_while_logs_are_recovered_gets_its_own_files() -> (
    None
):
    node = await Node().start()
    await node.do(CreateTopic("orders", 1), CreateTopic("gone", 1))
    node.put(node.find("orders"), b"of the first")
    before = node.image
    await node.replicas.close()
    again = Node(image=before, disk=node.disk.crash(CrashMode.KEEP_ALL))
    again.rules = node.rules
    await again.replicas.start(before)
    again.change(DeleteTopic("orders"), CreateTopic("orders", 1), DeleteTopic("gone"))
    await again.replicas.serve(again.image)
    partition = again.find("orders")
    assert partition.topic_id == again.image.topics["orders"].topic_id
    assert read(partition) == [] and again.replicas.offline == {}
    assert refusal(again, "gone") == "UNKNOWN_TOPIC_OR_PARTITION"
    await again.replicas.close()


@virtual_time
async def test_a_replica_moved_away_while_logs_are_recovered_leaves_no_files() -> None:
    node = await Node().start()
    await node.do(CreateTopic("orders", 2))
    before, topic = node.image, node.image.topics["orders"]
    await node.replicas.close()
    again = Node(image=before, disk=node.disk.crash(CrashMode.KEEP_ALL))
    again.replicas.standing.entry = Unregistered(before.brokers[0].epoch)
    await again.replicas.start(before)
    state = topic.partitions[0]
    moved = PartitionsChanged("orders", (state._replace(leader=7, replicas=(7,), isr=(7,)),))
    again.image = before.apply_all((moved,), before.version + 1)
    await again.replicas.serve(again.image)
    assert refusal(again, "orders") == "NOT_LEADER_OR_FOLLOWER"
    again.put(again.find("orders", 1), b"a")
    assert not [path for path in again.disk.open_files if "orders-0" in path]
    await asyncio.sleep(120)
    assert left_of(again, "orders-0") == 0
    assert read(again.find("orders", 1)) == [b"a"]
    await again.replicas.close()


@virtual_time
async def test_what_a_full_disk_kept_from_being_created_is_created_later() -> None:
    node = await Node().start()
    node.disk.capacity_bytes = node.disk.used_bytes()
    await node.do(CreateTopic("orders", 2))
    assert refusal(node, "orders") == "KAFKA_STORAGE_ERROR"
    assert len(node.replicas.offline) == 2
    node.replicas.retry_offline()
    await node.replicas.settled()
    assert len(node.replicas.offline) == 2
    node.disk.capacity_bytes = None
    node.replicas.retry_offline()
    await node.replicas.settled()
    assert node.replicas.offline == {}
    node.put(node.find("orders", 1), b"a")


@virtual_time
async def test_a_step_that_fails_leaves_its_topics_offline_and_the_next_image_is_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await Node().start()
    create_logs = DataDir.create_logs

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(DataDir, "create_logs", fail)
    await node.do(CreateTopic("orders"))
    assert "no room" in node.replicas.offline[TopicPartition("orders", 0)]
    monkeypatch.setattr(DataDir, "create_logs", create_logs)
    await node.do(CreateTopic("payments"))
    node.put(node.find("payments"), b"a")
    assert refusal(node, "orders") == "KAFKA_STORAGE_ERROR"
    node.replicas.retry_offline()
    await node.replicas.settled()
    node.put(node.find("orders"), b"a")
    assert caplog.text.count("partitions not brought up") == 1


@virtual_time
async def test_an_offline_partition_of_a_deleted_topic_is_forgotten() -> None:
    node = await Node().start()
    node.disk.fail_next("make_dir", errno.EIO)
    await node.do(CreateTopic("orders"))
    assert refusal(node, "orders") == "KAFKA_STORAGE_ERROR"
    await node.do(DeleteTopic("orders"))
    assert refusal(node, "orders") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert node.replicas.offline == {}


@virtual_time
async def test_ten_changes_while_one_is_followed_end_where_the_image_is() -> None:
    node = await Node().start()
    for round_ in range(10):
        node.change(CreateTopic("a"), CreateTopic(f"t{round_}"))
        await asyncio.sleep(0.001 * round_)
        if round_ < 9:
            node.change(DeleteTopic("a"))
    await node.replicas.settled()
    held = {each.topic_partition.topic: each.topic_id for each in node.replicas}
    assert held == {topic.name: topic.topic_id for topic in node.image.topics.values()}
    assert len(held) == 11
    await asyncio.sleep(120)
    assert sorted(node.confirmed) == sorted(node.image.deleted), "no tombstone waits for ever"
    assert len(node.confirmed) == 9


@virtual_time
async def test_a_clean_stop_and_a_power_cut_leave_what_was_committed() -> None:
    node = await Node().start()
    await node.do(CreateTopic("orders", 1, configs={"durability": "fsync"}))
    partition = node.find("orders")
    await partition.committed(node.put(partition, b"a").last_offset, in_seconds(10))
    again = Node(node.image, node.disk.crash(CrashMode.LOSE_ALL))
    await again.start()
    assert read(again.find("orders")) == [b"a"]
    again.put(again.find("orders"), b"b")
    await again.replicas.close()
    third = await Node(node.image, again.disk).start()
    assert third.data_dir.was_clean
    assert read(third.find("orders")) == [b"a", b"b"]


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


@virtual_time
async def test_a_thousand_settings_that_nothing_uses_cost_one_line_and_few_comparisons(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await Node().start()
    many = [ConfigChange(CountedName(f"junk.{n:03}"), "1") for n in range(999)]
    await node.do(AlterConfigs(ConfigResourceType.BROKER, "", many))
    first = ",".join(f"junk.{n:03}" for n in range(10))
    line = f"altered settings are not used by this broker settings={first} and 989 more"
    assert caplog.messages == [line]
    caplog.clear()
    CountedName.compared = 0
    await node.do(AlterConfigs(ConfigResourceType.BROKER, "", [ConfigChange("one.more", "1")]))
    assert caplog.messages == ["altered settings are not used by this broker settings=one.more"]
    assert CountedName.compared < 20 * len(many)
    caplog.clear()
    await Node(node.image).start()
    assert caplog.messages == [line.replace("989", "990")]


@virtual_time
async def test_a_deletion_does_not_wait_for_a_replica_that_died_out_of_sync() -> None:
    node = await Node(image_with((0, 1))).start()
    await node.do(CreateTopic("orders", assignments={0: [0, 1]}))
    partition = node.find("orders")
    (state,) = node.image.topics["orders"].partitions
    shrunk = PartitionsChanged("orders", (state._replace(isr=(0,), partition_epoch=1),))
    old, node.image = node.image, node.image.apply_all((shrunk,), node.image.version + 1)
    node.replicas.image_changed(old, node.image, (shrunk,))
    wait = partition.deleted_everywhere(0, in_seconds(60))
    await asyncio.sleep(1)
    assert len(partition.leading.deletion_waiters) == 1
    # Nothing but the list of brokers changes.
    old, new = node.image, dataclasses.replace(node.image, brokers={0: node.image.brokers[0]})
    node.replicas.image_changed(old, new, ())
    await wait


@virtual_time
async def test_who_asks_a_broker_without_a_replica_has_old_metadata() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION would tell clients of a moved partition that it was deleted."""
    node = await Node(image_with((0, 1))).start()
    await node.do(CreateTopic("orders", assignments={0: [1]}))
    assert refusal(node, "orders") == "NOT_LEADER_OR_FOLLOWER"
    assert refusal(node, "orders", 1) == "UNKNOWN_TOPIC_OR_PARTITION"
