"""The decisions of all queries that write exactly once, in the compacted topic `__tidelog_sinks`.

A record's key is the name of the query (what its transactional ids begin with), its value a JSON
object: `query`, `version`, `done`, and `transactions`, each a transactional id, a producer id and
an epoch. The last record of a key counts. Records are written in transactions of the query's
driver, so of a driver that was fenced none is read.
"""

from __future__ import annotations

import json
from typing import Final

from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.offsets import log_bounds
from tidelog.client.operation import refresh, topic_metadata
from tidelog.client.partitioner import partition_for_key
from tidelog.client.transactions import PreparedTransaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.spark.sink.decisions import Decision, ExactlyOnceError

LEDGER_TOPIC: Final = "__tidelog_sinks"
_PARTITIONS: Final = 8
_REPLICAS_MAX: Final = 3
# The last record of a query that runs is among the last; if not, more of them are read.
_FIRST_LOOK: Final = 256
_LOOK_FACTOR: Final = 16
_POLL_SECONDS: Final = 0.2


def to_record(name: str, decision: Decision) -> ProducerRecord:
    value = {
        "query": decision.query,
        "version": decision.version,
        "done": decision.is_done,
        "transactions": [
            [each.transactional_id, each.producer_id, each.producer_epoch]
            for each in ([] if decision.is_done else decision.transactions)
        ],
    }
    return ProducerRecord(LEDGER_TOPIC, json.dumps(value).encode(), name.encode())


def from_value(value: bytes) -> Decision:
    try:
        found = json.loads(value)
        transactions = tuple(PreparedTransaction(*each) for each in found["transactions"])
        return Decision(found["query"], found["version"], transactions, found["done"])
    except (ValueError, TypeError, KeyError) as error:
        raise ExactlyOnceError(
            f"a record of '{LEDGER_TOPIC}' cannot be read: {value[:200]!r}. Write nothing to that"
            " topic, and do not go on with the query before it is repaired"
        ) from error


def ensure_ledger(client: Client, *, on_tidelog: bool) -> None:
    """Create the topic where it is not there: as safe as the brokers can make it."""
    client.run(refresh(client.cluster, [LEDGER_TOPIC]))
    known = client.cluster.topics.get(LEDGER_TOPIC)
    if known is not None and known.error_code == ErrorCode.NONE:
        return
    replicas = min(_REPLICAS_MAX, max(len(client.cluster.brokers), 1))
    synced = {"durability": "fsync"} if on_tidelog else {"flush.messages": "1"}
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": str(10 << 20),
        "segment.bytes": str(64 << 20),
        **(synced if replicas < _REPLICAS_MAX else {"min.insync.replicas": "2"}),
    }
    topic = NewTopic(LEDGER_TOPIC, _PARTITIONS, replicas, configs)
    try:
        client.run(create_topic(client.cluster, topic))
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def last_decision(consumer: Consumer, name: str) -> Decision | None:
    """What the ledger says of a query; `consumer` reads what is committed."""
    key = name.encode()
    known = consumer.run(topic_metadata(consumer.cluster, [LEDGER_TOPIC]))[LEDGER_TOPIC]
    partition = TopicPartition(LEDGER_TOPIC, partition_for_key(key, len(known.partitions)))
    first, end = consumer.run(log_bounds(consumer.cluster, [partition]))[partition]
    look = _FIRST_LOOK
    while True:
        start = max(first, end - look)
        found = _last_value(consumer, partition, key, (start, end))
        if found is not None or start == first:
            return None if found is None else from_value(found)
        look *= _LOOK_FACTOR


def _last_value(
    consumer: Consumer, partition: TopicPartition, key: bytes, span: tuple[int, int]
) -> bytes | None:
    start, end = span
    if start >= end:
        return None
    clock = consumer.cluster.clock
    until = clock.monotonic() + consumer.cluster.settings.operation_timeout_ms / 1000
    consumer.core.assign({partition: start}, {partition: end})
    found: bytes | None = None
    while consumer.core.positions[partition].position < end:
        if clock.monotonic() > until:
            raise ExactlyOnceError(
                f"'{LEDGER_TOPIC}' cannot be read to its end in time: a broker is away, or"
                " another query's driver has died in a transaction there. Start the query again"
            )
        for _, records in consumer.poll(_POLL_SECONDS):
            for record in records:
                if record.key == key and record.offset < end:
                    found = record.value
    return found
