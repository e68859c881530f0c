"""Lines of the logs of three services: some shipped late or twice, some that are no lines."""

from __future__ import annotations

import random
from collections import Counter

from examples.pipelines.events import event_time, in_parts, iso, with_faults
from tidelog.client.batching import ProducerRecord

SERVICES = ("web", "api", "database")
TOPICS = tuple(f"logs.{service}" for service in SERVICES)
LEVELS, WEIGHTS = ("DEBUG", "INFO", "WARN", "ERROR"), (20, 70, 8, 2)
HOSTS = 5


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    chance = random.Random(seed)
    numbers: Counter[str] = Counter()

    def line(number: int) -> ProducerRecord:
        service = chance.choices(SERVICES, (6, 3, 1))[0]
        host = f"{service}-{chance.randrange(HOSTS)}"
        numbers[host] += 1
        at_ms = event_time(chance, number)
        level = chance.choices(LEVELS, WEIGHTS)[0]
        text = f"{iso(at_ms)} {host} #{numbers[host]} {level} took {chance.randrange(900)} ms"
        return ProducerRecord(f"logs.{service}", text.encode(), host.encode(), timestamp_ms=at_ms)

    lines = (line(number) for number in range(count))
    return in_parts(list(with_faults(lines, chance, damage)), [])


def damage(chance: random.Random, value: bytes) -> bytes | None:
    """Cut off, a line of a stack trace, not UTF-8, or nothing at all."""
    trace = b"    at com.example.Shop.buy(Shop.java:%d)" % chance.randrange(1, 400)
    return chance.choice((value[: len(value) // 2], trace, b"\xc3\x28" + value, None))
