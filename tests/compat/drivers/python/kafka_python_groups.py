"""Groups with kafka-python: the members that the driver holds open, and administration."""

from __future__ import annotations

import re
import time
from typing import Any

from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
    errors,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.loop import DriverError, JsonObject

ASSIGNORS = {
    None: RangePartitionAssignor,
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class _Member(ConsumerRebalanceListener):
    """A consumer that counts what its rebalances gave and took."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.rebalances = 0
        self.revoked: list[list[object]] = []

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.rebalances += 1

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.revoked += [[place.topic, place.partition] for place in revoked]


class GroupOperations:
    common: JsonObject
    admin: KafkaAdminClient
    members: dict[str, _Member]

    # ---- members ----

    def member_join(
        self,
        member: str,
        group: str,
        topics: list[str],
        pattern: str | None,
        settings: JsonObject,
    ) -> None:
        consumer = KafkaConsumer(
            **self.common,
            client_id=member,
            group_id=group,
            group_instance_id=settings["instance_id"],
            partition_assignment_strategy=[ASSIGNORS[settings["assignor"]]],
            auto_offset_reset=settings["reset"],
            enable_auto_commit=settings["auto_commit"],
            auto_commit_interval_ms=100,
            session_timeout_ms=settings["session_timeout_ms"],
            heartbeat_interval_ms=settings["heartbeat_interval_ms"],
            metadata_max_age_ms=settings["metadata_max_age_ms"],
            fetch_max_wait_ms=100,
        )
        self.members[member] = joined = _Member(consumer)
        if pattern:
            consumer.subscribe(pattern=pattern, listener=joined)
        else:
            consumer.subscribe(topics, listener=joined)
            # It joins before it knows the topics, joins again when it does, and then loses the
            # assignment if `poll` is over before that came: let it know them first.
            for topic in topics:
                consumer.partitions_for_topic(topic)

    def member_poll(self, member: str, count: int, timeout_ms: int) -> JsonObject:
        polled = self.members[member]
        found: list[JsonObject] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(found) < count and (left := deadline - time.monotonic()) > 0:
            for records in polled.consumer.poll(timeout_ms=int(left * 1000) + 1).values():
                for record in records:
                    place = record.partition, record.offset, record.timestamp
                    content = {"key": record.key, "value": record.value, "headers": record.headers}
                    found.append({**loop.consumed(*place, **content), "topic": record.topic})
        return {
            "records": found,
            "assignment": [[p.topic, p.partition] for p in polled.consumer.assignment()],
            "rebalances": polled.rebalances,
            "revoked": polled.revoked,
        }

    def member_commit(
        self, member: str, offsets: list[list[Any]], metadata: str, asynchronous: bool
    ) -> None:
        consumer = self.members[member].consumer
        places = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, -1)
            for topic, partition, offset in offsets
        }
        if asynchronous:
            consumer.commit_async(places)
        else:
            consumer.commit(places)

    def member_committed(self, member: str, topic: str, partition: int) -> JsonObject | None:
        consumer = self.members[member].consumer
        place = TopicPartition(topic, partition)
        # A request that `poll` has left behind would be answered first, with what was then.
        consumer.committed(place)
        found = consumer.committed(place, metadata=True)
        return None if found is None else {"offset": found.offset, "metadata": found.metadata}

    def member_seek(self, member: str, topic: str, partition: int, offset: int) -> None:
        self.members[member].consumer.seek(TopicPartition(topic, partition), offset)

    def member_pause(self, member: str, topic: str, partition: int) -> None:
        self.members[member].consumer.pause(TopicPartition(topic, partition))

    def member_resume(self, member: str, topic: str, partition: int) -> None:
        self.members[member].consumer.resume(TopicPartition(topic, partition))

    def member_close(self, member: str) -> None:
        if (closed := self.members.pop(member, None)) is not None:
            closed.consumer.close()

    # ---- administration ----

    def list_groups(self) -> list[JsonObject]:
        return [
            {"group": group["group_id"], "state": group.get("group_state")}
            for group in self.admin.list_groups()
        ]

    def describe_group(self, group: str) -> JsonObject:
        described = self.admin.describe_groups([group])[group]
        if described["error"]:
            _raise_words(described["error"])
        return {
            "state": described["group_state"],
            "assignor": described["protocol_data"],
            "members": [
                {
                    "client_id": member["client_id"],
                    "instance_id": member["group_instance_id"],
                    "assignment": _assignment(member["member_assignment"]),
                }
                for member in described["members"]
            ],
        }

    def list_group_offsets(self, groups: list[str]) -> JsonObject:
        return {
            group: [[place.topic, place.partition, at.offset] for place, at in offsets.items()]
            for group, offsets in self.admin.list_group_offsets(groups).items()
        }

    def alter_group_offsets(self, group: str, offsets: list[list[Any]]) -> None:
        places = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for topic, partition, offset in offsets
        }
        for error in self.admin.alter_group_offsets(group, places).values():
            _raise_kind(error)

    def delete_group(self, group: str) -> None:
        result = self.admin.delete_groups([group])[group]
        if result != "OK":
            _raise_kind(getattr(errors, result))

    def delete_group_offsets(self, group: str, topic: str, partition: int) -> None:
        result = self.admin.delete_group_offsets(group, [TopicPartition(topic, partition)])
        for error in result.values():
            _raise_kind(error)


def _assignment(decoded: Any) -> list[list[object]]:
    if not decoded:
        return []
    return [
        [entry["topic"], partition]
        for entry in decoded["assigned_partitions"]
        for partition in entry["partitions"]
    ]


def _raise_words(words: str) -> None:
    code = re.match(r"\[Error (\d+)\]", words)
    raise DriverError(words, code=int(code[1]) if code else None)


def _raise_kind(error: type[Exception]) -> None:
    if error is not errors.NoError:
        raise error()
