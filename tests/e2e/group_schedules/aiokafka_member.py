"""A member with aiokafka, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError

from tests.e2e.group_schedules.task import (
    GROUP,
    POLL_RECORDS_MAX,
    TOPIC,
    MemberTask,
    Notes,
    Stop,
    partition_name,
)
from tests.history.events import Record


class AiokafkaMember(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Polls a batch, works on it, commits it; a rebalance waits until that is done."""

    def __init__(self, task: MemberTask, notes: Notes, stop: Stop) -> None:
        self._task = task
        self._notes = notes
        self._stop = stop

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._busy = asyncio.Lock()
        while not self._stop.is_set():
            try:
                await self._start()
                break
            except KafkaConnectionError:  # the broker is away; it gives up at once
                await self._consumer.stop()
        while not self._stop.is_set():
            await self._work()
        await self._consumer.stop()
        self._notes.left()

    async def _start(self) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._task.servers,
            group_id=GROUP,
            client_id=self._notes.member,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self._task.session_timeout_ms,
            heartbeat_interval_ms=150,
            fetch_max_wait_ms=50,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        self._consumer.subscribe([TOPIC], listener=self)
        await self._consumer.start()

    def _generation(self) -> int | None:
        generation = self._consumer._coordinator.generation
        return None if generation < 0 else int(generation)

    async def _work(self) -> None:
        before = self._generation()
        polled = await self._consumer.getmany(timeout_ms=100, max_records=POLL_RECORDS_MAX)
        if not polled:
            return
        # Between a poll that has something and here nothing else runs, so it still owns all of it.
        async with self._busy:
            after = self._generation()
            records = [
                Record(partition_name(each.partition), each.offset, int(each.value))
                for batch in polled.values()
                for each in batch
            ]
            self._notes.polled(after if after == before else None, records)
            await asyncio.sleep(self._task.work_ms / 1000)
            ends = {each: batch[-1].offset + 1 for each, batch in polled.items()}
            await self._commit(ends)

    async def _commit(self, ends: dict[aiokafka.TopicPartition, int]) -> None:
        generation = self._generation()
        if generation is None:
            return  # it would commit as one that is in no group
        number = self._notes.commit_started(
            generation, {partition.partition: end for partition, end in ends.items()}
        )
        error = None
        try:
            await self._consumer.commit(ends)
        except KafkaError as failed:
            error = type(failed).__name__
        self._notes.commit_ended(self._generation(), number, error)

    async def on_partitions_revoked(self, revoked: Iterable[aiokafka.TopicPartition]) -> None:
        async with self._busy:
            self._notes.revoked(self._generation(), [each.partition for each in revoked])

    async def on_partitions_assigned(self, assigned: Iterable[aiokafka.TopicPartition]) -> None:
        async with self._busy:
            self._notes.assigned(self._generation(), [each.partition for each in assigned])
