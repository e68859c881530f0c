"""Consume, transform, produce, exactly once: one process of a pipeline that may die at any moment.

Arguments: bootstrap servers, this copier's transactional id, topics to read and to write, how many
records a transaction has at most, and the partitions that it copies. Without any it is a member of
a group, and its transactions say which (KIP-447); with some it has them for itself, and what keeps
another of its kind from writing is the transactional id alone.

A call that does not return by twice its own time-out ends the process. librdkafka 2.16 has such
calls (`tests/chaos/lost_coordinator.py`), and nothing else helps out of one.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SECONDS = 10.0


class Copier:
    """Copies records, in transactions of up to `batch`."""

    def __init__(
        self, servers: str, transactional_id: str, topics: tuple[str, str], batch: int,
        partitions: Sequence[int],
    ) -> None:  # fmt: skip
        source, self.target = topics
        self.batch = batch
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        # Before it looks where to go on: what its last life left open is decided by then.
        until_done(lambda: self.producer.init_transactions(SECONDS))
        if partitions:
            self.consumer.assign([TopicPartition(source, each) for each in partitions])
        else:
            self.consumer.subscribe([source])

    def run(self) -> None:
        while True:
            found = self.consumer.consume(self.batch, 0.5)
            messages = [each for each in found if not each.error()]
            if messages:
                self._copy(messages)

    def _copy(self, messages: list[Message]) -> None:
        self.producer.begin_transaction()
        try:
            for each in messages:
                self.producer.produce(self.target, each.value(), partition=each.partition())
            ends = {(each.topic(), each.partition()): each.offset() + 1 for each in messages}
            offsets = [TopicPartition(*place, end) for place, end in ends.items()]
            group = self.consumer.consumer_group_metadata()
            until_done(lambda: self.producer.send_offsets_to_transaction(offsets, group, SECONDS))
            until_done(lambda: self.producer.commit_transaction(SECONDS))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            until_done(lambda: self.producer.abort_transaction(SECONDS))
            self._go_back(messages)

    def _go_back(self, messages: list[Message]) -> None:
        """Nothing of it was done: read it again, unless others do by now."""
        mine = {(each.topic, each.partition) for each in self.consumer.assignment()}
        first: dict[tuple[str, int], int] = {}
        for each in messages:
            first.setdefault((each.topic(), each.partition()), each.offset())
        for place, offset in first.items():
            if place in mine:
                self.consumer.seek(TopicPartition(*place, offset))


def until_done(call: Callable[[], object]) -> None:
    while True:
        faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or error.args[0].fatal():
                raise
        finally:
            faulthandler.cancel_dump_traceback_later()


def main() -> None:
    servers, transactional_id, source, target, batch, *partitions = sys.argv[1:]
    topics = source, target
    Copier(servers, transactional_id, topics, int(batch), list(map(int, partitions))).run()


if __name__ == "__main__":
    main()
