"""How far each micro-batch goes, against real brokers and without Spark.

What Spark does is small: it keeps the offsets it was given as JSON, asks for the next ones, and
after a crash runs a batch again from what it kept. The helpers here do the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.peers import KAFKA_3_LONG, KAFKA_4_LONG, TIDELOG, serving
from tidelog.arrow.scan import DataLossError
from tidelog.client.admin import (
    NewTopic,
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
)
from tidelog.client.blocking import Client
from tidelog.client.group_admin import committed_offsets
from tidelog.client.operation import refresh
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.spark.source.offsets import StreamOffset
from tidelog.spark.source.progress import QueryProgress
from tidelog.spark.source.read_options import parse
from tidelog.spark.source.topics import Topics
from tidelog.testing import Broker


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


@dataclass
class Query:
    """A streaming query's driver, as Spark would use it."""

    options: dict[str, str]
    clock: FakeClock = field(default_factory=FakeClock)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        parsed = parse(self.options, streaming=True)
        self.topics = Topics(parsed)
        self.progress = QueryProgress(parsed, self.topics, self.clock, self.log.append)

    def initial(self) -> StreamOffset:
        return through_json(self.progress.initial())

    def advance(self, start: StreamOffset) -> StreamOffset:
        end = self.progress.advance(start, unlimited=False)
        return start if end is start else through_json(end)

    def sizes(self, start: StreamOffset, end: StreamOffset) -> dict[int, tuple[int, int]]:
        return {each.partition: (each.start, each.end) for each in self.progress.ranges(start, end)}


def through_json(offset: StreamOffset) -> StreamOffset:
    return StreamOffset.from_dict(json.loads(json.dumps(offset.to_dict())))


@dataclass
class Bench:
    servers: str
    topic: str
    client: Client
    queries: list[Query] = field(default_factory=list)

    def query(self, **options: Any) -> Query:
        given = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "kafka.metadata.max.age.ms": "0",
            **{name.replace("_", "."): str(value) for name, value in options.items()},
        }
        self.queries.append(Query(given))
        return self.queries[-1]

    def produce(self, counts: dict[int, int], size: int = 10) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "batch.size": 10_000})
        for partition, count in counts.items():
            for _ in range(count):
                producer.produce(self.topic, b"x" * size, partition=partition)
        assert producer.flush(30) == 0

    def run(self, operation: Any) -> Any:
        return self.client.run(operation)

    def add_partition(self) -> None:
        self.run(add_partitions(self.client.cluster, self.topic, 3))
        self._wait_for_partitions(3)

    def delete(self) -> None:
        self.run(delete_topic(self.client.cluster, self.topic))
        self._wait_for_partitions(0)

    def _wait_for_partitions(self, count: int) -> None:
        """Apache Kafka acknowledges a change before its own metadata shows it."""
        cluster, deadline = self.client.cluster, time.monotonic() + 30
        self.run(refresh(cluster, [self.topic]))
        while len(cluster.topics[self.topic].partitions) != count:
            assert time.monotonic() < deadline
            self.run(refresh(cluster, [self.topic]))


@pytest.fixture(scope="module", params=[TIDELOG, KAFKA_4_LONG, KAFKA_3_LONG])
def servers(request: pytest.FixtureRequest, tidelog_broker: Broker) -> Iterator[str]:
    with serving(request.param, tidelog_broker) as servers:
        yield servers


@pytest.fixture
def bench(servers: str, tidelog_topic: str) -> Iterator[Bench]:
    with Client(servers) as client:
        made = Bench(servers, f"{tidelog_topic}-q", client)
        made.run(create_topic(client.cluster, NewTopic(made.topic, 2)))
        yield made
        for query in made.queries:
            query.topics.close()


def test_the_first_batch_comes_at_once_and_makes_the_start_durable(bench: Bench) -> None:
    query = bench.query(startingOffsets="latest")
    start = query.initial()
    assert start.initial
    assert query.initial() == start
    first = query.advance(start)
    assert first != start
    assert query.sizes(start, first) == {0: (0, 0), 1: (0, 0)}
    assert query.advance(first) is first


def test_latest_killed_before_its_first_commit_skips_nothing(bench: Bench) -> None:
    bench.produce({0: 5, 1: 5})
    first_run = bench.query(startingOffsets="latest")
    planned = first_run.advance(first_run.initial())
    bench.produce({0: 3, 1: 4})  # while the query is down
    second_run = bench.query(startingOffsets="latest")
    start = second_run.initial()
    assert second_run.sizes(start, planned) == {0: (5, 5), 1: (5, 5)}
    following = second_run.advance(planned)
    assert second_run.sizes(planned, following) == {0: (5, 8), 1: (5, 9)}


def test_a_batch_run_again_reads_the_same(bench: Bench) -> None:
    bench.produce({0: 10, 1: 10})
    query = bench.query(maxOffsetsPerTrigger=6)
    start = query.initial()
    first = query.advance(start)
    sizes = query.sizes(start, first)
    assert sizes == {0: (0, 3), 1: (0, 3)}
    bench.run(delete_records(bench.client.cluster, {TopicPartition(bench.topic, 0): 2}))
    again = bench.query(maxOffsetsPerTrigger=6)
    assert again.sizes(again.initial(), first) == sizes


def test_rows_and_bytes_bound_a_batch(bench: Bench) -> None:
    bench.produce({0: 1_000, 1: 1_000}, size=1_000)
    start = bench.query().initial()
    whole = bench.query()
    assert whole.sizes(start, whole.advance(start)) == {0: (0, 1_000), 1: (0, 1_000)}
    few = bench.query(maxBytesPerTrigger="100k")
    rows = sum(end - begin for begin, end in few.sizes(start, few.advance(start)).values())
    assert 60 <= rows <= 110


def test_a_limit_below_every_stored_batch_still_lets_something_through(bench: Bench) -> None:
    bench.produce({0: 50, 1: 1}, size=1_000)
    query = bench.query(maxBytesPerTrigger="1")
    query.progress.bound_now()
    at, batches = query.initial(), 0
    while (end := query.advance(at)) is not at:
        assert all(
            end.next[tp] > offset
            for tp, offset in at.next.items()
            if offset < (50, 1)[tp.partition]
        )
        at, batches = end, batches + 1
    assert [at.next[TopicPartition(bench.topic, each)] for each in (0, 1)] == [50, 1]
    assert batches > 1


def test_a_minimum_of_rows_is_waited_for_but_not_for_ever(bench: Bench) -> None:
    query = bench.query(minOffsetsPerTrigger=100, maxTriggerDelay="60s")
    first = query.advance(query.initial())
    bench.produce({0: 20})
    assert query.advance(first) is first
    query.clock.now += 61
    assert query.sizes(first, query.advance(first))[0] == (0, 20)
    bench.produce({0: 200})
    later = bench.query(minOffsetsPerTrigger=100)
    assert later.sizes(first, later.advance(first))[0] == (0, 220)


def test_available_now_ends_where_the_log_ended_then(bench: Bench) -> None:
    bench.produce({0: 10, 1: 2})
    query = bench.query(maxOffsetsPerTrigger=8)
    query.progress.bound_now()
    bench.produce({0: 50})
    at, batches = query.initial(), 0
    while (end := query.advance(at)) is not at:
        at, batches = end, batches + 1
    assert batches == 2
    assert at.next == {TopicPartition(bench.topic, 0): 10, TopicPartition(bench.topic, 1): 2}


def test_what_spark_has_committed_the_group_has_too(bench: Bench) -> None:
    bench.produce({0: 10, 1: 2})
    query = bench.query(kafka_group_id="billing", maxOffsetsPerTrigger=8)
    query.progress.bound_now()
    first = query.advance(query.initial())
    assert bench.run(committed_offsets(bench.client.cluster, "billing")) == {}
    second = query.advance(first)
    assert bench.run(committed_offsets(bench.client.cluster, "billing")) == first.next
    assert query.advance(second) is second
    assert bench.run(committed_offsets(bench.client.cluster, "billing")) == second.next


def test_a_query_without_a_group_keeps_the_one_it_was_given(bench: Bench) -> None:
    query = bench.query(groupIdPrefix="mine")
    first = query.advance(query.initial())
    assert first.group.startswith("mine-")
    bench.produce({0: 1})
    restarted = bench.query(groupIdPrefix="mine")
    assert restarted.advance(first).group == first.group
    assert bench.run(committed_offsets(bench.client.cluster, first.group)) == first.next


def test_a_group_can_be_started_from(bench: Bench) -> None:
    bench.produce({0: 10, 1: 10})
    query = bench.query(kafka_group_id="leader", maxOffsetsPerTrigger=10)
    query.advance(query.advance(query.initial()))
    follower = bench.query(startingOffsets="group:leader")
    assert list(follower.initial().next.values()) == [5, 5]


def test_new_partitions_are_read_from_their_beginning(bench: Bench) -> None:
    bench.produce({0: 1, 1: 1})
    query = bench.query()
    first = query.advance(query.initial())
    bench.add_partition()
    bench.produce({2: 7})
    second = query.advance(first)
    assert query.sizes(first, second)[2] == (0, 7)
    bench.run(delete_records(bench.client.cluster, {TopicPartition(bench.topic, 2): 3}))
    again = bench.query()
    assert again.sizes(first, second)[2] == (0, 7)


def test_a_checkpoint_of_the_connector_is_taken_over(bench: Bench) -> None:
    bench.produce({0: 10, 1: 10})
    query = bench.query()
    theirs = StreamOffset.from_dict({bench.topic: {"0": 4, "1": 10}})
    assert query.sizes(theirs, query.advance(theirs)) == {0: (4, 10), 1: (10, 10)}
    bench.add_partition()
    planned = StreamOffset.from_dict({bench.topic: {"0": 6, "1": 10, "2": 3}})
    assert query.sizes(theirs, planned) == {0: (4, 6), 1: (10, 10), 2: (0, 3)}


def lose(bench: Bench, kind: str) -> None:
    cluster = bench.client.cluster
    if kind == "retention":
        bench.run(delete_records(cluster, {TopicPartition(bench.topic, 0): 8}))
        bench.produce({0: 1})
    else:
        bench.delete()
        if kind == "recreated":
            bench.run(create_topic(cluster, NewTopic(bench.topic, 2)))
            bench.produce({0: 50})


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("retention", "offsets 5 to 7 are lost: retention"),
        ("recreated", "deleted and created again"),
        ("deleted", "the partition is gone"),
    ],
)
def test_lost_data_stops_the_query_or_is_logged(bench: Bench, kind: str, reason: str) -> None:
    """P5: said loudly, with the reason."""
    bench.produce({0: 10, 1: 10})
    query = bench.query(maxOffsetsPerTrigger=10)
    first = query.advance(query.initial())
    assert list(first.next.values()) == [5, 5]
    lose(bench, kind)
    with pytest.raises(DataLossError, match=reason):
        bench.query().advance(first)
    lenient = bench.query(failOnDataLoss="false")
    second = lenient.advance(first)
    assert any(reason in line for line in lenient.log)
    sizes = lenient.sizes(first, second)
    expected = {"retention": {0: (8, 11), 1: (5, 10)}, "recreated": {0: (0, 50), 1: (0, 0)}}
    assert sizes == expected.get(kind, {})


def test_a_log_that_became_shorter_stops_the_query(bench: Bench) -> None:
    bench.produce({0: 10})
    ahead = StreamOffset.from_dict({bench.topic: {"0": 25, "1": 0}})
    with pytest.raises(DataLossError, match="10 to 24 are lost: the log ends at 10"):
        bench.query().advance(ahead)
    lenient = bench.query(failOnDataLoss="false")
    assert lenient.sizes(ahead, lenient.advance(ahead)) == {0: (10, 10), 1: (0, 0)}


def test_a_log_that_became_shorter_stops_a_run_up_to_now_too(bench: Bench) -> None:
    bench.produce({0: 10})
    ahead = bench.query().initial()
    ahead = replace(ahead, next={tp: 25 for tp in ahead.next if not tp.partition}, initial=False)
    ahead.next[TopicPartition(bench.topic, 1)] = 0
    strict = bench.query()
    strict.progress.bound_now()
    with pytest.raises(DataLossError, match="10 to 24 are lost: the log ends at 10"):
        strict.advance(ahead)
    lenient = bench.query(failOnDataLoss="false")
    lenient.progress.bound_now()
    bench.produce({0: 5})
    end = lenient.advance(ahead)
    assert lenient.sizes(ahead, end) == {0: (15, 15), 1: (0, 0)}
    assert lenient.advance(end) is end


def test_a_deleted_topic_does_not_stop_a_run_up_to_now_that_may_lose_data(bench: Bench) -> None:
    bench.produce({0: 10, 1: 10})
    query = bench.query(maxOffsetsPerTrigger=10)
    first = query.advance(query.initial())
    lose(bench, "deleted")
    strict = bench.query()
    strict.progress.bound_now()
    with pytest.raises(DataLossError, match="the partition is gone"):
        strict.advance(first)
    lenient = bench.query(failOnDataLoss="false")
    lenient.progress.bound_now()
    end = lenient.advance(first)
    assert end.next == {}
    assert lenient.advance(end) is end


def test_a_topic_deleted_since_the_partitions_were_listed_is_lost_like_any_other(
    bench: Bench,
) -> None:
    """An idle query looks at the ends more often than at the list."""
    bench.produce({0: 10, 1: 10})
    strict = bench.query(kafka_metadata_max_age_ms=3_600_000)
    lenient = bench.query(kafka_metadata_max_age_ms=3_600_000, failOnDataLoss="false")
    ends = [query.advance(query.initial()) for query in (strict, lenient)]
    for query, end in zip((strict, lenient), ends, strict=True):
        assert query.advance(end) is end, "it is idle, and its offsets are committed"
    lose(bench, "deleted")
    with pytest.raises(DataLossError, match="the partition is gone"):
        strict.advance(ends[0])
    assert lenient.advance(ends[1]).next == {}
    assert any("the partition is gone" in line for line in lenient.log)


def test_a_topic_deleted_before_its_offsets_are_committed_holds_nothing_up(bench: Bench) -> None:
    """A broker that does not know a topic is asked again, since it may be about to."""
    bench.produce({0: 10, 1: 10})
    query = bench.query(kafka_metadata_max_age_ms=3_600_000, failOnDataLoss="false")
    end = query.advance(query.initial())
    lose(bench, "deleted")
    assert query.advance(end).next == {}
    assert not any("were not committed" in line for line in query.log)


def test_a_query_without_partitions_is_kept_waiting_like_an_idle_one(bench: Bench) -> None:
    query = bench.query(subscribe=f"{bench.topic}-none")
    waited = time.monotonic()
    query.topics.wait_for_more({}, 200)
    assert time.monotonic() - waited >= 0.2


class HeldBack(Topics):
    """A log of 100 offsets of which an open transaction holds back the second half."""

    def latest(self, partitions: Any) -> Any:
        return dict.fromkeys(partitions, 50)

    def behind_stable(self, ends: Any) -> Any:
        return dict.fromkeys(ends, 50)


def test_a_stable_end_before_the_offset_of_a_query_is_no_truncation(bench: Bench) -> None:
    """It read uncommitted records before, or began at offsets that somebody else gave."""
    bench.produce({0: 1})
    options = {"kafka.isolation.level": "read_committed"}
    for fail in ("true", "false"):
        query = bench.query(failOnDataLoss=fail)
        parsed = parse({**query.options, **options}, streaming=True)
        held = HeldBack(parsed)
        progress = QueryProgress(parsed, held, query.clock, query.log.append)
        ids = held.topic_ids({tp.topic for tp in held.partitions(fresh=True)})
        start = StreamOffset({TopicPartition(bench.topic, each): 80 for each in (0, 1)}, {}, ids)
        assert progress.advance(start, unlimited=False) is start, query.log
        held.close()


def test_a_batch_planned_before_its_topic_was_deleted_does_not_hold_up_the_query(
    bench: Bench,
) -> None:
    bench.produce({0: 10, 1: 10})
    query = bench.query()
    start = query.initial()
    planned = query.advance(start)
    lose(bench, "deleted")
    with pytest.raises(DataLossError, match="offsets 0 to 9 are lost: the partition is gone"):
        bench.query().sizes(start, planned)
    lenient = bench.query(failOnDataLoss="false")
    assert lenient.sizes(start, planned) == {}
    assert [line for line in lenient.log if "the partition is gone" in line] == lenient.log != []


@pytest.mark.parametrize("passes", [True, False])
def test_a_topic_that_only_seems_to_be_gone_is_not_given_up(bench: Bench, passes: bool) -> None:
    """A broker that has just started may name a topic with another error than its absence."""
    bench.produce({0: 10, 1: 10})
    query = bench.query(
        failOnDataLoss="false", kafka_default_api_timeout_ms=200, kafka_retry_backoff_ms=1
    )
    first = query.advance(query.initial())
    bench.produce({0: 1})
    cluster = query.topics._client.cluster
    apply, left = cluster.apply, [2 if passes else 1_000_000]

    def seem_gone(response: Any) -> None:
        left[0] -= 1
        if left[0] >= 0:
            for topic in response.topics:
                topic.error_code, topic.partitions = int(ErrorCode.LEADER_NOT_AVAILABLE), []
        apply(response)

    cluster.apply = seem_gone  # type: ignore[method-assign]
    if passes:
        assert query.sizes(first, query.advance(first)) == {0: (10, 11), 1: (10, 10)}
    else:
        with pytest.raises(KafkaError, match=bench.topic):
            query.advance(first)
    assert query.log == []


def test_an_unknown_topic_is_named(bench: Bench) -> None:
    query = bench.query(subscribe="no-such-topic")
    with pytest.raises(Exception, match="'no-such-topic' does not exist"):
        query.initial()


def test_a_pattern_is_found_anywhere_and_notices_new_topics(bench: Bench) -> None:
    """As with the connector; no topic that was read there must be missing here."""
    options = {**bench.query().options, "subscribePattern": f"{bench.topic[1:]}(-mo|$)"}
    del options["subscribe"]
    by_pattern = Query(options)
    bench.queries.append(by_pattern)
    first = by_pattern.advance(by_pattern.initial())
    assert {tp.topic for tp in first.next} == {bench.topic}
    bench.run(create_topic(bench.client.cluster, NewTopic(f"{bench.topic}-more", 1)))
    bench.run(create_topic(bench.client.cluster, NewTopic(f"{bench.topic}-other", 1)))
    second = by_pattern.advance(first)
    assert {tp.topic for tp in second.next} == {bench.topic, f"{bench.topic}-more"}


def test_times_and_offsets_per_partition(bench: Bench) -> None:
    bench.produce({0: 3, 1: 3})
    named = json.dumps({bench.topic: {"0": 2, "1": -1}})
    assert list(bench.query(startingOffsets=named).initial().next.values()) == [2, 3]
    with pytest.raises(Exception, match=r"must name every partition.*-1 without an offset"):
        bench.query(startingOffsets=json.dumps({bench.topic: {"0": 2}})).initial()
    timed = bench.query(startingTimestamp=1)
    assert list(timed.initial().next.values()) == [0, 0]
    with pytest.raises(Exception, match="no record at or after the starting time"):
        bench.query(startingTimestamp=99999999999999).initial()
    late = bench.query(
        startingTimestamp=99999999999999, startingOffsetsByTimestampStrategy="latest"
    )
    assert list(late.initial().next.values()) == [3, 3]
