"""The one producer: python -m tests.e2e.group_schedules.producer SERVERS PARTITIONS RATE HISTORY

Sends unique integers to all partitions in turn, idempotent, until SIGTERM; then waits for answers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.e2e.group_schedules.task import TOPIC, Stop, partition_name
from tests.history.events import Acknowledged, HistoryWriter, Sent

NAME = "producer"
TICK_SECONDS = 0.02
FLUSH_SECONDS_MAX = 60


def main(servers: str, partitions: str, per_second: str, history: str) -> None:
    writer = HistoryWriter(Path(history))
    stop = Stop()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and value is not None
            writer.write(
                Acknowledged(
                    time.monotonic_ns(), NAME, partition_name(partition), offset, int(value)
                )
            )

    value = 0
    per_tick = max(1, round(int(per_second) * TICK_SECONDS))
    while not stop.is_set():
        for _ in range(per_tick):
            value += 1
            partition = value % int(partitions)
            writer.write(Sent(time.monotonic_ns(), NAME, partition_name(partition), value))
            producer.produce(TOPIC, str(value), partition=partition, on_delivery=delivered)
        producer.poll(0)
        stop.wait(TICK_SECONDS)
    left = producer.flush(FLUSH_SECONDS_MAX)
    writer.close()
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
