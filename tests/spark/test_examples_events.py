"""What the examples' generators promise, and that their comparison can tell a difference."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from examples.pipelines.events import iso, ms
from examples.pipelines.example import NAMES, load
from examples.pipelines.targets import Comparison, Held, as_texts
from examples.pipelines.trial import Trial
from examples.pipelines.website_activity.generate import click
from examples.pipelines.website_activity.truth import truth
from tidelog.client.admin import ResourceType, describe_configs, list_topics
from tidelog.client.blocking import Client
from tidelog.client.group_admin import commit_offsets, list_groups
from tidelog.model import TopicPartition
from tidelog.testing import Broker

COUNT = 5_000
WATERMARK_MS = 3600 * 1000


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_late_repeated_and_malformed_events_and_always_the_same(name: str) -> None:
    example = load(name)
    parts = example.generate(COUNT, 7)
    assert parts == example.generate(COUNT, 7) != example.generate(COUNT, 8)
    records = [record for part in parts for record in part]
    assert len(records) > COUNT
    assert {record.topic for record in records} == set(example.topics)
    again = Counter((record.key, record.value) for record in records)
    assert sum(count > 1 for count in again.values()) > COUNT // 100

    latest = late = 0
    for record in records:
        assert record.timestamp_ms is not None
        latest = max(latest, record.timestamp_ms)
        late += latest - record.timestamp_ms > 60_000
        assert latest - record.timestamp_ms < WATERMARK_MS, "a stream would drop this one"
    assert late > COUNT // 50

    rows = example.truth(records)
    assert set(rows) == set(example.targets)
    assert all(rows.values())
    assert example.truth(records[1:]) != rows, "the first record counts"


def test_the_truth_of_website_activity_on_a_case_by_hand() -> None:
    start = ms("2026-01-01T00:00:00.000Z")
    minute = 60_000
    first = click("a", "ann", "/", start)
    records = [
        first,
        click("b", "ann", "/maps", start + 40 * minute),
        click("c", "ann", "/maps", start + 30 * minute),
        click("d", "ann", "/", start + 71 * minute),
        click("e", "bob", "/health", start),
        first,
    ]
    rows = truth(records)
    sessions = [
        (row["began"], row["ended"], row["views"], row["pages"]) for row in rows["sessions"]
    ]
    assert sessions == [
        (iso(start), iso(start + 70 * minute), 3, 2),
        (iso(start + 71 * minute), iso(start + 101 * minute), 1, 1),
    ]
    views = {row["name"]: row["views"] for row in rows["page_views"]}
    assert views["/ 2026-01-01T00:00"] == 1 and sum(views.values()) == 4
    assert rows["clicks.bad"] == []


def test_a_comparison_sees_rows_that_are_missing_or_twice() -> None:
    rows = [{"user": "ann", "views": 1}, {"views": 2, "user": "bob"}]
    expected = as_texts(rows)
    assert Comparison("t", Held(as_texts(rows[::-1])), expected).equal
    for wrong in (rows[:1], [*rows, rows[0]], [rows[0], {"user": "bob", "views": 3}]):
        comparison = Comparison("t", Held(as_texts(wrong)), expected)
        assert not comparison.equal
        assert comparison.differences()
    shown = Comparison("t", Held(as_texts(rows[:1])), expected).differences()
    assert json.loads(shown[1].partition("- ")[2]) == rows[1]


def test_a_given_broker_keeps_the_events_and_is_left_as_it_was(
    tidelog_broker: Broker, tmp_path: Path
) -> None:
    example = load("website_activity")
    parts = example.generate(100, 1)
    servers = tidelog_broker.bootstrap_servers
    trial = Trial("website_activity", example, servers, tmp_path, parts, random.Random(1))
    with Client(servers) as client:

        def left() -> tuple[set[str], set[str]]:
            topics = client.run(list_topics(client.cluster))
            groups = client.run(list_groups(client.cluster))
            return {each.name for each in topics}, {each.name for each in groups}

        others = TopicPartition("others", 0)
        trial.create({"others": 1})
        trial._created.clear()
        client.run(commit_offsets(client.cluster, "tidelog.website-activity", {others: 0}))
        before = left()
        trial.create(example.topics)
        trial.send(parts)
        # Retention goes by the records' times, which are long past.
        (retention,) = [
            each
            for each in client.run(describe_configs(client.cluster, ResourceType.TOPIC, "clicks"))
            if each.name == "retention.ms"
        ]
        assert retention.value == "-1"
        group = "tidelog.website-activity.stream.page_views"
        client.run(commit_offsets(client.cluster, group, {TopicPartition("clicks", 0): 1}))
        assert left() != before
        trial.remove()
        assert left() == before
