"""Publish and subscribe: every subscriber gets every message.

Needs a broker (`tidelog up`), `pip install confluent-kafka`, and a topic:

    $ tidelog topic create forecasts -p 1
    forecasts created: 1 partition

Subscribers, each in a terminal of its own:

    $ python -m examples.publish_subscribe subscribe anna
    anna: subscribed
    anna: got 'rain at noon'
    anna: got 'sun at four'

and somebody who publishes, and knows none of them:

    $ python -m examples.publish_subscribe publish 'rain at noon' 'sun at four'
    published 2 messages

A subscriber gets what is published from the moment when it says "subscribed". Because messages stay
in the log, one who comes later may ask for the earlier ones too:

    $ python -m examples.publish_subscribe subscribe carol --from-start
    carol: subscribed
    carol: got 'rain at noon'
    carol: got 'sun at four'

Nothing is remembered of a subscriber that has gone. Where one must go on where it stopped, give it
a group of its own that stays the same: see examples/site_and_applications.py.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TOPIC = "forecasts"


def publish(servers: str, texts: list[str]) -> None:
    # Idempotence (which implies acks=all): sent again after a fault, yet stored once, in order.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise KafkaException(error)

    for text in texts:
        producer.produce(TOPIC, text.encode(), on_delivery=delivered)
    producer.flush()
    print(f"published {len(texts)} messages")


def subscribe(servers: str, name: str, from_start: bool) -> None:
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            # A group of one's own: within a group messages are shared out, between groups they are
            # not. A new name at every start, so that nobody else is in it.
            "group.id": f"{name}-{uuid.uuid4()}",
            # Nothing to come back to, so nothing to commit.
            "enable.auto.commit": False,
        }
    )

    next_offsets: dict[int, int] = {}

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            # Bounds as they are now: "auto.offset.reset": "latest" would look for the end a moment
            # later, after we said that we are there. One who was cut off for long is assigned
            # anew, and goes on where it was.
            start, end = consumer.get_watermark_offsets(each)
            first = start if from_start else end
            each.offset = next_offsets.setdefault(each.partition, first)
        consumer.assign(partitions)
        print(f"{name}: subscribed", flush=True)

    consumer.subscribe([TOPIC], on_assign=assigned)
    try:
        while not stopping.is_set():
            message = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            next_offsets[message.partition() or 0] = (message.offset() or 0) + 1
            print(f"{name}: got {(message.value() or b'').decode()!r}", flush=True)
    finally:
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.publish_subscribe")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    roles = parser.add_subparsers(dest="role", required=True)
    roles.add_parser("publish").add_argument("texts", nargs="+", metavar="TEXT")
    subscriber = roles.add_parser("subscribe")
    subscriber.add_argument("name")
    subscriber.add_argument("--from-start", action="store_true", help="with what is there already")
    arguments = parser.parse_args()
    if arguments.role == "publish":
        publish(arguments.bootstrap_servers, arguments.texts)
    else:
        subscribe(arguments.bootstrap_servers, arguments.name, arguments.from_start)
    return 0


if __name__ == "__main__":
    sys.exit(main())
