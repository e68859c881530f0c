"""Driver for confluent-kafka (librdkafka)."""

from __future__ import annotations

import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.confluent_groups import GroupOperations, is_missing_offset
from tests.compat.drivers.python.confluent_secured import SecuredOperations
from tests.compat.drivers.python.confluent_transactions import TransactionOperations
from tests.compat.drivers.python.loop import DriverError, JsonObject, bytes_of

TIMEOUT_S = 10.0
KINDS = {
    KafkaError._UNKNOWN_TOPIC: "unknown_topic",
    KafkaError._UNKNOWN_PARTITION: "unknown_partition",
    KafkaError._MSG_TIMED_OUT: "timeout",
    KafkaError._TIMED_OUT: "timeout",
    KafkaError._FENCED: "fenced",
}


def to_error(error: Exception | KafkaError) -> DriverError:
    if isinstance(error, KafkaException):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return DriverError(repr(error))
    if error.code() == KafkaError._AUTO_OFFSET_RESET and "Offset out of range" in error.str():
        return DriverError(str(error), code=KafkaError.OFFSET_OUT_OF_RANGE)
    if is_missing_offset(error):
        return DriverError(str(error), kind="no_offset")
    if error.code() > 0:
        return DriverError(str(error), code=error.code())
    return DriverError(str(error), kind=KINDS.get(error.code(), "client"))


class Client(GroupOperations, TransactionOperations, SecuredOperations):
    def __init__(self, bootstrap_servers: str) -> None:
        self.common = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self.admin = AdminClient(self.common)
        self.consumer: KafkaConsumer | None = None
        self.members = {}
        self.producers = {}

    # ---- admin ----

    def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        new = NewTopic(topic, partitions, replication_factor, config=configs)
        self.admin.create_topics([new])[topic].result(TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def list_topics(self) -> list[str]:
        return list(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def describe_topic(self, topic: str) -> list[JsonObject]:
        futures = self.admin.describe_topics(TopicCollection([topic]))
        return [
            {
                "partition": partition.id,
                "leader": partition.leader.id if partition.leader else -1,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
            }
            for partition in futures[topic].result(TIMEOUT_S).partitions
        ]

    def describe_cluster(self) -> JsonObject:
        cluster = self.admin.describe_cluster().result(TIMEOUT_S)
        return {
            "cluster_id": cluster.cluster_id,
            "controller_id": cluster.controller.id if cluster.controller else -1,
            "brokers": [[node.id, node.host, node.port] for node in cluster.nodes],
        }

    def create_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT_S)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        place = TopicPartition(topic, partition, offset)
        (future,) = self.admin.delete_records([place]).values()
        return int(future.result(TIMEOUT_S).low_watermark)

    def describe_configs(self, kind: str, name: str) -> JsonObject:
        (future,) = self.admin.describe_configs([ConfigResource(kind, name)]).values()
        return {
            entry.name: {"value": entry.value, "default": entry.is_default}
            for entry in future.result(TIMEOUT_S).values()
        }

    def alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        resource = ConfigResource("topic", topic, set_config=configs)
        (future,) = self.admin.alter_configs([resource]).values()
        future.result(TIMEOUT_S)

    def incremental_alter_configs(
        self, topic: str, set_configs: dict[str, str], delete_configs: list[str]
    ) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in set_configs.items()
        ]
        entries += [
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            for name in delete_configs
        ]
        resource = ConfigResource("topic", topic, incremental_configs=entries)
        (future,) = self.admin.incremental_alter_configs([resource]).values()
        future.result(TIMEOUT_S)

    def list_offsets(self, topic: str, partition: int, at: str | int) -> JsonObject:
        if isinstance(at, int):
            spec = OffsetSpec.for_timestamp(at)
        else:
            spec = getattr(OffsetSpec, at)()
        (future,) = self.admin.list_offsets({TopicPartition(topic, partition): spec}).values()
        found = future.result(TIMEOUT_S)
        return {"offset": found.offset, "timestamp_ms": found.timestamp}

    # ---- produce ----

    def produce(
        self, topic: str, records: list[JsonObject], acks: int, codec: str, idempotent: bool
    ) -> list[JsonObject]:
        producer = KafkaProducer(
            {
                **self.common,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                "topic.metadata.refresh.interval.ms": 1000,
                "topic.metadata.propagation.max.ms": 500,
            }
        )
        results: list[JsonObject] = [{} for _ in records]
        for index, record in enumerate(records):
            self._send(producer, topic, record, results[index])
        producer.flush(TIMEOUT_S)
        return results

    def _send(
        self, producer: KafkaProducer, topic: str, record: JsonObject, result: JsonObject
    ) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                result["error"] = to_error(error).to_json()
            else:
                result.update(partition=message.partition(), offset=message.offset())

        options: JsonObject = {}
        if record["partition"] is not None:
            options["partition"] = record["partition"]
        if record["timestamp_ms"] is not None:
            options["timestamp"] = record["timestamp_ms"]
        try:
            producer.produce(
                topic,
                value=bytes_of(record["value"]),
                key=bytes_of(record["key"]),
                headers=loop.headers_of(record),
                on_delivery=delivered,
                **options,
            )
        except KafkaException as error:
            result["error"] = to_error(error).to_json()

    # ---- consume ----

    def consumer_open(
        self,
        topic: str,
        partitions: list[int],
        start: JsonObject,
        reset: str,
        isolation: str,
        fetch_bytes: int,
    ) -> None:
        self.consumer = KafkaConsumer(
            {
                **self.common,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": {"none": "error"}.get(reset, reset),
                "isolation.level": isolation,
                "max.partition.fetch.bytes": fetch_bytes,
            }
        )
        self.consumer.assign(self._places(topic, partitions, start))
        if start["at"] == "latest":
            self._wait_for_ends(len(partitions))

    def _places(self, topic: str, partitions: list[int], start: JsonObject) -> list[TopicPartition]:
        assert self.consumer is not None
        at = start["at"]
        if at == "timestamp":
            asked = [TopicPartition(topic, n, start["timestamp_ms"]) for n in partitions]
            return self.consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
        offset = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(at, start.get("offset"))
        return [TopicPartition(topic, n, offset) for n in partitions]

    def _wait_for_ends(self, count: int) -> None:
        """An assignment at the end is resolved in the background: wait until it stands there."""
        assert self.consumer is not None
        while count:
            message = self.consumer.poll(TIMEOUT_S)
            if message is None:
                raise DriverError("the end was not reached", kind="timeout")
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise to_error(message.error())
            count -= 1

    def consumer_read(self, count: int, timeout_ms: int) -> list[JsonObject]:
        assert self.consumer is not None
        found: list[JsonObject] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(found) < count and (left := deadline - time.monotonic()) > 0:
            message = self.consumer.poll(left)
            if message is None or (
                message.error() and message.error().code() == KafkaError._PARTITION_EOF
            ):
                continue
            if message.error():
                raise to_error(message.error())
            content = {
                "key": message.key(),
                "value": message.value(),
                "headers": message.headers(),
            }
            place = message.partition(), message.offset(), message.timestamp()[1]
            found.append(loop.consumed(*place, **content))
        return found

    def consumer_seek(self, topic: str, partition: int, offset: int) -> None:
        assert self.consumer is not None
        self.consumer.seek(TopicPartition(topic, partition, offset))

    def consumer_close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
            self.consumer = None


if __name__ == "__main__":
    library = confluent_kafka.libversion()[0]
    loop.announce("confluent-kafka", f"{confluent_kafka.version()} (librdkafka {library})")
    loop.serve(Client(sys.argv[1]), to_error)
