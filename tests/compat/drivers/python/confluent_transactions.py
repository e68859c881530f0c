"""Transactions with confluent-kafka: the producers that the driver holds open."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from tests.compat.drivers.python.loop import JsonObject

TIMEOUT_S = 20.0


def _until_done(call: Callable[[], object]) -> None:
    """librdkafka leaves it to the program to go on with what it says can be tried again."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class TransactionOperations:
    common: JsonObject
    members: dict[str, Any]
    producers: dict[str, Producer]
    _send: Callable[[Producer, str, JsonObject, JsonObject], None]

    def transaction_open(
        self, producer: str, transactional_id: str, timeout_ms: int, member: str | None
    ) -> None:
        made = Producer(
            {
                **self.common,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )
        _until_done(lambda: made.init_transactions(TIMEOUT_S))
        self.producers[producer] = made

    def transaction_begin(self, producer: str) -> None:
        self.producers[producer].begin_transaction()

    def transaction_send(
        self, producer: str, topic: str, records: list[JsonObject]
    ) -> list[JsonObject]:
        results: list[JsonObject] = [{} for _ in records]
        for index, record in enumerate(records):
            self._send(self.producers[producer], topic, record, results[index])
        # Its `flush` fails without a reason where one of them is fatal.
        deadline = time.monotonic() + TIMEOUT_S
        while not all(results) and time.monotonic() < deadline:
            self.producers[producer].poll(0.01)
        return results

    def transaction_offsets(
        self, producer: str, member: str, group: str, offsets: list[list[Any]]
    ) -> None:
        places = [TopicPartition(*offset) for offset in offsets]
        metadata = self.members[member].consumer.consumer_group_metadata()
        sender = self.producers[producer]
        _until_done(lambda: sender.send_offsets_to_transaction(places, metadata, TIMEOUT_S))

    def transaction_end(self, producer: str, committed: bool) -> None:
        ended = self.producers[producer]
        end = ended.commit_transaction if committed else ended.abort_transaction
        _until_done(lambda: end(TIMEOUT_S))

    def transaction_close(self, producer: str) -> None:
        # Without a reference it is gone; it has no way to be closed.
        del self.producers[producer]
