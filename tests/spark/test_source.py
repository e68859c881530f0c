"""Topics read by a real Spark, in batches and as streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.spark.topics import create, fill_with_everything, produce_values
from tidelog.client.blocking import Client
from tidelog.client.group_admin import committed_offsets, group_lag
from tidelog.testing import Broker


@pytest.fixture
def topic(tidelog_broker: Broker, tidelog_topic: str) -> str:
    name = f"{tidelog_topic[:40]}-source"
    create(tidelog_broker.bootstrap_servers, name, 2)
    return name


@pytest.fixture
def reader(spark: Any, tidelog_broker: Broker, topic: str) -> Callable[..., Any]:
    """`reader(startingOffsets=…)`: a DataFrame of the topic; `streaming=True` a stream of it."""

    def read(*, streaming: bool = False, schema: str = "", **options: Any) -> Any:
        source = (spark.readStream if streaming else spark.read).format("tidelog")
        source = source.option("kafka.bootstrap.servers", tidelog_broker.bootstrap_servers)
        if not {"assign", "subscribePattern"} & options.keys():
            source = source.option("subscribe", topic)
        for name, value in options.items():
            source = source.option(name.replace("_", "."), str(value))
        return (source.schema(schema) if schema else source).load()

    return read


def run_available(frame: Any, checkpoint: Path, seen: list[Any]) -> Any:
    """Run a stream to the end of what is there; the rows of each batch go to `seen`."""
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def values(rows: list[Any]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


@pytest.mark.java
def test_the_rows_are_those_of_sparks_own_connector(
    spark: Any, reader: Callable[..., Any], tidelog_broker: Broker, topic: str
) -> None:
    count = fill_with_everything(tidelog_broker.bootstrap_servers, topic)
    theirs = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", tidelog_broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    ours = reader(includeHeaders="true")
    assert ours.schema.simpleString() == theirs.schema.simpleString()

    def rows(frame: Any) -> list[Any]:
        return sorted(frame.collect(), key=lambda row: (row["partition"], row["offset"]))

    assert rows(ours) == rows(theirs)
    assert ours.count() == count


def test_a_schema_prunes_columns_and_others_are_refused(
    reader: Callable[..., Any], tidelog_broker: Broker, topic: str
) -> None:
    produce_values(tidelog_broker.bootstrap_servers, topic, range(4), 2)
    pruned = reader(schema="offset LONG, value BINARY")
    assert sorted(map(tuple, pruned.collect())) == [
        (0, bytearray(b"0")), (0, bytearray(b"1")), (1, bytearray(b"2")), (1, bytearray(b"3")),
    ]  # fmt: skip
    with pytest.raises(Exception, match="column 'value' is binary, not string"):
        reader(schema="value STRING").collect()
    with pytest.raises(Exception, match="no column 'colour'"):
        reader(schema="colour STRING").collect()


def test_a_batch_begins_and_ends_where_it_is_told(
    reader: Callable[..., Any], tidelog_broker: Broker, topic: str
) -> None:
    produce_values(tidelog_broker.bootstrap_servers, topic, range(20), 2)
    starts = json.dumps({topic: {"0": 3, "1": -2}})
    ends = json.dumps({topic: {"0": 5, "1": -1}})
    found = values(reader(startingOffsets=starts, endingOffsets=ends).collect())
    assert found == sorted([6, 8, *range(1, 20, 2)])
    only = values(reader(assign=json.dumps({topic: [1]})).collect())
    assert only == list(range(1, 20, 2))
    by_pattern = reader(subscribePattern=topic[:-3] + ".{3}")
    assert values(by_pattern.collect()) == list(range(20))
    assert reader(endingTimestamp=1).count() == 0
    assert reader(startingTimestamp=1).count() == 20


def test_wrong_options_are_errors_that_name_them(reader: Callable[..., Any]) -> None:
    with pytest.raises(
        Exception, match=r"(?i)'startingOffset' is unknown; did you mean 'startingOffsets'"
    ):
        reader(startingOffset="earliest").count()
    with pytest.raises(Exception, match=r"ssl\.truststore\.location is set, but security"):
        reader(kafka_ssl_truststore_location="x").count()
    with pytest.raises(Exception, match="'no-such-topic' does not exist"):
        reader(subscribe="no-such-topic").count()


def test_tasks_are_as_many_as_asked_for(
    reader: Callable[..., Any], tidelog_broker: Broker, topic: str
) -> None:
    produce_values(tidelog_broker.bootstrap_servers, topic, range(100), 2)
    assert reader().rdd.getNumPartitions() == 1
    assert reader(minPartitions=5).rdd.getNumPartitions() == 5
    assert reader(maxRecordsPerPartition=10).rdd.getNumPartitions() == 10
    assert values(reader(minPartitions=7).collect()) == list(range(100))


def test_a_stream_goes_on_where_it_ended_and_its_group_has_no_lag(
    reader: Callable[..., Any], tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    servers = tidelog_broker.bootstrap_servers
    produce_values(servers, topic, range(100), 2)
    seen: list[Any] = []
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 30, "kafka_group_id": topic}
    query = run_available(reader(streaming=True, **options), tmp_path / "c", seen)
    assert values(seen) == list(range(100))
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert len(sizes) >= 4
    assert max(sizes) <= 30
    with Client(servers) as client:
        committed = client.run(committed_offsets(client.cluster, topic))
        lags = client.run(group_lag(client.cluster, committed))
    assert {lag.records for lag in lags.values()} == {0}
    assert len(lags) == 2

    produce_values(servers, topic, range(100, 150), 2)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    produce_values(servers, topic, range(152, 153), 3)  # into the new partition
    run_available(reader(streaming=True, **options), tmp_path / "c", seen)
    assert values(seen) == [*range(150), 152]


def test_a_stream_from_the_end_forgets_nothing_while_it_is_down(
    reader: Callable[..., Any], tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    servers = tidelog_broker.bootstrap_servers
    produce_values(servers, topic, range(10), 2)
    seen: list[Any] = []
    run_available(reader(streaming=True), tmp_path / "c", seen)
    # As if killed between the plan of its first batch and its commit.
    for commit in (tmp_path / "c" / "commits").iterdir():
        commit.unlink()
    produce_values(servers, topic, range(10, 20), 2)
    run_available(reader(streaming=True), tmp_path / "c", seen)
    assert values(seen) == list(range(10, 20))


@pytest.mark.java
def test_a_checkpoint_of_the_connector_is_kept(
    spark: Any, reader: Callable[..., Any], tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    servers = tidelog_broker.bootstrap_servers
    produce_values(servers, topic, range(50), 2)
    seen: list[Any] = []
    theirs = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    run_available(theirs, tmp_path / "c", seen)
    produce_values(servers, topic, range(50, 80), 2)
    run_available(reader(streaming=True), tmp_path / "c", seen)
    assert values(seen) == list(range(80))


def test_a_live_stream_sees_what_comes(
    reader: Callable[..., Any], tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    servers = tidelog_broker.bootstrap_servers
    seen: list[Any] = []
    query = (
        reader(streaming=True)
        .writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        while query.lastProgress is None:
            query.processAllAvailable()
        for step in range(3):
            produce_values(servers, topic, range(step * 10, step * 10 + 10), 2)
            query.processAllAvailable()
        assert values(seen) == list(range(30))
        latest = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        assert latest == {topic: {"0": 15, "1": 15}}
    finally:
        query.stop()
