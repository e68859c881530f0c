"""A producer: python -m tests.e2e.group_schedules.producer SERVERS PARTITIONS RATE HISTORY [I OF]

Sends unique integers to all partitions in turn, idempotent, until SIGTERM; then waits for answers.
Of several producers, the I-th takes every OF-th number.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.e2e.group_schedules.task import TOPIC, Stop, partition_name
from tests.history.events import Acknowledged, AcknowledgedSomewhere, HistoryWriter, Sent

TICK_SECONDS = 0.02
FLUSH_SECONDS_MAX = 60


def main(
    servers: str, partitions: str, per_second: str, history: str, index: str = "0", of: str = "1"
) -> None:
    name = Path(history).stem
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
            assert partition is not None and value is not None
            heard = (time.monotonic_ns(), name, partition_name(partition))
            if offset is None:
                writer.write(AcknowledgedSomewhere(*heard, int(value)))
            else:
                writer.write(Acknowledged(*heard, offset, int(value)))

    count, value = 0, int(index)
    per_tick = max(1, round(int(per_second) * TICK_SECONDS))
    while not stop.is_set():
        for _ in range(per_tick):
            count += 1
            value += int(of)
            partition = count % int(partitions)
            writer.write(Sent(time.monotonic_ns(), name, partition_name(partition), value))
            while True:
                try:
                    producer.produce(TOPIC, str(value), partition=partition, on_delivery=delivered)
                    break
                except BufferError:  # it holds all that it may until brokers take some
                    producer.poll(TICK_SECONDS)
        producer.poll(0)
        stop.wait(TICK_SECONDS)
    left = producer.flush(FLUSH_SECONDS_MAX)
    writer.close()
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
