"""A consumer as a process of its own: prints each value, then commits it.

python group_worker.py SERVERS GROUP TOPIC SESSION_TIMEOUT_MS
python group_worker.py SERVERS GROUP TOPIC consumer      a consumer group, timed by the broker
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException


def main(servers: str, group: str, topic: str, session_timeout_ms: str) -> None:
    protocol: dict[str, str | int] = {"group.protocol": "consumer"}
    if session_timeout_ms != "consumer":
        protocol = {
            "session.timeout.ms": int(session_timeout_ms),
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "range",
        }
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **protocol,
        }
    )
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        value = message.value()
        assert value is not None
        sys.stdout.write(value.decode() + "\n")
        sys.stdout.flush()
        try:
            consumer.commit(message, asynchronous=False)
        except KafkaException as refused:
            sys.stdout.write(f"refused {refused.args[0].name()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
