"""The site of the demo: clicks as JSON, some of them from a health check, some malformed.

    python -m examples.demo.site LEDGER [--rate 2000] [--seed 1]

It sends until SIGTERM, then waits for every acknowledgement and writes what it knows to the file
LEDGER: how many records were acknowledged, and how many of them were good, filtered and bad.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "clicks"
PAGES = ("/", "/docs", "/pricing", "/blog", "/login", "/download", "/about", "/jobs")
WEIGHTS = (30, 22, 14, 10, 9, 8, 5, 2)
BAD = (b"not json", b'{"id": ', b'{"id": "x", "page": "/", "at": "now"}', b"\xff\xfe", b"")
TICK_SECONDS = 0.05


class Site:
    """Makes clicks and remembers what became of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._next_id = 0
        self.acknowledged: Counter[str] = Counter()
        self.failed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": os.environ["TIDELOG_BOOTSTRAP_SERVERS"],
                # A broker that is killed and comes back costs waiting, no click and no repeat.
                "enable.idempotence": True,
                "delivery.timeout.ms": 300_000,
                "linger.ms": 20,
                "log_level": 0,
            }
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            kind, key, value = self._click()
            self._produce(kind, key, value)
        self._producer.poll(0)

    def _click(self) -> tuple[str, bytes, bytes]:
        user = f"user-{self._random.randrange(500)}"
        chance = self._random.random()
        if chance < 0.02:
            return "bad", user.encode(), self._random.choice(BAD)
        page = "/health" if chance < 0.07 else self._random.choices(PAGES, WEIGHTS)[0]
        click = {
            "id": self._next_id,
            "user": user,
            "page": page,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        self._next_id += 1
        return (
            "filtered" if page == "/health" else "good",
            user.encode(),
            json.dumps(click).encode(),
        )

    def _produce(self, kind: str, key: bytes, value: bytes) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged[kind] += 1
            else:
                self.failed += 1

        while True:
            try:
                self._producer.produce(TOPIC, value, key, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def finish(self, ledger: Path) -> None:
        self._producer.flush(300)
        known = {**self.acknowledged, "total": self.acknowledged.total(), "failed": self.failed}
        ledger.write_text(json.dumps(known))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo.site")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--rate", type=int, default=2_000, help="clicks per second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    site, begun, sent = Site(given.seed), time.monotonic(), 0
    while not stopped:
        due = int((time.monotonic() - begun) * given.rate)
        site.send(due - sent)
        sent = due
        time.sleep(TICK_SECONDS)
    site.finish(given.ledger)
    return 0


if __name__ == "__main__":
    sys.exit(main())
