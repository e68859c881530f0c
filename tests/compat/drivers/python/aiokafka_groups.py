"""Groups with aiokafka: the members that the driver holds open, and administration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.structs import OffsetAndMetadata

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.loop import DriverError, JsonObject

ASSIGNORS = {
    None: RangePartitionAssignor,
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class _Member(ConsumerRebalanceListener):
    """A consumer that counts what its rebalances gave and took."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.rebalances = 0
        self.revoked: list[list[object]] = []
        # Commits that nobody has waited for.
        self.commits: set[asyncio.Task[None]] = set()

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.rebalances += 1

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.revoked += [[place.topic, place.partition] for place in revoked]


class GroupOperations:
    common: JsonObject
    members: dict[str, _Member]
    _admin: Callable[[], Awaitable[AIOKafkaAdminClient]]

    # ---- members ----

    async def async_member_join(
        self,
        member: str,
        group: str,
        topics: list[str],
        pattern: str | None,
        settings: JsonObject,
    ) -> None:
        consumer = AIOKafkaConsumer(
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
        # Subscribing before it is started would wait for the first assignment.
        await consumer.start()
        self.members[member] = joined = _Member(consumer)
        if pattern:
            consumer.subscribe(pattern=pattern, listener=joined)
        else:
            consumer.subscribe(topics, listener=joined)

    async def async_member_poll(self, member: str, count: int, timeout_ms: int) -> JsonObject:
        polled = self.members[member]
        found: list[JsonObject] = []
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_ms / 1000
        while len(found) < count and (left := deadline - clock()) > 0:
            batches = await polled.consumer.getmany(timeout_ms=int(left * 1000) + 1)
            for records in batches.values():
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

    async def async_member_commit(
        self, member: str, offsets: list[list[Any]], metadata: str, asynchronous: bool
    ) -> None:
        committer = self.members[member]
        places = {TopicPartition(topic, n): (offset, metadata) for topic, n, offset in offsets}
        if asynchronous:
            task = asyncio.create_task(committer.consumer.commit(places))
            committer.commits.add(task)
            task.add_done_callback(committer.commits.discard)
        else:
            await committer.consumer.commit(places)

    async def async_member_committed(
        self, member: str, topic: str, partition: int
    ) -> JsonObject | None:
        offset = await self.members[member].consumer.committed(TopicPartition(topic, partition))
        # The client does not show the metadata here, only to its admin.
        group = self.members[member].consumer._group_id
        admin = await self._admin()
        found = await admin.list_consumer_group_offsets(group)
        at = found.get(TopicPartition(topic, partition), OffsetAndMetadata(-1, ""))
        return None if offset is None else {"offset": offset, "metadata": at.metadata}

    async def async_member_seek(self, member: str, topic: str, partition: int, offset: int) -> None:
        self.members[member].consumer.seek(TopicPartition(topic, partition), offset)

    async def async_member_pause(self, member: str, topic: str, partition: int) -> None:
        self.members[member].consumer.pause(TopicPartition(topic, partition))

    async def async_member_resume(self, member: str, topic: str, partition: int) -> None:
        self.members[member].consumer.resume(TopicPartition(topic, partition))

    async def async_member_close(self, member: str) -> None:
        if (closed := self.members.pop(member, None)) is not None:
            await asyncio.gather(*closed.commits, return_exceptions=True)
            await closed.consumer.stop()

    # ---- administration ----

    async def async_list_groups(self) -> list[JsonObject]:
        admin = await self._admin()
        return [
            {"group": listed[0], "state": None} for listed in await admin.list_consumer_groups()
        ]

    async def async_describe_group(self, group: str) -> JsonObject:
        admin = await self._admin()
        (response,) = await admin.describe_consumer_groups([group])
        code, _, state, _, assignor, members, *_ = response.groups[0]
        if code:
            raise DriverError(errors.for_code(code).__name__, code=code)
        return {
            "state": state,
            "assignor": assignor,
            "members": [_described(member) for member in members],
        }

    async def async_list_group_offsets(self, groups: list[str]) -> JsonObject:
        (group,) = groups  # the client takes one a call
        admin = await self._admin()
        found = await admin.list_consumer_group_offsets(group)
        return {group: [[place.topic, place.partition, at.offset] for place, at in found.items()]}


def _described(member: tuple[Any, ...]) -> JsonObject:
    # Its newest version of the request has no static members.
    _, client_id, _, _, assignment = member[:5]
    places = []
    if assignment:
        decoded = ConsumerProtocolMemberAssignment.decode(BytesIO(assignment))
        places = [[place.topic, place.partition] for place in decoded.partitions()]
    return {"client_id": client_id, "instance_id": None, "assignment": places}
