"""The accounts that are open at the end, from all that happened."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.events import ms
from examples.pipelines.truths import sort_out
from tidelog.client.batching import ProducerRecord

Event = dict[str, Any]


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    found, bad = sort_out(records, read_event)
    lives: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in found:
        lives[event["account"]][event["version"]] = event
    accounts = [
        fold(name, [life[number] for number in sorted(life)]) for name, life in lives.items()
    ]
    return {"accounts": [each for each in accounts if each is not None], "events.bad": bad}


def fold(name: str, life: list[Event]) -> Event | None:
    """What an account is after these events, in their order; None where it is closed."""
    state: Event = {"account": name, "version": 0, "events": 0, "cents": 0}
    for event in life:
        if event["kind"] == "closed":
            return None
        sign = -1 if event["kind"] == "withdrawn" else 1
        state["cents"] += sign * event.get("cents", 0)
        state["events"] += 1
        state["version"] = event["version"]
        if "owner" in event:
            state["owner"] = event["owner"]
    return state


def read_event(text: str) -> Event:
    event: Event = json.loads(text)
    ms(event["at"])
    return event
