"""Transactions with kafka-python: the producers that the driver holds open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition, errors

from tests.compat.drivers.python.loop import JsonObject

TIMEOUT_MS = 20_000


class TransactionOperations:
    common: JsonObject
    members: dict[str, Any]
    producers: dict[str, KafkaProducer]
    _send: Callable[[KafkaProducer, str, JsonObject], Any]
    _result: Callable[[Any], JsonObject]

    def transaction_open(
        self, producer: str, transactional_id: str, timeout_ms: int, member: str | None
    ) -> None:
        made = KafkaProducer(
            **self.common,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=TIMEOUT_MS,
        )
        made.init_transactions()
        self.producers[producer] = made

    def transaction_begin(self, producer: str) -> None:
        self.producers[producer].begin_transaction()

    def transaction_send(
        self, producer: str, topic: str, records: list[JsonObject]
    ) -> list[JsonObject]:
        sent = [self._send(self.producers[producer], topic, record) for record in records]
        return [self._result(future) for future in sent]

    def transaction_offsets(
        self, producer: str, member: str, group: str, offsets: list[list[Any]]
    ) -> None:
        places = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for topic, partition, offset in offsets
        }
        metadata = self.members[member].consumer.group_metadata()
        self.producers[producer].send_offsets_to_transaction(places, metadata)

    def transaction_end(self, producer: str, committed: bool) -> None:
        ended = self.producers[producer]
        if committed:
            ended.commit_transaction()
        else:
            ended.abort_transaction()

    def transaction_close(self, producer: str) -> None:
        # One that was fenced says so once more.
        with contextlib.suppress(errors.KafkaError):
            self.producers.pop(producer).close(timeout=0)
