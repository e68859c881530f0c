"""What the queues and the table of answers must hold, from what was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.events import ms
from examples.pipelines.messaging.generate import PROBE, REPLIES, REQUESTS
from examples.pipelines.truths import sort_out
from tidelog.client.batching import ProducerRecord

WITHIN_MS = 10 * 60 * 1000


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    asked, bad_requests = sort_out((r for r in records if r.topic == REQUESTS), read_message)
    answered, bad_replies = sort_out((r for r in records if r.topic == REPLIES), read_message)
    requests = {each["id"]: each for each in asked if each["service"] != PROBE}
    replies = {each["to"]: each["at"] for each in answered}
    return {
        "mail": queue("mail", requests),
        "print": queue("print", requests),
        "answers": [answer(each, replies.get(name)) for name, each in requests.items()],
        "requests.bad": bad_requests,
        "replies.bad": bad_replies,
    }


def queue(service: str, requests: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        {
            "key": each["sender"],
            "value": {name: each[name] for name in ("id", "sender", "text", "reply_to", "at")},
            "headers": {"correlation-id": each["id"], "reply-to": each["reply_to"]},
        }
        for each in requests.values()
        if each["service"] == service
    ]


def answer(request: Mapping[str, Any], at: str | None) -> Mapping[str, Any]:
    """When a request was answered; not at all, where that was too late."""
    in_time = at is not None and 0 <= ms(at) - ms(request["at"]) <= WITHIN_MS
    row = {name: request[name] for name in ("id", "service")}
    return {**row, "asked": request["at"], "answered": at if in_time else None}


def read_message(text: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    ms(message["at"])
    return message
