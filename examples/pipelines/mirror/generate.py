"""Records of every shape: without key, value or time, with headers twice, with no value in them.

A mirror reads no values, so what is malformed is as good as the rest. Records name their partition,
which is not where their key would put them. Some are late; some are sent again, equal to the byte.
"""

from __future__ import annotations

import random

from examples.pipelines.events import as_json, event_time, in_parts, iso, with_faults
from tidelog.client.batching import ProducerRecord
from tidelog.model import NO_TIMESTAMP

TOPIC = "readings"
PARTITIONS = 3
NO_TIME_SHARE = 0.005
HEADERS = ("trace", "trace", "unit", "größe", "")


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    chance = random.Random(seed)

    def reading(number: int) -> ProducerRecord:
        at_ms = event_time(chance, number)
        meter = f"meter-{chance.randrange(1000)}"
        value = as_json({"meter": meter, "watts": chance.randrange(5_000), "at": iso(at_ms)})
        return ProducerRecord(
            TOPIC,
            chance.choice((value, value, value, chance.randbytes(40), b"")),
            chance.choice((meter.encode(), meter.encode(), b"\xff\x00", b"", None)),
            partition=min(chance.randrange(PARTITIONS), chance.randrange(PARTITIONS)),
            headers=[
                (name, chance.choice((b"", None, chance.randbytes(8))))
                for name in chance.sample(HEADERS, chance.randrange(len(HEADERS)))
            ],
            timestamp_ms=NO_TIMESTAMP if chance.random() < NO_TIME_SHARE else at_ms,
        )

    readings = (reading(number) for number in range(count))
    return in_parts(list(with_faults(readings, chance, damage)), [])


def damage(chance: random.Random, value: bytes) -> bytes | None:
    """Cut off, or nothing at all."""
    return chance.choice((value[: len(value) // 2], None))
