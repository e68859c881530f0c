"""Driver for kafka-python."""

from __future__ import annotations

import logging
import re
import sys
import time
import warnings
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer import OffsetSpec

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.kafka_python_groups import GroupOperations
from tests.compat.drivers.python.kafka_python_secured import SecuredOperations
from tests.compat.drivers.python.kafka_python_transactions import TransactionOperations
from tests.compat.drivers.python.loop import DriverError, JsonObject, bytes_of

TIMEOUT_MS = 10_000


def to_error(error: Exception) -> DriverError:
    if isinstance(error, errors.BrokerResponseError) and error.errno > 0:
        return DriverError(repr(error), code=error.errno)
    if isinstance(error, errors.CommitFailedError):
        return DriverError(repr(error), kind="fenced")
    if isinstance(error, errors.NoOffsetForPartitionError):
        return DriverError(repr(error), kind="no_offset")
    if isinstance(error, errors.KafkaTimeoutError):
        return DriverError(repr(error), kind="timeout")
    if isinstance(error, ValueError) and "Unrecognized partition" in str(error):
        return DriverError(repr(error), kind="unknown_partition")
    return DriverError(repr(error))


class Client(GroupOperations, TransactionOperations, SecuredOperations):
    def __init__(self, bootstrap_servers: str) -> None:
        self.common = {"bootstrap_servers": bootstrap_servers}
        self.admin = KafkaAdminClient(**self.common, request_timeout_ms=TIMEOUT_MS)
        self.consumer: KafkaConsumer | None = None
        self.members = {}
        self.producers = {}

    # ---- admin ----

    def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        self.admin.create_topics(
            {
                topic: {
                    "num_partitions": partitions,
                    "replication_factor": replication_factor,
                    "configs": configs,
                }
            }
        )

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def list_topics(self) -> list[str]:
        return list(self.admin.list_topics())

    def describe_topic(self, topic: str) -> list[JsonObject]:
        (described,) = self.admin.describe_topics([topic])
        _raise_code(described["error_code"])
        return [
            {
                "partition": partition["partition_index"],
                "leader": partition["leader_id"],
                "replicas": list(partition["replica_nodes"]),
                "isr": list(partition["isr_nodes"]),
            }
            for partition in described["partitions"]
        ]

    def describe_cluster(self) -> JsonObject:
        cluster = self.admin.describe_cluster()
        return {
            "cluster_id": cluster["cluster_id"],
            "controller_id": cluster["controller_id"],
            "brokers": [
                [broker["broker_id"], broker["host"], broker["port"]]
                for broker in cluster["brokers"]
            ],
        }

    def create_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions({topic: total})

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        (result,) = self.admin.delete_records({TopicPartition(topic, partition): offset}).values()
        return int(result["low_watermark"])

    def describe_configs(self, kind: str, name: str) -> JsonObject:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        described = self.admin.describe_configs([resource], config_filter="all")
        return {
            setting: {
                "value": entry["value"],
                "default": entry["config_source"] == "DEFAULT_CONFIG",
            }
            for setting, entry in described[kind][name].items()
        }

    def alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        self._alter(topic, configs, incremental=False)

    def incremental_alter_configs(
        self, topic: str, set_configs: dict[str, str], delete_configs: list[str]
    ) -> None:
        operations: dict[str, Any] = {n: ("SET", value) for n, value in set_configs.items()}
        operations |= dict.fromkeys(delete_configs, ("DELETE", None))
        self._alter(topic, operations, incremental=True)

    def _alter(self, topic: str, configs: dict[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        results = self.admin.alter_configs(
            [resource], raise_on_unknown=False, incremental=incremental
        )
        if (result := results["topic"][topic]) != "OK":
            code = re.match(r"\[Error (\d+)\]", result)
            raise DriverError(result, code=int(code[1]) if code else None)

    def list_offsets(self, topic: str, partition: int, at: str | int) -> JsonObject:
        place = TopicPartition(topic, partition)
        spec = at if isinstance(at, int) else OffsetSpec[at.upper()]
        found = self.admin.list_partition_offsets({place: spec}, timeout_ms=TIMEOUT_MS)[place]
        return {"offset": found.offset, "timestamp_ms": found.timestamp}

    # ---- produce ----

    def produce(
        self, topic: str, records: list[JsonObject], acks: int, codec: str, idempotent: bool
    ) -> list[JsonObject]:
        producer = KafkaProducer(
            **self.common,
            acks="all" if acks == -1 else acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
            max_block_ms=TIMEOUT_MS // 4,
            delivery_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS // 2,
        )
        try:
            sent = [self._send(producer, topic, record) for record in records]
            return [self._result(future) for future in sent]
        finally:
            producer.close(timeout=TIMEOUT_MS / 1000)

    def _send(self, producer: KafkaProducer, topic: str, record: JsonObject) -> Any:
        try:
            return producer.send(
                topic,
                value=bytes_of(record["value"]),
                key=bytes_of(record["key"]),
                headers=loop.headers_of(record),
                partition=record["partition"],
                timestamp_ms=record["timestamp_ms"],
            )
        except Exception as error:
            return error

    def _result(self, future: Any) -> JsonObject:
        try:
            if isinstance(future, Exception):
                raise future
            metadata = future.get(timeout=TIMEOUT_MS / 1000)
            return {"partition": metadata.partition, "offset": metadata.offset}
        except Exception as error:
            return {"error": to_error(error).to_json()}

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
        self.consumer = consumer = KafkaConsumer(
            **self.common,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            isolation_level=isolation,
            max_partition_fetch_bytes=fetch_bytes,
        )
        places = [TopicPartition(topic, number) for number in partitions]
        consumer.assign(places)
        if start["at"] == "earliest":
            consumer.seek_to_beginning(*places)
        elif start["at"] == "latest":
            consumer.seek_to_end(*places)
            for place in places:
                consumer.position(place)
        elif start["at"] == "timestamp":
            found = consumer.offsets_for_times(dict.fromkeys(places, start["timestamp_ms"]))
            for place in places:
                consumer.seek(place, found[place].offset)
        else:
            for place in places:
                consumer.seek(place, start["offset"])

    def consumer_read(self, count: int, timeout_ms: int) -> list[JsonObject]:
        assert self.consumer is not None
        found: list[JsonObject] = []
        deadline = time.monotonic() + timeout_ms / 1000
        while len(found) < count and (left := deadline - time.monotonic()) > 0:
            polled = self.consumer.poll(timeout_ms=int(left * 1000), max_records=count - len(found))
            for records in polled.values():
                for record in records:
                    place = record.partition, record.offset, record.timestamp
                    content = {"key": record.key, "value": record.value, "headers": record.headers}
                    found.append(loop.consumed(*place, **content))
        return found

    def consumer_seek(self, topic: str, partition: int, offset: int) -> None:
        assert self.consumer is not None
        self.consumer.seek(TopicPartition(topic, partition), offset)

    def consumer_close(self) -> None:
        if self.consumer is not None:
            self.consumer.close(autocommit=False)
            self.consumer = None


def _raise_code(code: int) -> None:
    if code:
        raise DriverError(errors.for_code(code).__name__, code=code)


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    loop.announce("kafka-python", kafka.__version__)
    loop.serve(Client(sys.argv[1]), to_error)
