"""Orders: some late, some sent twice, some malformed, some in a currency that nobody takes."""

from __future__ import annotations

import random

from examples.pipelines.events import as_json, event_time, in_parts, iso, with_faults
from tidelog.client.batching import ProducerRecord

TOPIC = "orders"
CURRENCIES, WEIGHTS = ("EUR", "USD", "GBP", "JPY", "ZZZ"), (50, 30, 10, 8, 2)
ORDERS_PER_CUSTOMER = 20


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    chance = random.Random(seed)
    customers = max(1, count // ORDERS_PER_CUSTOMER)

    def order(number: int) -> ProducerRecord:
        at_ms = event_time(chance, number)
        customer = f"customer-{chance.randrange(customers)}"
        value = {
            "id": f"o{number}",
            "customer": customer,
            "cents": chance.randrange(100, 100_000),
            "currency": chance.choices(CURRENCIES, WEIGHTS)[0],
            "at": iso(at_ms),
        }
        return ProducerRecord(TOPIC, as_json(value), customer.encode(), timestamp_ms=at_ms)

    orders = (order(number) for number in range(count))
    return in_parts(list(with_faults(orders, chance)), [])
