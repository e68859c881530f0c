"""A member with confluent-kafka (librdkafka), polled by a thread of its own."""

from __future__ import annotations

import struct
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.e2e.group_schedules.task import (
    GROUP,
    POLL_RECORDS_MAX,
    TOPIC,
    MemberTask,
    Notes,
    Stop,
    partition_name,
    partition_number,
)
from tests.history.events import Record

_METADATA_MAGIC = b"CGMDv2:"


def to_record(message: Message) -> Record:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None and offset is not None and value is not None
    return Record(partition_name(partition), offset, int(value))


def outcome(partitions: list[TopicPartition]) -> str | None:
    """The error of a commit, None for success; some of each is what nobody can be sure of."""
    errors = {None if each.error is None else each.error.name() for each in partitions}
    return errors.pop() if len(errors) == 1 else "MIXED"


class ConfluentMember:
    """Polls up to a batch, works on it, commits it as the task says."""

    def __init__(self, task: MemberTask, notes: Notes, stop: Stop) -> None:
        self._task = task
        self._notes = notes
        self._stop = stop
        self._batch: list[Record] = []  # polled and not yet noted
        self._done: dict[int, int] = {}  # next offsets that are not yet committed
        self._in_flight: dict[tuple[tuple[int, int], ...], int] = {}
        self._failure: str | None = None
        self._closing = False
        self._last_generation: int | None = None
        self._consumer = Consumer(self._settings())
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _settings(self) -> dict[str, object]:
        task = self._task
        settings: dict[str, object] = {
            "bootstrap.servers": task.servers,
            "group.id": GROUP,
            "group.protocol": task.protocol,
            "client.id": self._notes.member,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": task.commit == "auto",
            "auto.commit.interval.ms": 200,
            "enable.auto.offset.store": False,
            "on_commit": self._committed,
            "error_cb": self._failed,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
        if task.protocol == "classic":
            settings["partition.assignment.strategy"] = task.assignor
            settings["session.timeout.ms"] = task.session_timeout_ms
            settings["heartbeat.interval.ms"] = 150
        else:
            settings["group.remote.assignor"] = task.assignor
        if self._notes.instance is not None:
            settings["group.instance.id"] = self._notes.instance
        return settings

    def run(self) -> None:
        while not self._stop.is_set() and self._failure is None:
            self._gather()
            if self._done:
                time.sleep(self._task.work_ms / 1000)
                self._commit_done()
        self._closing = True
        self._consumer.close()
        self._notes.left(self._failure)

    def _generation(self) -> int | None:
        """The generation that the client would commit with: it tells no other way.

        A client that closes tells it no more, but waits for ever; it does not join again either.
        """
        if not self._closing:
            metadata = self._consumer.consumer_group_metadata()
            assert metadata.startswith(_METADATA_MAGIC)
            (generation,) = struct.unpack_from("=i", metadata, len(_METADATA_MAGIC))
            self._last_generation = None if generation < 0 else int(generation)
        return self._last_generation

    def _gather(self) -> None:
        before = self._generation()
        message = self._consumer.poll(0.1)
        while message is not None:
            error = message.error()
            if error is None:
                record = to_record(message)
                self._batch.append(record)
                self._done[partition_number(record.partition)] = record.offset + 1
            else:
                self._failed(error)
            if self._failure is not None:
                break
            if len(self._batch) >= POLL_RECORDS_MAX or self._task.commit == "record":
                break
            message = self._consumer.poll(0)
        after = self._generation()
        self._note_batch(after if after == before else None)

    def _failed(self, error: KafkaError) -> None:
        """A static member that was replaced is told so once, and then by every poll."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._failure = error.name()

    def _note_batch(self, generation: int | None) -> None:
        if self._batch:
            self._notes.polled(generation, self._batch)
            self._batch = []

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_batch(None)
        self._notes.assigned(self._generation(), [each.partition for each in partitions])

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_batch(None)
        if self._task.commit_when_revoked:
            self._commit_done(sync=True)
        self._drop(partitions, lost=False)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_batch(None)
        self._drop(partitions, lost=True)

    def _drop(self, partitions: list[TopicPartition], lost: bool) -> None:
        numbers = [each.partition for each in partitions]
        for number in numbers:
            self._done.pop(number, None)
        self._notes.revoked(self._generation(), numbers, lost)

    def _commit_done(self, sync: bool = False) -> None:
        offsets, self._done = self._done, {}
        if not offsets:
            return
        positions = [TopicPartition(TOPIC, each, offset) for each, offset in offsets.items()]
        if self._task.commit == "auto":
            try:
                self._consumer.store_offsets(offsets=positions)
            except KafkaException as refused:  # revoked in the meantime: there is nothing to keep
                assert refused.args[0].code() == KafkaError._STATE, refused
            return
        number = self._notes.commit_started(self._generation(), offsets)
        if self._task.commit == "async" and not sync:
            self._in_flight[tuple(sorted(offsets.items()))] = number
            self._consumer.commit(offsets=positions, asynchronous=True)
            return
        try:
            error = outcome(self._consumer.commit(offsets=positions, asynchronous=False))
        except KafkaException as failed:
            error = failed.args[0].name()
        self._notes.commit_ended(self._generation(), number, error)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Told of every commit that was not waited for."""
        offsets = {each.partition: each.offset for each in partitions if each.offset >= 0}
        if self._task.commit == "auto":
            if error is None and not any(each.error for each in partitions):
                self._notes.committed_by_itself(None, offsets)
            return
        number = self._in_flight.pop(tuple(sorted(offsets.items())), None)
        if number is not None:
            name = error.name() if error is not None else outcome(partitions)
            self._notes.commit_ended(self._generation(), number, name)
