"""What the targets must hold, from what was sent: sets, sorting and counting."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.events import iso, ms
from examples.pipelines.truths import sort_out
from tidelog.client.batching import ProducerRecord

PERIOD_MS = 10 * 60 * 1000
GAP_MS = 30 * 60 * 1000
Visit = tuple[int, str]


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    clicks, bad = sort_out(records, read_click)
    visits: dict[str, list[Visit]] = defaultdict(list)
    views: Counter[tuple[int, str]] = Counter()
    for _, user, page, at in set(clicks):
        if page != "/health":
            visits[user].append((at, page))
            views[at - at % PERIOD_MS, page] += 1
    return {
        "page_views": [
            {
                "name": f"{page} {iso(start)[:16]}",
                "period": iso(start),
                "page": page,
                "views": count,
            }
            for (start, page), count in views.items()
        ],
        "sessions": [row for user, found in visits.items() for row in sessions(user, found)],
        "clicks.bad": bad,
    }


def read_click(text: str) -> tuple[str, str, str, int]:
    found = json.loads(text)
    return found["id"], found["user"], found["page"], ms(found["at"])


def sessions(user: str, visits: list[Visit]) -> list[Mapping[str, Any]]:
    """Visits with at most the gap between one and the next."""
    groups: list[list[Visit]] = []
    for visit in sorted(visits):
        if not groups or visit[0] > groups[-1][-1][0] + GAP_MS:
            groups.append([])
        groups[-1].append(visit)
    return [
        {
            "user": user,
            "began": iso(group[0][0]),
            "ended": iso(group[-1][0] + GAP_MS),
            "views": len(group),
            "pages": len({page for _, page in group}),
        }
        for group in groups
    ]
