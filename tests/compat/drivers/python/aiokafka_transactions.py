"""Transactions with aiokafka: the producers that the driver holds open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition

from tests.compat.drivers.python.loop import JsonObject


class TransactionOperations:
    common: JsonObject
    producers: dict[str, AIOKafkaProducer]
    _send: Callable[[AIOKafkaProducer, str, JsonObject], Awaitable[Any]]
    _result: Callable[[Any], Awaitable[JsonObject]]

    async def async_transaction_open(
        self, producer: str, transactional_id: str, timeout_ms: int, member: str | None
    ) -> None:
        made = AIOKafkaProducer(
            **self.common,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await made.start()
        self.producers[producer] = made

    async def async_transaction_begin(self, producer: str) -> None:
        await self.producers[producer].begin_transaction()

    async def async_transaction_send(
        self, producer: str, topic: str, records: list[JsonObject]
    ) -> list[JsonObject]:
        sent = [await self._send(self.producers[producer], topic, record) for record in records]
        return [await self._result(future) for future in sent]

    async def async_transaction_offsets(
        self, producer: str, member: str, group: str, offsets: list[list[Any]]
    ) -> None:
        # The group's name is all that it takes: it cannot say which member it speaks for.
        places = {TopicPartition(topic, partition): at for topic, partition, at in offsets}
        await self.producers[producer].send_offsets_to_transaction(places, group)

    async def async_transaction_end(self, producer: str, committed: bool) -> None:
        ended = self.producers[producer]
        if committed:
            await ended.commit_transaction()
        else:
            await ended.abort_transaction()

    async def async_transaction_close(self, producer: str) -> None:
        await self.producers.pop(producer).stop()
