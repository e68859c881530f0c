"""Samples of hosts as CSV: some late, some sent twice, some malformed; and a heartbeat."""

from __future__ import annotations

import random

from examples.pipelines.events import event_time, in_parts, iso, quiet_times, with_faults
from tidelog.client.batching import ProducerRecord

TOPIC = "metrics"
METRICS = ("cpu", "memory", "requests")
HEARTBEAT = "heartbeat"
HOSTS = 20


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    """So many samples and their faults, and then heartbeats alone, which close the windows."""
    chance = random.Random(seed)
    samples = (
        sample(
            number,
            chance.choice((*METRICS, HEARTBEAT)),
            chance.randrange(10_000),
            f"host-{chance.randrange(HOSTS)}",
            event_time(chance, number),
        )
        for number in range(count)
    )
    sent = list(with_faults(samples, chance, damage))
    quiet = [
        sample(count + number, HEARTBEAT, 1, f"host-{number % HOSTS}", at)
        for number, at in enumerate(quiet_times(count))
    ]
    return in_parts(sent, quiet)


def sample(number: int, metric: str, value: int, host: str, at_ms: int) -> ProducerRecord:
    text = f"{number},{host},{metric},{value},{iso(at_ms)}"
    return ProducerRecord(TOPIC, text.encode(), host.encode(), timestamp_ms=at_ms)


def damage(chance: random.Random, value: bytes) -> bytes | None:
    """Without its time, a value that is no number, no CSV, not UTF-8, or nothing at all."""
    number, host, metric, _, at = value.split(b",")
    return chance.choice(
        (
            b",".join((number, host, metric, b"1")),
            b",".join((number, host, metric, b"n/a", at)),
            b"connection reset by peer",
            b"\xff" + value,
            None,
        )
    )
