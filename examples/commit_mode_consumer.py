"""A consumer that commits in one of five ways; `examples/commit_modes.py` starts and kills it.

    python -m examples.commit_mode_consumer MODE --topic TOPIC --output FILE

Each message is a number. Working on it takes a moment, and then its line is in the file, whatever
becomes of this process: a write outlives SIGKILL. The consumer ends where the topic ends.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

BATCH_MAX = 500
AUTO_COMMIT_INTERVAL_MS = 100
LINE_BYTES = 9

Work = Callable[[Message], None]


def batches(consumer: Consumer) -> Iterator[list[Message]]:
    """Up to BATCH_MAX messages at a time, until every partition was read to its end."""
    at_end: set[int | None] = set()
    while not at_end or len(at_end) < len(consumer.assignment()):
        batch = []
        for message in consumer.consume(BATCH_MAX, 0.1):
            error = message.error()
            if error is None:
                batch.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise KafkaException(error)
        if batch:
            yield batch


def auto(consumer: Consumer, work: Work) -> None:
    for batch in batches(consumer):
        for message in batch:
            work(message)
            consumer.store_offsets(message)  # done: the next commit in the background has it


def synchronous(consumer: Consumer, work: Work) -> None:
    for batch in batches(consumer):
        for message in batch:
            work(message)
        consumer.commit(asynchronous=False)  # returns when the broker has it on its disk


def asynchronous(consumer: Consumer, work: Work) -> None:
    for batch in batches(consumer):
        for message in batch:
            work(message)
            # Said one by one, because the commit is put together a moment later by another thread:
            # by then the next batch is handed out, and would be in it.
            consumer.store_offsets(message)
        consumer.commit()  # on its way; the next batch is begun at once
    consumer.commit(asynchronous=False)  # the last one has no successor that would mend its failure


def per_record(consumer: Consumer, work: Work) -> None:
    for batch in batches(consumer):
        for message in batch:
            work(message)
            consumer.commit(message=message, asynchronous=False)


def auto_thread(consumer: Consumer, work: Work) -> None:
    """The trap: what was handed out counts as done, and it waits in a queue."""
    waiting: queue.Queue[Message | None] = queue.Queue(2 * BATCH_MAX)

    def work_off() -> None:
        while (message := waiting.get()) is not None:
            work(message)

    worker = threading.Thread(target=work_off)
    worker.start()
    for batch in batches(consumer):
        for message in batch:
            waiting.put(message)
    waiting.put(None)
    worker.join()


MODES: dict[str, Callable[[Consumer, Work], None]] = {
    "auto": auto,
    "synchronous": synchronous,
    "asynchronous": asynchronous,
    "per-record": per_record,
    "auto-thread": auto_thread,
}


def settings(mode: str, servers: str, topic: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": servers,
        "group.id": topic,
        # One who comes under the same name takes the place of the one who died, at once; without
        # it the group would wait out the session of the dead.
        "group.instance.id": "the-one",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "enable.auto.commit": mode.startswith("auto"),
        # Five seconds by default, longer than this consumer is let live.
        "auto.commit.interval.ms": AUTO_COMMIT_INTERVAL_MS,
        # By default a message is stored, to be committed, as soon as it is handed out.
        "enable.auto.offset.store": mode not in ("auto", "asynchronous"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.commit_mode_consumer")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True, metavar="FILE")
    parser.add_argument("--work-us", type=int, default=200, metavar="N")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    arguments = parser.parse_args()
    output = os.open(arguments.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def work(message: Message) -> None:
        time.sleep(arguments.work_us / 1e6)
        os.write(output, (message.value() or b"").rjust(LINE_BYTES - 1) + b"\n")

    consumer = Consumer(settings(arguments.mode, arguments.bootstrap_servers, arguments.topic))
    consumer.subscribe([arguments.topic])
    try:
        MODES[arguments.mode](consumer, work)
    finally:
        consumer.close()
        os.close(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
