"""Hello world: one program sends a message, another receives it.

Needs a broker (`tidelog up`) and `pip install confluent-kafka`. In one terminal:

    $ python -m examples.hello_world receive
    waiting for messages in 'greetings'; Ctrl-C ends
    received 'Hello, World!' (partition 0, offset 0)

and in another:

    $ python -m examples.hello_world send
    sent 'Hello, World!' (partition 0, offset 0)

The order does not matter: a message stays in the log, whether anybody is there for it or not.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

TOPIC = "greetings"


def send(servers: str, text: str) -> None:
    # Idempotence (which implies acks=all) lets the client send again after a lost connection
    # without the message being stored twice.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def delivered(error: KafkaError | None, message: Message) -> None:
        # Only here is it known: `produce` merely puts the message into a buffer.
        if error is not None:
            raise KafkaException(error)
        print(f"sent {text!r} (partition {message.partition()}, offset {message.offset()})")

    producer.produce(TOPIC, text.encode(), on_delivery=delivered)
    producer.flush()


def receive(servers: str) -> None:
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            # The group's place in the topic is remembered under this name.
            "group.id": "hello-world",
            # Where a group begins that has no place yet: with the oldest message.
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    print(f"waiting for messages in {TOPIC!r}; Ctrl-C ends", flush=True)
    try:
        while not stopping.is_set():
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                text = (message.value() or b"").decode()
                place = f"partition {message.partition()}, offset {message.offset()}"
                print(f"received {text!r} ({place})", flush=True)
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                # A topic that is not there yet is made by the first message sent to it.
                raise KafkaException(error)
    finally:
        # Leaves the group at once and commits how far it came.
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.hello_world")
    parser.add_argument("role", choices=["send", "receive"])
    parser.add_argument("text", nargs="?", default="Hello, World!")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    arguments = parser.parse_args()
    if arguments.role == "send":
        send(arguments.bootstrap_servers, arguments.text)
    else:
        receive(arguments.bootstrap_servers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
