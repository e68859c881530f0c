"""One site feeds three applications that know nothing of it, nor of one another.

Needs a broker (`tidelog up`), `pip install confluent-kafka`, and a topic:

    $ tidelog topic create activity -p 3
    activity created: 3 partitions

The applications, each in a terminal of its own:

    $ python -m examples.site_and_applications application warehouse
    warehouse: is up
    warehouse: stored 1 (ann viewed /maps)
    warehouse: stored 2 (ben viewed /books)
    $ python -m examples.site_and_applications application recommendations
    recommendations: is up
    recommendations: ann may like more of /maps (event 1)
    $ python -m examples.site_and_applications application security
    security: is up
    security: dan failed to log in (event 5)

and the site:

    $ python -m examples.site_and_applications site --events 50 --per-second 10
    sent 1: ann viewed /maps
    sent 2: ben viewed /books

Start a fourth one while the site runs; it begins with the first event that the topic still has:

    $ python -m examples.site_and_applications application sales
    sales: is up
    sales: ann bought /maps (event 4)

Stop any of them, with Ctrl-C, kill or SIGSTOP: the site and the others do not notice, and when it
is started again it goes on where it was. One that was killed does its last second's work again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from itertools import cycle, islice

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

TOPIC = "activity"

# What visitors do, over and over again.
VISITS = [
    {"visitor": "ann", "action": "viewed", "page": "/maps"},
    {"visitor": "ben", "action": "viewed", "page": "/books"},
    {"visitor": "cleo", "action": "viewed", "page": "/pens"},
    {"visitor": "ann", "action": "bought", "page": "/maps"},
    {"visitor": "dan", "action": "failed-login", "page": "/account"},
]

# Which events an application acts upon ("" for all), and what it then does: here, says.
APPLICATIONS = {
    "warehouse": ("", "stored {number} ({visitor} {action} {page})"),
    "recommendations": ("viewed", "{visitor} may like more of {page} (event {number})"),
    "security": ("failed-login", "{visitor} failed to log in (event {number})"),
    "sales": ("bought", "{visitor} bought {page} (event {number})"),
}


def run_site(servers: str, events: int, per_second: float) -> None:
    """The site knows the topic. It does not know who reads it, nor whether anybody does."""
    # Idempotence (which implies acks=all): sent again after a fault, yet stored once, in order.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        event = json.loads(message.value() or b"")
        print("sent {number}: {visitor} {action} {page}".format(**event), flush=True)

    for number, visit in enumerate(islice(cycle(VISITS), events), 1):
        # The same key means the same partition, so each visitor's events keep their order.
        value = json.dumps({"number": number, **visit})
        producer.produce(TOPIC, value, visit["visitor"], on_delivery=delivered)
        producer.poll(0)  # runs `delivered` for what was acknowledged meanwhile
        time.sleep(1 / per_second)
    producer.flush()


def run_application(servers: str, name: str) -> None:
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            # Each application is a group, with a place of its own in the topic. Start one twice,
            # and the two share its work.
            "group.id": name,
            # One that is new begins with the oldest event.
            "auto.offset.reset": "earliest",
            # Commits every second, in the background, what we have *stored* as done. By default
            # the client stores an event as soon as it hands it out, and one that is killed while
            # it works on that event would lose it.
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 1_000,
            "enable.auto.offset.store": False,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )

    consumer.subscribe([TOPIC], on_assign=lambda *_: print(f"{name}: is up", flush=True))
    action, sentence = APPLICATIONS[name]
    try:
        while not stopping.is_set():
            message = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            event = json.loads(message.value() or b"")
            if action in ("", event["action"]):
                print(f"{name}: {sentence.format(**event)}", flush=True)
            consumer.store_offsets(message)
    finally:
        # Commits what is stored, and leaves the group at once.
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.site_and_applications")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    roles = parser.add_subparsers(dest="role", required=True)
    site = roles.add_parser("site")
    site.add_argument("--events", type=int, default=50, metavar="N")
    site.add_argument("--per-second", type=float, default=10.0, metavar="N")
    roles.add_parser("application").add_argument("name", choices=APPLICATIONS)
    arguments = parser.parse_args()
    if arguments.role == "site":
        run_site(arguments.bootstrap_servers, arguments.events, arguments.per_second)
    else:
        run_application(arguments.bootstrap_servers, arguments.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
