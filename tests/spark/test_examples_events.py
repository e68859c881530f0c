"""What the examples' generators promise, and that their comparison can tell a difference."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.pipelines.commit_log.generate import read_changes
from examples.pipelines.commit_log.restore import apply, open_database, restore
from examples.pipelines.commit_log.shop import rows_of, run_shop
from examples.pipelines.event_sourcing.truth import truth as accounts_truth
from examples.pipelines.events import as_json, iso, ms
from examples.pipelines.example import NAMES, load
from examples.pipelines.messaging.generate import PROBE, reply, request
from examples.pipelines.messaging.truth import truth as messages_truth
from examples.pipelines.mirror.copy import follow
from examples.pipelines.targets import Comparison, Held, as_texts
from examples.pipelines.trial import Trial
from examples.pipelines.website_activity.generate import click
from examples.pipelines.website_activity.truth import truth
from tidelog.client.admin import NewTopic, describe_configs, list_topics
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_producer import Producer
from tidelog.client.group_admin import commit_offsets, list_groups
from tidelog.model import NO_TIMESTAMP, ConfigResourceType, TopicPartition
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
        if record.timestamp_ms == NO_TIMESTAMP:
            continue
        latest = max(latest, record.timestamp_ms)
        late += latest - record.timestamp_ms > 60_000
        assert latest - record.timestamp_ms < WATERMARK_MS, "a stream would drop this one"
    assert late > COUNT // 50

    rows = example.truth(records)
    assert set(rows) == set(example.targets)
    assert all(rows.values())
    # Of accounts and rows the last state counts, so not every record can be seen in the end.
    fewer = example.truth(records[: COUNT // 2])
    assert all(fewer[name] != rows[name] for name in rows), "what was sent last counts"


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


def event(version: int, kind: str, **more: object) -> ProducerRecord:
    value = {"account": "a", "version": version, "kind": kind, "at": iso(version), **more}
    return ProducerRecord("account-events", as_json(value), b"a")


def test_the_truth_of_event_sourcing_on_a_case_by_hand() -> None:
    opened, paid = event(1, "opened", owner="Ann"), event(2, "deposited", cents=50)
    renamed, taken = event(3, "renamed", owner="Bob"), event(4, "withdrawn", cents=20)
    bad = ProducerRecord("account-events", b'{"account"', b"a")
    state = {"account": "a", "version": 4, "events": 4, "cents": 30, "owner": "Bob"}
    life = [taken, opened, renamed, paid, bad, opened, taken]
    assert accounts_truth(life) == {
        "accounts": [state],
        "events.bad": [{"value": b'{"account"'.hex()}],
    }
    assert accounts_truth([*life, event(5, "closed")])["accounts"] == []


def test_the_truth_of_the_commit_log_is_the_original_table_row_for_row() -> None:
    cases = 0
    for seed in range(3):
        records = [record for part in load("commit_log").generate(COUNT, seed) for record in part]
        original = rows_of(run_shop(COUNT, random.Random(seed)))
        assert load("commit_log").truth(records)["products"] == original, seed
        cases += len(original)
    assert cases > 3 * COUNT // 40


def test_the_truth_of_messaging_knows_what_was_answered_in_time() -> None:
    minute = 60_000
    records = [
        request("a", "ann", "mail", 0),
        reply("a", "mail", 10 * minute),
        request("b", "bob", "print", 0),
        reply("b", "print", 10 * minute + 1),
        request("c", "cem", "fax", 0),
        request("n", PROBE, PROBE, 0),
    ]
    rows = messages_truth([*records, records[0]])
    assert {row["id"]: row["answered"] for row in rows["answers"]} == {
        "a": iso(10 * minute),
        "b": None,
        "c": None,
    }
    assert [row["headers"]["correlation-id"] for row in rows["mail"]] == ["a"]
    assert [row["key"] for row in rows["print"]] == ["bob"]


@pytest.mark.parametrize(
    ("copy", "places"),
    [
        ("abcabd", [0, 1, 2, 3, 4, 5]),
        ("abcabcabd", [0, 1, 2, 3, 4, 2, 3, 4, 5]),
        ("ababcabd", [0, 1, 0, 1, 2, 3, 4, 5]),
        ("abcabdabcabd", [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]),
        ("abxcabd", [0, 1, None, 2, 3, 4, 5]),
        ("abd", [0, 1, None]),
    ],
)
def test_a_copy_is_followed_through_what_is_written_again(
    copy: str, places: list[int | None]
) -> None:
    """The original has equal records itself: those are no repeats, and a lost one is seen."""
    assert list(follow("abcabd", copy)) == places


def test_a_restored_table_survives_a_crash_and_a_replay(
    tidelog_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = tidelog_broker.bootstrap_servers
    shop = run_shop(2_000, random.Random(1))
    changes = [as_update(change) for change in read_changes(shop)]

    def send(part: list[ProducerRecord]) -> None:
        with Producer(servers) as producer:
            for change in part:
                producer.send(change)
            producer.flush()

    def crash(database: sqlite3.Connection, records: list[dict[str, Any]]) -> None:
        apply(database, records[: len(records) // 2])
        raise MemoryError

    with closing(open_database(tmp_path / "restored.db")) as database:
        send(changes[:1000])
        assert restore(database, "products", bootstrap_servers=servers) == 1000
        before = rows_of(database)
        # A driver that was killed has written a stretch a second time.
        send(changes[500:])
        with monkeypatch.context() as patch:
            patch.setattr("examples.pipelines.commit_log.restore.apply", crash)
            with pytest.raises(MemoryError):
                restore(database, "products", bootstrap_servers=servers)
        assert rows_of(database) == before
    with closing(open_database(tmp_path / "restored.db")) as database:
        assert restore(database, "products", bootstrap_servers=servers) == 1500
        assert rows_of(database) == rows_of(shop)
        assert restore(database, "products", bootstrap_servers=servers) == 0
        with database:
            database.execute("DELETE FROM positions")
        assert restore(database, "products", bootstrap_servers=servers) == 2500
        assert rows_of(database) == rows_of(shop), "all of it once more changes nothing"


def as_update(change: ProducerRecord) -> ProducerRecord:
    """A change as the pipeline writes it."""
    gone = b'"operation":"delete"' in (change.value or b"")
    return replace(change, topic="products", value=None if gone else change.value)


def test_a_comparison_sees_rows_that_are_missing_or_twice() -> None:
    rows = [{"user": "ann", "views": 1}, {"views": 2, "user": "bob"}]
    expected = Counter(as_texts(rows))
    assert Comparison("t", Held(Counter(as_texts(rows[::-1]))), expected).equal
    for wrong in (rows[:1], [*rows, rows[0]], [rows[0], {"user": "bob", "views": 3}]):
        comparison = Comparison("t", Held(Counter(as_texts(wrong))), expected)
        assert not comparison.equal
        assert comparison.differences()
    shown = Comparison("t", Held(Counter(as_texts(rows[:1]))), expected).differences()
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
        trial.create([NewTopic("others", 1)])
        trial._created.clear()
        client.run(commit_offsets(client.cluster, "tidelog.website-activity", {others: 0}))
        before = left()
        trial.create_sources()
        trial.send(parts)
        # Retention goes by the records' times, which are long past.
        (retention,) = [
            each
            for each in client.run(
                describe_configs(client.cluster, ConfigResourceType.TOPIC, "clicks")
            )
            if each.name == "retention.ms"
        ]
        assert retention.value == "-1"
        group = "tidelog.website-activity.stream.page_views"
        client.run(commit_offsets(client.cluster, group, {TopicPartition("clicks", 0): 1}))
        assert left() != before
        trial.remove()
        assert left() == before
