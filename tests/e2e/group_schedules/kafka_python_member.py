"""A member with kafka-python, polled by a thread of its own."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable

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

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that newer Pythons do without.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError


class KafkaPythonMember(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Polls a batch, works on it, commits it; it rebalances while it polls and only then."""

    def __init__(self, task: MemberTask, notes: Notes, stop: Stop) -> None:
        self._task = task
        self._notes = notes
        self._stop = stop

    def _start(self) -> None:
        task = self._task
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=task.servers,
            group_id=GROUP,
            client_id=self._notes.member,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=task.session_timeout_ms,
            heartbeat_interval_ms=150,
            fetch_max_wait_ms=50,
            reconnect_backoff_max_ms=200,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        # As the leader it would assign nothing of a topic that it does not know yet.
        self._consumer.partitions_for_topic(TOPIC)
        self._consumer.subscribe([TOPIC], listener=self)

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                self._start()
                break
            except KafkaError:  # the broker is away
                continue
        while not self._stop.is_set():
            self._work()
        self._consumer.close()
        self._notes.left()

    def _generation(self) -> int | None:
        generation = self._consumer.group_metadata().generation_id
        return None if generation < 0 else int(generation)

    def _work(self) -> None:
        before = self._generation()
        polled = self._consumer.poll(timeout_ms=100, max_records=POLL_RECORDS_MAX)
        if not polled:
            return
        after = self._generation()
        records = [
            Record(partition_name(each.partition), each.offset, int(each.value))
            for batch in polled.values()
            for each in batch
        ]
        self._notes.polled(after if after == before else None, records)
        time.sleep(self._task.work_ms / 1000)
        ends = {partition: batch[-1].offset + 1 for partition, batch in polled.items()}
        number = self._notes.commit_started(
            self._generation(), {partition.partition: end for partition, end in ends.items()}
        )
        error = None
        try:
            self._consumer.commit(
                {each: kafka.OffsetAndMetadata(end, "", -1) for each, end in ends.items()}
            )
        except KafkaError as failed:
            error = type(failed).__name__
        self._notes.commit_ended(self._generation(), number, error)

    def on_partitions_revoked(self, revoked: Iterable[kafka.TopicPartition]) -> None:
        self._notes.revoked(self._generation(), [each.partition for each in revoked])

    def on_partitions_assigned(self, assigned: Iterable[kafka.TopicPartition]) -> None:
        self._notes.assigned(self._generation(), [each.partition for each in assigned])
