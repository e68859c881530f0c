"""Single sends against batches, measured: `python -m examples.batching [--records N]`.

Three ways to send the same 100-byte records with acks=all to a broker in a process of its own: one
at a time, each acknowledged before the next; small batches; large batches. Uses confluent-kafka
where it is installed, else Tidelog's own client. The broker's CPU time stands beside the rate,
because that is what a record in a batch of its own costs others.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_producer import Producer as OwnProducer
from tidelog.client.settings import ProducerSettings
from tidelog.testing import Broker

TOPIC = "measured"
VALUE = b"x" * 100


@dataclass(slots=True)
class Way:
    """One way to send, and how many records it is measured with."""

    name: str
    batch_bytes: int
    linger_ms: int
    synchronous: bool
    records: int


def ways(records: int) -> list[Way]:
    return [
        Way("one at a time, each awaited", 1_000_000, 0, True, max(1, records // 100)),
        Way("small batches (up to 4 KB)", 4_096, 5, False, records),
        Way("large batches (up to 1 MB)", 1_000_000, 5, False, records),
    ]


def send_with_confluent(servers: str, way: Way) -> Callable[[], float]:
    from confluent_kafka import Producer  # type: ignore[import-not-found,unused-ignore]

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "batch.size": way.batch_bytes,
            "linger.ms": way.linger_ms,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    failed = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    def send_all() -> float:
        before = time.perf_counter()
        for number in range(way.records):
            producer.produce(TOPIC, VALUE, on_delivery=on_delivery)
            if way.synchronous:
                producer.flush()
            elif number % 1000 == 0:
                producer.poll(0)
        producer.flush()
        if failed:
            raise RuntimeError(f"{failed} records were not delivered")
        return time.perf_counter() - before

    producer.list_topics(TOPIC)
    return send_all


def send_with_own_client(servers: str, way: Way) -> Callable[[], float]:
    settings = ProducerSettings(batch_bytes=way.batch_bytes, linger_ms=way.linger_ms)

    def send_all() -> float:
        with OwnProducer(servers, settings) as producer:
            before = time.perf_counter()
            last = None
            for _ in range(way.records):
                last = producer.send(ProducerRecord(TOPIC, VALUE))
                if way.synchronous:
                    producer.flush()
                    last.result()
            producer.flush()
            if last is not None:
                last.result()
            return time.perf_counter() - before

    return send_all


def choose_client(own: bool) -> tuple[str, Callable[[str, Way], Callable[[], float]]]:
    try:
        if not own:
            import confluent_kafka

            return f"confluent-kafka {confluent_kafka.__version__}", send_with_confluent
    except ImportError:
        pass
    return "tidelog's own client", send_with_own_client


def serve(pipe: Connection) -> None:
    """The broker's process: says where it is, and its CPU seconds whenever asked."""
    # The other end closes, or Ctrl-C reaches both: either way the broker stops in order.
    with Broker() as broker, suppress(EOFError, KeyboardInterrupt):
        pipe.send(broker.bootstrap_servers)
        while pipe.recv():
            usage = resource.getrusage(resource.RUSAGE_SELF)
            pipe.send(usage.ru_utime + usage.ru_stime)


def measure(pipe: Connection, records: int, own: bool) -> None:
    servers = pipe.recv()
    name, prepare = choose_client(own)
    print(f"100-byte records, acks=all, {name}")
    print(f"{'':<28} {'records':>9} {'records/s':>10} {'µs each':>8} {'broker µs':>10}")

    def broker_seconds() -> float:
        pipe.send(True)
        seconds: float = pipe.recv()
        return seconds

    for way in ways(records):
        prepare(servers, Way(way.name, way.batch_bytes, way.linger_ms, way.synchronous, 100))()
        send_all = prepare(servers, way)
        before = broker_seconds()
        seconds = send_all()
        spent = broker_seconds() - before
        print(
            f"{way.name:<28} {way.records:>9,} {way.records / seconds:>10,.0f}"
            f" {seconds / way.records * 1e6:>8.1f} {spent / way.records * 1e6:>10.1f}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.batching", description=__doc__)
    parser.add_argument("--records", type=int, default=500_000, metavar="N")
    parser.add_argument("--own-client", action="store_true", help="even with confluent-kafka")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    broker = context.Process(target=serve, args=(theirs,))
    broker.start()
    # Closed here, so that a broker which dies ends the wait for it.
    theirs.close()
    try:
        measure(ours, arguments.records, arguments.own_client)
    finally:
        ours.close()
        broker.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
