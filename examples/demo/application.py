"""An application of the demo: a member of a group that reads the clicks and commits what it has.

    python -m examples.demo.application GROUP

It ends with SIGTERM; what it has read by then is committed.
"""

from __future__ import annotations

import os
import signal
import sys

from confluent_kafka import Consumer, KafkaException

TOPIC = "clicks"


def main() -> int:
    group = sys.argv[1]
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["TIDELOG_BOOTSTRAP_SERVERS"],
            "group.id": group,
            "client.id": f"{group}-{os.getpid()}",
            "auto.offset.reset": "earliest",
            # Committed after the work, below: a member that is killed costs repeats, no click.
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        while not stopped:
            messages = [each for each in consumer.consume(5_000, 0.5) if each.error() is None]
            if messages:
                commit(consumer)
    finally:
        consumer.close()
    return 0


def commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        # The broker is away, or the group is sharing anew; the next commit covers this one.
        print(f"not committed yet: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
