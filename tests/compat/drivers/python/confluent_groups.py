"""Groups with confluent-kafka: the members that the driver holds open, and administration."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.loop import JsonObject

TIMEOUT_S = 10.0


class _Member:
    """A consumer that counts what its rebalances gave and took."""

    def __init__(self, settings: JsonObject, topics: list[str]) -> None:
        self.rebalances = 0
        self.revoked: list[list[object]] = []
        self.consumer = Consumer(settings)
        self.consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.rebalances += 1

    def _revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.revoked += [[place.topic, place.partition] for place in places]


class GroupOperations:
    common: JsonObject
    admin: AdminClient
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
        reset = settings["reset"]
        chosen = {
            **self.common,
            "client.id": member,
            "group.id": group,
            "group.protocol": settings["protocol"],
            "group.instance.id": settings["instance_id"] or "",
            "auto.offset.reset": {"none": "error"}.get(reset, reset),
            "enable.auto.commit": settings["auto_commit"],
            "auto.commit.interval.ms": 100,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": settings["metadata_max_age_ms"],
        }
        if settings["protocol"] == "classic":
            chosen["partition.assignment.strategy"] = settings["assignor"] or "range"
            chosen["session.timeout.ms"] = settings["session_timeout_ms"]
            chosen["heartbeat.interval.ms"] = settings["heartbeat_interval_ms"]
        # librdkafka takes a topic that begins with this sign for a pattern.
        self.members[member] = _Member(chosen, [f"^{pattern}"] if pattern else topics)

    def member_poll(self, member: str, count: int, timeout_ms: int) -> JsonObject:
        polled = self.members[member]
        found: list[JsonObject] = []
        deadline = time.monotonic() + timeout_ms / 1000
        message = polled.consumer.poll(timeout_ms / 1000)
        while message is not None:
            if message.error():
                raise KafkaException(message.error())
            place = message.partition(), message.offset(), message.timestamp()[1]
            content = {"key": message.key(), "value": message.value(), "headers": None}
            found.append({**loop.consumed(*place, **content), "topic": message.topic()})
            left = deadline - time.monotonic() if len(found) < count else 0
            message = polled.consumer.poll(max(left, 0))
        return {
            "records": found,
            "assignment": [[p.topic, p.partition] for p in polled.consumer.assignment()],
            "rebalances": polled.rebalances,
            "revoked": polled.revoked,
        }

    def member_commit(
        self, member: str, offsets: list[list[Any]], metadata: str, asynchronous: bool
    ) -> None:
        places = [TopicPartition(*offset, metadata) for offset in offsets]
        done = self.members[member].consumer.commit(offsets=places, asynchronous=asynchronous)
        for place in done or ():
            if place.error:
                raise KafkaException(place.error)

    def member_committed(self, member: str, topic: str, partition: int) -> JsonObject | None:
        asked = [TopicPartition(topic, partition)]
        (found,) = self.members[member].consumer.committed(asked, timeout=TIMEOUT_S)
        if found.error:
            raise KafkaException(found.error)
        if found.offset == OFFSET_INVALID:
            return None
        return {"offset": found.offset, "metadata": found.metadata or ""}

    def member_seek(self, member: str, topic: str, partition: int, offset: int) -> None:
        self.members[member].consumer.seek(TopicPartition(topic, partition, offset))

    def member_pause(self, member: str, topic: str, partition: int) -> None:
        self.members[member].consumer.pause([TopicPartition(topic, partition)])

    def member_resume(self, member: str, topic: str, partition: int) -> None:
        self.members[member].consumer.resume([TopicPartition(topic, partition)])

    def member_close(self, member: str) -> None:
        if (closed := self.members.pop(member, None)) is not None:
            closed.consumer.close()

    # ---- administration ----

    def list_groups(self) -> list[JsonObject]:
        listed = self.admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        if listed.errors:
            raise listed.errors[0]
        return [
            {"group": group.group_id, "state": group.state.name if group.state else None}
            for group in listed.valid
        ]

    def describe_group(self, group: str) -> JsonObject:
        futures = self.admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)
        described = futures[group].result(TIMEOUT_S)
        return {
            "state": described.state.name,
            "assignor": described.partition_assignor,
            "members": [
                {
                    "client_id": member.client_id,
                    "instance_id": member.group_instance_id,
                    "assignment": [
                        [place.topic, place.partition]
                        for place in (member.assignment.topic_partitions or ())
                    ],
                }
                for member in described.members
            ],
        }

    def list_group_offsets(self, groups: list[str]) -> JsonObject:
        (group,) = groups  # the client takes one a call
        asked = [ConsumerGroupTopicPartitions(group)]
        future = self.admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group]
        return {
            group: [
                [place.topic, place.partition, place.offset]
                for place in future.result(TIMEOUT_S).topic_partitions
            ]
        }

    def alter_group_offsets(self, group: str, offsets: list[list[Any]]) -> None:
        places = [TopicPartition(*offset) for offset in offsets]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        future = self.admin.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group]
        for place in future.result(TIMEOUT_S).topic_partitions:
            if place.error:
                raise KafkaException(place.error)

    def delete_group(self, group: str) -> None:
        futures = self.admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S)
        futures[group].result(TIMEOUT_S)


def is_missing_offset(error: KafkaError) -> bool:
    """Whether a member found no committed offset, and was told not to choose one by itself."""
    return error.code() == KafkaError._AUTO_OFFSET_RESET and "No offset stored" in error.str()
