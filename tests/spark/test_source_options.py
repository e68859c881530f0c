"""Options tried by a real Spark: as with the connector where they are the same, and our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.spark.topics import BASE_TIMESTAMP_MS, create, produce_values
from tidelog.client.blocking import Client
from tidelog.client.group_admin import commit_offsets
from tidelog.model import TopicPartition
from tidelog.testing import Broker

ROWS = 40
FUTURE_MS = 99_999_999_999_999


@dataclass
class World:
    """A topic of two partitions, a record each millisecond, in turn."""

    spark: Any
    servers: str
    topic: str

    def fill(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(ROWS):
            producer.produce(
                self.topic,
                b"%d" % number,
                partition=number % 2,
                timestamp=BASE_TIMESTAMP_MS + number,
                headers=[("number", b"%d" % number)],
            )
        assert producer.flush(30) == 0

    def frame(self, form: str, *, streaming: bool = False, **options: str) -> Any:
        source = (self.spark.readStream if streaming else self.spark.read).format(form)
        source = source.option("kafka.bootstrap.servers", self.servers)
        if not {"assign", "subscribe", "subscribePattern"} & options.keys():
            source = source.option("subscribe", self.topic)
        named = {name.replace("_", "."): value for name, value in options.items()}
        return source.options(**named).load()

    def per_partition(self, first: int, second: int) -> str:
        return json.dumps({self.topic: {"0": first, "1": second}})

    def run(self, checkpoint: Path, seen: list[int], **options: Any) -> Any:
        """An AvailableNow run; `between` is called with each batch."""
        between: Callable[[], None] = options.pop("between", lambda: None)

        def take(batch: Any, _: int) -> None:
            seen.extend(int(row["value"]) for row in batch.collect())
            between()

        frame = self.frame("tidelog", streaming=True, **options)
        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query


@pytest.fixture
def world(spark: Any, tidelog_broker: Broker, tidelog_topic: str) -> World:
    made = World(spark, tidelog_broker.bootstrap_servers, f"{tidelog_topic[:40]}-options")
    create(made.servers, made.topic, 2)
    made.fill()
    return made


@pytest.mark.java
def test_where_a_batch_begins_and_ends_is_what_it_is_with_the_connector(world: World) -> None:
    at = BASE_TIMESTAMP_MS
    create(world.servers, f"{world.topic}-2", 1)
    produce_values(world.servers, f"{world.topic}-2", range(5))
    cases: list[tuple[dict[str, str], int]] = [
        (
            {
                "startingOffsets": world.per_partition(3, -2),
                "endingOffsets": world.per_partition(10, -1),
            },
            27,
        ),
        ({"startingTimestamp": str(at + 10), "endingTimestamp": str(at + 30)}, 20),
        (
            {
                "startingOffsetsByTimestamp": world.per_partition(at + 4, at + 5),
                "endingOffsetsByTimestamp": world.per_partition(at + 14, FUTURE_MS),
            },
            23,
        ),
        (
            {
                "startingTimestamp": str(FUTURE_MS),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            0,
        ),
        ({"subscribe": f"{world.topic},{world.topic}-2"}, 45),
        ({"subscribePattern": world.topic[3:-3] + ".{3}", "minPartitions": "5"}, 45),
        ({"subscribePattern": world.topic[:-3] + ".{3}$"}, 40),
        ({"assign": json.dumps({world.topic: [1]}), "maxRecordsPerPartition": "3"}, 20),
    ]
    for options, count in cases:
        ours, theirs = (
            sorted(
                world.frame(form, includeHeaders="true", **options).collect(),
                key=lambda row: (row["topic"], row["partition"], row["offset"]),
            )
            for form in ("tidelog", "kafka")
        )
        assert len(ours) == count, options
        assert ours == theirs, options


@pytest.mark.java
def test_a_time_that_no_record_has_is_an_error_as_with_the_connector(world: World) -> None:
    for form in ("tidelog", "kafka"):
        with pytest.raises(Exception, match=r"no record at or after|No offset matched"):
            world.frame(form, startingTimestamp=str(FUTURE_MS)).count()


def test_a_query_begins_where_a_group_is(world: World, tmp_path: Path) -> None:
    at = {TopicPartition(world.topic, 0): 7}
    with Client(world.servers) as client:
        client.run(commit_offsets(client.cluster, "spark-leader", at))
    # The group has nothing of the other partition, which is read from its beginning.
    expected = sorted([*range(14, ROWS, 2), *range(1, ROWS, 2)])
    batch = world.frame("tidelog", startingOffsets="group:spark-leader").collect()
    assert sorted(int(row["value"]) for row in batch) == expected
    seen: list[int] = []
    world.run(tmp_path / "c", seen, startingOffsets="group:spark-leader")
    assert sorted(seen) == expected


def test_a_run_up_to_now_reads_nothing_that_came_later(world: World, tmp_path: Path) -> None:
    seen: list[int] = []
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    more = iter(range(ROWS, 2 * ROWS))

    def between() -> None:
        number = next(more)
        produce_values(world.servers, world.topic, range(number, number + 1), 2)

    query = world.run(tmp_path / "c", seen, between=between, **options)
    assert sorted(seen) == list(range(ROWS))
    assert len(query.recentProgress) >= 4
    came = next(more)
    assert came >= ROWS + 4
    world.run(tmp_path / "c", seen, **options)
    assert sorted(seen) == list(range(came))


def test_a_topic_created_again_is_told_by_the_query(world: World, tmp_path: Path) -> None:
    seen: list[int] = []
    options = {"startingOffsets": "earliest"}
    world.run(tmp_path / "c", seen, **options)
    assert sorted(seen) == list(range(ROWS))
    admin = AdminClient({"bootstrap.servers": world.servers})
    admin.delete_topics([world.topic])[world.topic].result(30)
    create(world.servers, world.topic, 2)
    produce_values(world.servers, world.topic, range(100, 150), 2)
    with pytest.raises(Exception, match="the topic was deleted and created again"):
        world.run(tmp_path / "c", seen, **options)
    assert len(seen) == ROWS
    world.run(tmp_path / "c", seen, failOnDataLoss="false", **options)
    assert sorted(seen) == [*range(ROWS), *range(100, 150)]


def test_a_stored_batch_that_inflates_too_far_is_refused(world: World) -> None:
    producer = Producer({"bootstrap.servers": world.servers, "compression.type": "gzip"})
    producer.produce(world.topic, b"x" * 500_000, partition=0)
    assert producer.flush(30) == 0
    assert world.frame("tidelog").count() == ROWS + 1
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        world.frame("tidelog", maxDecompressedBytes="100k").count()
