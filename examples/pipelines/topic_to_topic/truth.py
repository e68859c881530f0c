"""What the topics must hold, from what was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.events import ms
from examples.pipelines.truths import sort_out
from tidelog.client.batching import ProducerRecord

# Thousandths of a euro for one unit.
RATES = {"EUR": 1000, "USD": 920, "GBP": 1170, "JPY": 6}


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    found, bad = sort_out(records, read_order)
    priced: list[Mapping[str, Any]] = []
    rejected: list[Mapping[str, Any]] = []
    for order in {order["id"]: order for order in found}.values():
        currency = order["currency"]
        kept = {name: order[name] for name in ("id", "customer", "at")}
        if currency in RATES:
            value = {**kept, "euro_cents": order["cents"] * RATES[currency] // 1000}
            headers = {"paid-in": currency}
            value["currency"] = currency
            priced.append({"key": order["customer"], "value": value, "headers": headers})
        else:
            value = {**kept, "cents": order["cents"], "currency": currency}
            rejected.append({"key": order["id"], "value": value, "headers": {}})
    return {"priced": priced, "rejected": rejected, "orders.bad": bad}


def read_order(text: str) -> dict[str, Any]:
    order: dict[str, Any] = json.loads(text)
    ms(order["at"])
    return order
