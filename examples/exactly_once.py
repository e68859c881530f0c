"""Exactly once: consume, transform, produce; whoever dies, every order is billed, and none twice.

Needs a broker (`tidelog up`), `pip install confluent-kafka`, and two topics:

    $ tidelog topic create orders-in -p 4
    orders-in created: 4 partitions
    $ tidelog topic create invoices -p 4
    invoices created: 4 partitions

Somebody orders:

    $ python -m examples.exactly_once order 2000
    sent 2000 orders

Programs that bill what was ordered, each under a name of its own, in a terminal of its own:

    $ python -m examples.exactly_once bill billing-1
    billing-1: ready
    billing-1: billed 100 orders
    billing-1: billed 200 orders
    $ python -m examples.exactly_once bill billing-2
    billing-2: ready
    billing-2: billed 100 orders

Kill one with `kill -9` as often as you like, and start it again under the same name. Then look:

    $ python -m examples.exactly_once check 2000
    2000 orders, 2000 invoices: none is missing, none is there twice

Invoices and the place up to which orders were read are written in one transaction, so both count or
neither does. What is done outside of Kafka, an e-mail for each invoice, say, is not part of it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

ORDERS = "orders-in"
INVOICES = "invoices"
ORDERS_AT_ONCE = 100
SECONDS = 30.0


def order(servers: str, count: int) -> None:
    # Idempotence (which implies acks=all): sent again after a fault, yet stored once.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise KafkaException(error)

    for number in range(count):
        value = json.dumps({"order": number, "cents": 100 + number % 900})
        producer.produce(ORDERS, value, key=f"customer-{number % 50}", on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    print(f"sent {count} orders")


class Billing:
    """Reads orders and writes invoices, in transactions of up to `ORDERS_AT_ONCE`."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self.billed = 0
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                # The same after every start, and nobody else's: who starts under it ends what the
                # one before left open, and that one, if it is still there, can write no more.
                "transactional.id": name,
                # Of a program that died and does not come back, readers wait for so long.
                "transaction.timeout.ms": 10_000,
            }
        )
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                # Offsets are committed with the transaction, and not otherwise.
                "enable.auto.commit": False,
                # Orders may come out of a transaction themselves: read what is committed only.
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
            }
        )

    def run(self, stopping: threading.Event) -> None:
        until_done(lambda: self.producer.init_transactions(SECONDS))
        self.consumer.subscribe([ORDERS])
        print(f"{self.name}: ready", flush=True)
        while not stopping.is_set():
            # A call of the client that does not return, whatever its time-out is, ends the program.
            faulthandler.dump_traceback_later(4 * SECONDS, exit=True)
            orders = self.consumer.consume(ORDERS_AT_ONCE, 0.5)
            for each in orders:
                if (error := each.error()) is not None:
                    raise KafkaException(error)
            if orders and self.bill(orders):
                self.billed += len(orders)
                print(f"{self.name}: billed {self.billed} orders", flush=True)
        faulthandler.cancel_dump_traceback_later()
        self.consumer.close()

    def bill(self, orders: list[Message]) -> bool:
        """One transaction; False where it was aborted, and what it read is to be read again."""
        self.producer.begin_transaction()
        try:
            for each in orders:
                self.producer.produce(INVOICES, invoice(each.value() or b""), key=each.key())
            self.producer.send_offsets_to_transaction(
                next_offsets(orders),
                # With this a program that was taken for dead, and whose orders are with another by
                # now, cannot commit: it is told so, and aborts.
                self.consumer.consumer_group_metadata(),
                SECONDS,
            )
            # Sends what is left, and waits for all of it, before it commits.
            until_done(lambda: self.producer.commit_transaction(SECONDS))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                # Fenced: somebody else has started under our name. There is nothing to mend.
                raise
            print(f"{self.name}: aborts: {error.args[0].str()}", flush=True)
            until_done(lambda: self.producer.abort_transaction(SECONDS))
            self.go_back(orders)
            return False
        return True

    def go_back(self, orders: list[Message]) -> None:
        """Read again what was not billed, in the partitions that are still ours."""
        first: dict[int, int] = {}
        for each in orders:
            first.setdefault(each.partition() or 0, each.offset() or 0)
        for ours in self.consumer.assignment():
            if ours.partition in first:
                self.consumer.seek(TopicPartition(ORDERS, ours.partition, first[ours.partition]))


def invoice(value: bytes) -> str:
    ordered = json.loads(value)
    return json.dumps({"order": ordered["order"], "cents_with_tax": ordered["cents"] * 119 // 100})


def next_offsets(messages: list[Message]) -> list[TopicPartition]:
    """Where to read on behind these."""
    ends = {(each.topic() or "", each.partition() or 0): each.offset() or 0 for each in messages}
    return [TopicPartition(topic, number, last + 1) for (topic, number), last in ends.items()]


def until_done(call: Callable[[], object]) -> None:
    """Ask again where the client says that this is safe: it ends the same transaction, no other."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def check(servers: str, count: int) -> int:
    """Count the invoices once there are as many as orders, or none has come for a while."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "auditor",
            "enable.auto.commit": False,
            # Without this, invoices of aborted transactions would be counted as well.
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(INVOICES).topics[INVOICES].partitions
    consumer.assign([TopicPartition(INVOICES, number, 0) for number in partitions])
    found: list[int] = []
    while messages := consumer.consume(1_000, 3.0 if len(set(found)) >= count else SECONDS):
        for each in messages:
            if (error := each.error()) is not None:
                raise KafkaException(error)
            found.append(json.loads(each.value() or b"")["order"])
    consumer.close()
    missing, twice = count - len(set(found)), len(found) - len(set(found))
    verdict = f"{missing or 'none'} {'are' if missing > 1 else 'is'} missing"
    verdict += f", {twice or 'none'} {'are' if twice > 1 else 'is'} there twice"
    print(f"{count} orders, {len(found)} invoices: {verdict}")
    return 1 if missing or twice else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.exactly_once")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("TIDELOG_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    )
    roles = parser.add_subparsers(dest="role", required=True)
    roles.add_parser("order").add_argument("count", type=int)
    roles.add_parser("bill").add_argument("name")
    roles.add_parser("check").add_argument("count", type=int)
    arguments = parser.parse_args()
    if arguments.role == "order":
        order(arguments.bootstrap_servers, arguments.count)
        return 0
    if arguments.role == "check":
        return check(arguments.bootstrap_servers, arguments.count)
    stopping = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stopping.set())
    Billing(arguments.bootstrap_servers, arguments.name).run(stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
