"""Loads by librdkafka, through confluent-kafka: produce, consume, and one record at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.measure import Stopwatch, percentile


def produce(
    bootstrap_servers: str,
    pid: int,
    topic: str,
    records: int,
    record_bytes: int,
    partitions: int,
    client: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Records of one size, acks=all, batches up to 1 MB, as fast as the client goes."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "batch.size": 1_000_000,
            "batch.num.messages": 1_000_000,
            "linger.ms": 5,
            **(client or {}),
        }
    )
    for partition in range(partitions):
        producer.produce(topic, b"first", partition=partition)
    assert producer.flush(30) == 0, "the first records were not acknowledged"

    value = os.urandom(record_bytes)
    stopwatch = Stopwatch(pid)
    queued, stretch = 0, 1_000
    while queued < records:
        partition = queued // stretch % partitions
        try:
            for _ in range(stretch):
                producer.produce(topic, value, partition=partition)
                queued += 1
        except BufferError:
            producer.poll(0.001)
    left = producer.flush(120)
    result = stopwatch.result(records=queued, bytes=queued * record_bytes)
    assert left == 0, f"{left} records were not acknowledged"
    return {**result, "stored": queued + partitions}


def consume(
    bootstrap_servers: str,
    pid: int,
    topic: str,
    records: int,
    record_bytes: int,
    partitions: int,
    client: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """`records` records of a topic from its beginning, all partitions assigned by hand."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            **(client or {}),
        }
    )
    consumer.list_topics(topic, timeout=30)
    stopwatch = Stopwatch(pid)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    seen = 0
    while seen < records:
        messages = consumer.consume(10_000, timeout=30)
        assert messages, f"nothing for 30 s after {seen} of {records} records"
        seen += len(messages)
    result = stopwatch.result(records=seen, bytes=seen * record_bytes)
    assert messages[-1].error() is None, messages[-1].error()
    consumer.close()
    return result


def synchronous(
    bootstrap_servers: str, pid: int, topic: str, records: int, record_bytes: int, acks: str
) -> dict[str, float]:
    """One record at a time, each acknowledged before the next; the first tenth is not counted."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": acks, "linger.ms": 0})
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        errors.append(error)

    value, took_ms = os.urandom(record_bytes), []
    unmeasured = records // 10
    for number in range(records + unmeasured):
        if number == unmeasured:
            stopwatch = Stopwatch(pid)
        errors.clear()
        start = time.perf_counter()
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        while not errors:
            producer.poll(1)
        took_ms.append((time.perf_counter() - start) * 1e3)
        assert errors[0] is None, errors[0]
    result = stopwatch.result(records=records, bytes=records * record_bytes)
    counted = took_ms[unmeasured:]
    return {
        **result,
        "stored": records + unmeasured,
        "p50_ms": percentile(counted, 0.50),
        "p99_ms": percentile(counted, 0.99),
    }
