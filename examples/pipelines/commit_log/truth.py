"""What the table must hold: every change applied once, in the order in which it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.commit_log.shop import COLUMNS
from examples.pipelines.events import ms
from examples.pipelines.truths import sort_out
from tidelog.client.batching import ProducerRecord


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    found, bad = sort_out(records, read_change)
    changes = {change["number"]: change for change in found}
    table: dict[int, Mapping[str, Any]] = {}
    for _, change in sorted(changes.items()):
        if change["operation"] == "delete":
            table.pop(change["id"], None)
        else:
            table[change["id"]] = {name: change[name] for name in COLUMNS}
    return {"products": [table[number] for number in sorted(table)], "changes.bad": bad}


def read_change(text: str) -> dict[str, Any]:
    change: dict[str, Any] = json.loads(text)
    ms(change["at"])
    return change
