"""A work queue: tasks are dealt out to workers that compete, and none is lost when one dies.

Needs a broker (`tidelog up`) and `pip install confluent-kafka`. A topic with six partitions keeps
up to six workers busy; more of them stand by.

    $ tidelog topic create tasks -p 6
    tasks created: 6 partitions

Workers, as many as you like, each in a terminal of its own:

    $ python -m examples.work_queue work anna
    anna: takes tasks from partitions 0 1 2 3 4 5
    anna: takes tasks from partitions 0 1 2
    anna: started task-1
    anna: done task-1
    anna: started task-3
    $ python -m examples.work_queue work bob
    bob: takes tasks from partitions 3 4 5
    bob: started task-4
    bob: done task-4

and work for them:

    $ python -m examples.work_queue send 6 --seconds 2
    sent 6 tasks

Kill one with `kill -9` in the midst of a task: six seconds later another has its partitions and
begins the task anew. So a task may be done twice, where a worker died before it could say that it
was done; make tasks such that this does no harm. A worker that is stopped (Ctrl-C, SIGTERM)
finishes its task first.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TOPIC = "tasks"


def send(servers: str, count: int, seconds: float, label: str) -> None:
    # Idempotence (which implies acks=all): sent again after a fault, yet stored once.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise KafkaException(error)

    # The client would put tasks that are sent together into one partition, which makes large
    # batches, but then one worker has them all. Deal them out in turn instead.
    partitions = len(producer.list_topics(TOPIC).topics[TOPIC].partitions)
    for number in range(count):
        task = {"name": f"{label}-{number + 1}", "seconds": seconds}
        producer.produce(
            TOPIC, json.dumps(task), partition=number % partitions, on_delivery=delivered
        )
    producer.flush()
    print(f"sent {count} tasks")


def work(servers: str, worker: str) -> None:
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            # All workers have the same group: that is what makes them compete.
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            # A task counts as done when we say so, not when we took it.
            "enable.auto.commit": False,
            # A worker that is silent for so long is dead, and others get its tasks. Brokers allow
            # 6 seconds at least; heartbeats are sent by a thread, also during a long task.
            "session.timeout.ms": 6_000,
            # With the answer to a heartbeat the others learn that there is something to take over.
            "heartbeat.interval.ms": 1_000,
            # A worker that has not come for its next task for so long hangs: give the time that
            # the longest task may take.
            "max.poll.interval.ms": 300_000,
            # When workers come and go, the others keep their partitions and go on.
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )

    owned: set[int] = set()

    def say() -> None:
        numbers = " ".join(map(str, sorted(owned)))
        print(f"{worker}: takes tasks from partitions {numbers}", flush=True)

    # With cooperative-sticky these are told the difference: what is new, what is given away.
    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        owned.update(each.partition for each in partitions)
        say()

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        owned.difference_update(each.partition for each in partitions)
        say()

    consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=revoked)
    try:
        while not stopping.is_set():
            message = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            task = json.loads(message.value() or b"")
            print(f"{worker}: started {task['name']}", flush=True)
            time.sleep(task["seconds"])  # here would be the work
            print(f"{worker}: done {task['name']}", flush=True)
            try:
                # Waits for the broker's answer. Whoever gets the partition next begins behind it.
                consumer.commit(message=message, asynchronous=False)
            except KafkaException as refused:
                # We were taken for dead meanwhile; the task will be done again by another.
                print(f"{worker}: too late for {task['name']}: {refused}", flush=True)
    finally:
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.work_queue")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    roles = parser.add_subparsers(dest="role", required=True)
    sender = roles.add_parser("send", help="put tasks into the queue")
    sender.add_argument("count", type=int)
    sender.add_argument("--seconds", type=float, default=1.0, help="that each task takes")
    sender.add_argument("--label", default="task", help="what the tasks are called")
    roles.add_parser("work", help="do tasks until stopped").add_argument("worker")
    arguments = parser.parse_args()
    if arguments.role == "send":
        send(arguments.bootstrap_servers, arguments.count, arguments.seconds, arguments.label)
    else:
        work(arguments.bootstrap_servers, arguments.worker)
    return 0


if __name__ == "__main__":
    sys.exit(main())
