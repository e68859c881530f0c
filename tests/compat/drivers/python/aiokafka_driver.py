"""Driver for aiokafka; its own event loop runs only while a request is carried out."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.aiokafka_groups import GroupOperations
from tests.compat.drivers.python.aiokafka_secured import SecuredOperations
from tests.compat.drivers.python.aiokafka_transactions import TransactionOperations
from tests.compat.drivers.python.loop import DriverError, JsonObject, bytes_of

TIMEOUT_MS = 10_000
DEFAULT_CONFIG_SOURCE = 5


def to_error(error: Exception) -> DriverError:
    if isinstance(error, errors.BrokerResponseError) and error.errno > 0:
        return DriverError(repr(error), code=error.errno)
    if isinstance(error, errors.CommitFailedError | errors.ProducerFenced):
        return DriverError(repr(error), kind="fenced")
    if isinstance(error, errors.NoOffsetForPartitionError):
        return DriverError(repr(error), kind="no_offset")
    if isinstance(error, errors.UnknownError):
        return DriverError(repr(error), kind="unnamed")
    if isinstance(error, errors.KafkaTimeoutError | asyncio.TimeoutError):
        return DriverError(repr(error), kind="timeout")
    if isinstance(error, AssertionError | ValueError) and "nrecognized partition" in str(error):
        return DriverError(repr(error), kind="unknown_partition")
    return DriverError(repr(error))


class Client(GroupOperations, TransactionOperations, SecuredOperations):
    def __init__(self, bootstrap_servers: str, run: Callable[[Awaitable[Any]], Any]) -> None:
        self.common = {"bootstrap_servers": bootstrap_servers}
        self.run = run
        self.admin: AIOKafkaAdminClient | None = None
        self.consumer: AIOKafkaConsumer | None = None
        self.members = {}
        self.producers = {}

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        """Each operation is a coroutine with an underscore before its name."""
        method = getattr(type(self), f"async_{operation}")
        return lambda **arguments: self.run(method(self, **arguments))

    async def _admin(self) -> AIOKafkaAdminClient:
        if self.admin is None:
            self.admin = AIOKafkaAdminClient(**self.common, request_timeout_ms=TIMEOUT_MS)
            await self.admin.start()
        return self.admin

    async def async_close(self) -> None:
        if self.admin is not None:
            await self.admin.close()

    # ---- admin ----

    async def async_create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        admin = await self._admin()
        new = NewTopic(topic, partitions, replication_factor, topic_configs=configs)
        response = await admin.create_topics([new])
        _raise_code(response.topic_errors[0][1], response.topic_errors[0][2])

    async def async_delete_topic(self, topic: str) -> None:
        admin = await self._admin()
        response = await admin.delete_topics([topic])
        _raise_code(response.topic_error_codes[0][1], topic)

    async def async_list_topics(self) -> list[str]:
        admin = await self._admin()
        return await admin.list_topics()

    async def async_describe_topic(self, topic: str) -> list[JsonObject]:
        admin = await self._admin()
        (described,) = await admin.describe_topics([topic])
        _raise_code(described["error_code"], topic)
        return [
            {
                "partition": partition["partition"],
                "leader": partition["leader"],
                "replicas": list(partition["replicas"]),
                "isr": list(partition["isr"]),
            }
            for partition in described["partitions"]
        ]

    async def async_describe_cluster(self) -> JsonObject:
        admin = await self._admin()
        cluster = await admin.describe_cluster()
        return {
            "cluster_id": cluster["cluster_id"],
            "controller_id": cluster["controller_id"],
            "brokers": [
                [broker["node_id"], broker["host"], broker["port"]] for broker in cluster["brokers"]
            ],
        }

    async def async_create_partitions(self, topic: str, total: int) -> None:
        admin = await self._admin()
        await admin.create_partitions({topic: NewPartitions(total)})

    async def async_delete_records(self, topic: str, partition: int, offset: int) -> int:
        admin = await self._admin()
        place = TopicPartition(topic, partition)
        return int((await admin.delete_records({place: RecordsToDelete(offset)}))[place])

    async def async_describe_configs(self, kind: str, name: str) -> JsonObject:
        admin = await self._admin()
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        (response,) = await admin.describe_configs([resource])
        code, message, _, _, entries = response.resources[0]
        _raise_code(code, message)
        return {
            setting: {"value": value, "default": source == DEFAULT_CONFIG_SOURCE}
            for setting, value, _, source, *_ in entries
        }

    async def async_alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        admin = await self._admin()
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        (response,) = await admin.alter_configs([resource])
        _raise_code(response.resources[0][0], response.resources[0][1])

    async def async_list_offsets(self, topic: str, partition: int, at: str | int) -> JsonObject:
        place = TopicPartition(topic, partition)
        consumer = AIOKafkaConsumer(**self.common, enable_auto_commit=False)
        await consumer.start()
        try:
            if at == "earliest":
                return {"offset": (await consumer.beginning_offsets([place]))[place]}
            if at == "latest":
                return {"offset": (await consumer.end_offsets([place]))[place]}
            found = (await consumer.offsets_for_times({place: at}))[place]
            if found is None:
                return {"offset": -1, "timestamp_ms": -1}
            return {"offset": found.offset, "timestamp_ms": found.timestamp}
        finally:
            await consumer.stop()

    # ---- produce ----

    async def async_produce(
        self, topic: str, records: list[JsonObject], acks: int, codec: str, idempotent: bool
    ) -> list[JsonObject]:
        producer = AIOKafkaProducer(
            **self.common,
            acks="all" if acks == -1 else acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
            request_timeout_ms=TIMEOUT_MS // 2,
        )
        await producer.start()
        try:
            # Queued one after the other, so that the order of the records is kept.
            sent = [await self._send(producer, topic, record) for record in records]
            return [await self._result(future) for future in sent]
        finally:
            await producer.stop()

    async def _send(self, producer: AIOKafkaProducer, topic: str, record: JsonObject) -> Any:
        try:
            return await producer.send(
                topic,
                value=bytes_of(record["value"]),
                key=bytes_of(record["key"]),
                headers=loop.headers_of(record),
                partition=record["partition"],
                timestamp_ms=record["timestamp_ms"],
            )
        except Exception as error:
            return error

    async def _result(self, future: Any) -> JsonObject:
        try:
            if isinstance(future, Exception):
                raise future
            metadata = await future
            # Without acknowledgement the client gives no metadata at all.
            if metadata is None:
                return {"partition": None, "offset": -1}
            return {"partition": metadata.partition, "offset": metadata.offset}
        except Exception as error:
            return {"error": to_error(error).to_json()}

    # ---- consume ----

    async def async_consumer_open(
        self,
        topic: str,
        partitions: list[int],
        start: JsonObject,
        reset: str,
        isolation: str,
        fetch_bytes: int,
    ) -> None:
        self.consumer = consumer = AIOKafkaConsumer(
            **self.common,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            isolation_level=isolation,
            max_partition_fetch_bytes=fetch_bytes,
        )
        await consumer.start()
        places = [TopicPartition(topic, number) for number in partitions]
        consumer.assign(places)
        if start["at"] == "earliest":
            await consumer.seek_to_beginning(*places)
        elif start["at"] == "latest":
            await consumer.seek_to_end(*places)
        elif start["at"] == "timestamp":
            found = await consumer.offsets_for_times(dict.fromkeys(places, start["timestamp_ms"]))
            for place in places:
                consumer.seek(place, found[place].offset)
        else:
            for place in places:
                consumer.seek(place, start["offset"])

    async def async_consumer_read(self, count: int, timeout_ms: int) -> list[JsonObject]:
        assert self.consumer is not None
        found: list[JsonObject] = []
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while len(found) < count and (left := deadline - asyncio.get_running_loop().time()) > 0:
            polled = await self.consumer.getmany(
                timeout_ms=int(left * 1000), max_records=count - len(found)
            )
            for records in polled.values():
                for record in records:
                    place = record.partition, record.offset, record.timestamp
                    content = {"key": record.key, "value": record.value, "headers": record.headers}
                    found.append(loop.consumed(*place, **content))
        return found

    async def async_consumer_seek(self, topic: str, partition: int, offset: int) -> None:
        assert self.consumer is not None
        self.consumer.seek(TopicPartition(topic, partition), offset)

    async def async_consumer_close(self) -> None:
        if self.consumer is not None:
            await self.consumer.stop()
            self.consumer = None


def _raise_code(code: int, message: str | None) -> None:
    if code:
        raise DriverError(f"{errors.for_code(code).__name__}: {message}", code=code)


if __name__ == "__main__":
    logging.disable()
    loop.announce("aiokafka", aiokafka.__version__)
    with asyncio.Runner() as runner:
        client = Client(sys.argv[1], runner.run)
        loop.serve(client, to_error)
        runner.run(client.async_close())
