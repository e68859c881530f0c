"""One consumer, several worker threads, and the order of each partition kept through rebalances.

Needs a broker (`tidelog up`), `pip install confluent-kafka`, and a topic:

    $ tidelog topic create readings -p 6
    readings created: 6 partitions
    $ python -m examples.worker_threads send --per-second 200
    sent 1234 readings
    $ python -m examples.worker_threads consume anna --threads 4
    anna: has partitions 0 1 2 3 4 5
    anna: sensor-4 reading 1 (partition 2, offset 0, thread 0)

Both run until Ctrl-C. Start a second consumer, stop the first: each partition goes on where it was,
nothing is done twice, nothing out of order. (After `kill -9` the last second's work is done twice.)

The main thread polls and puts each message into the lane of its partition; one worker at a time is
in a lane, so what is done of a partition has no gaps, and is committed as one number.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TOPIC = "readings"
SENSORS = 20
LANE_MAX = 100
COMMIT_SECONDS = 1.0


def say(name: str, text: str) -> None:
    # In one piece with its line feed: several threads print.
    print(f"{name}: {text}\n", end="", flush=True)


def work(name: str, message: Message) -> None:
    time.sleep(random.uniform(0, 0.02))
    thread = threading.current_thread().name.rpartition("_")[2]
    place = f"partition {message.partition()}, offset {message.offset()}, thread {thread}"
    say(name, f"{(message.value() or b'').decode()} ({place})")


class Lane:
    """The messages of one partition, done one after the other by whichever thread is free."""

    def __init__(self, name: str, pool: ThreadPoolExecutor) -> None:
        self.name, self.pool = name, pool
        self.waiting: deque[Message] = deque()
        self.next_offset: int | None = None  # behind the last message that is done
        self.paused = False
        self.failure: Exception | None = None
        self.lock = threading.Lock()
        self.idle = threading.Event()
        self.idle.set()

    def add(self, message: Message) -> None:
        with self.lock:
            self.waiting.append(message)
            if self.idle.is_set() and self.failure is None:
                self.idle.clear()
                self.pool.submit(self.do_next)

    def do_next(self) -> None:
        with self.lock:
            if not self.waiting:
                self.idle.set()
                return
            message = self.waiting.popleft()
        try:
            work(self.name, message)
        except Exception as failure:
            self.failure = failure  # the main thread looks; nothing behind this message is done
            self.idle.set()
        else:
            self.next_offset = (message.offset() or 0) + 1
            self.pool.submit(self.do_next)  # at the end of the line: lanes take turns

    def drain(self) -> None:
        """Forget what was not begun, wait for what was: one message at most."""
        with self.lock:
            self.waiting.clear()
        self.idle.wait()


class ThreadedConsumer:
    def __init__(self, servers: str, name: str, pool: ThreadPoolExecutor) -> None:
        self.name, self.pool = name, pool
        self.lanes: dict[int, Lane] = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "threaded",
                "auto.offset.reset": "earliest",
                # The client knows what it handed out; only the lanes know what is done.
                "enable.auto.commit": False,
                # A dead consumer is replaced after 15 s (less, and one that stands still for a
                # moment is taken for dead); one that lives learns of a rebalance with its next
                # heartbeat.
                "session.timeout.ms": 15_000,
                "heartbeat.interval.ms": 1_000,
                # Polling never waits for the workers, but `revoked` does, for one message each.
                "max.poll.interval.ms": 60_000,
                # Partitions that stay with us are worked on during a rebalance.
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self.consumer.subscribe([TOPIC], on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.lanes.update({each.partition: Lane(self.name, self.pool) for each in partitions})
        say(self.name, f"has partitions {' '.join(map(str, sorted(self.lanes)))}")

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Until this returns the partitions are ours: finish, commit, then let go.

        It is called too when we were taken for dead and others have them; the commit is refused.
        """
        leaving = {each.partition: self.lanes.pop(each.partition) for each in partitions}
        for lane in leaving.values():
            lane.drain()
        self.consumer.resume([TopicPartition(TOPIC, n) for n, it in leaving.items() if it.paused])
        self.commit(leaving)
        say(self.name, f"has partitions {' '.join(map(str, sorted(self.lanes)))}")

    def commit(self, lanes: dict[int, Lane]) -> None:
        done = {number: lane.next_offset for number, lane in lanes.items() if lane.next_offset}
        offsets = [TopicPartition(TOPIC, number, offset) for number, offset in done.items()]
        try:
            if offsets:
                self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refused:
            say(self.name, f"not committed, may be done again: {refused}")

    def step(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            self.lanes[message.partition() or 0].add(message)
        for number, lane in self.lanes.items():
            if lane.failure is not None:
                raise lane.failure
            # No more is fetched for a lane that is full, until half of it is done.
            if not lane.paused and len(lane.waiting) >= LANE_MAX:
                self.consumer.pause([TopicPartition(TOPIC, number)])
                lane.paused = True
            elif lane.paused and len(lane.waiting) <= LANE_MAX // 2:
                self.consumer.resume([TopicPartition(TOPIC, number)])
                lane.paused = False


def consume(servers: str, name: str, threads: int, stopping: threading.Event) -> None:
    with ThreadPoolExecutor(threads) as pool:
        threaded = ThreadedConsumer(servers, name, pool)
        commit_at = time.monotonic() + COMMIT_SECONDS
        try:
            while not stopping.is_set():
                threaded.step()
                if time.monotonic() >= commit_at:
                    threaded.commit(threaded.lanes)
                    commit_at = time.monotonic() + COMMIT_SECONDS
        finally:
            threaded.consumer.close()  # gives all partitions back, by way of `revoked`


def send(servers: str, per_second: float, stopping: threading.Event) -> None:
    # Idempotence (which implies acks=all) keeps the order through retries; a key its partition.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise KafkaException(error)

    sent = 0
    while not stopping.is_set():
        sensor = f"sensor-{sent % SENSORS}"
        reading = f"{sensor} reading {sent // SENSORS + 1}"
        producer.produce(TOPIC, reading, sensor, on_delivery=delivered)
        sent += 1
        producer.poll(0)
        time.sleep(1 / per_second)
    producer.flush()
    print(f"sent {sent} readings")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.worker_threads")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    roles = parser.add_subparsers(dest="role", required=True)
    roles.add_parser("send").add_argument("--per-second", type=float, default=200.0, metavar="N")
    consumer = roles.add_parser("consume")
    consumer.add_argument("name")
    consumer.add_argument("--threads", type=int, default=4, metavar="N")
    arguments = parser.parse_args()
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    servers = arguments.bootstrap_servers
    if arguments.role == "send":
        send(servers, arguments.per_second, stopping)
    else:
        consume(servers, arguments.name, arguments.threads, stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
