"""Rows that Spark writes, read back by librdkafka: content, places, errors, streams."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.reading import read_topic
from tests.spark.text_streams import feed, run_stream, text_stream
from tests.spark.topics import CODECS
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.blocking import Client
from tidelog.client.partitioner import partition_for_key
from tidelog.testing import Broker

PARTITIONS = 4
HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture
def broker(tidelog_broker: Broker) -> Broker:
    return tidelog_broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"sink-{uuid.uuid4().hex[:8]}"
    with Client(broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic(name, PARTITIONS)))
    return name


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    writer = frame.write.format("tidelog").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.options(**{name.replace("_", "."): value for name, value in options.items()}).save()


def rows() -> list[tuple[Any, ...]]:
    """Every mixture of null, empty and filled."""
    keys = [None, b"", b"k", b"a-longer-key", "ü".encode()]
    values = [None, b"", b"v" * 700]
    lists = [None, [], [("h", b"x")], [("h", None), ("h", b""), ("ü", b"\xff")]]
    return [
        (key, value, headers, partition)
        for key in keys
        for value in values
        for headers in lists
        for partition in (None, 2)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_read_back_as_they_were_written(
    spark: SparkSession, broker: Broker, topic: str, codec: str
) -> None:
    given = rows()
    frame = spark.createDataFrame(
        given, f"key binary, value binary, headers {HEADERS}, partition int"
    )
    write(frame, broker, topic=topic, kafka_compression_type=codec)
    found = read_topic(broker.bootstrap_servers, topic)

    def place(key: bytes | None, partition: int | None) -> int | None:
        if partition is None and key is not None:
            return partition_for_key(key, PARTITIONS)
        return partition

    kept = [(r.key, r.value, tuple((n, v) for n, v in r.headers), r.partition) for r in found]
    assert Counter(each[:3] for each in kept) == Counter(
        (key, value, tuple(headers or ())) for key, value, headers, _ in given
    )
    # Rows without key and partition go anywhere, also to where equal rows were sent.
    placed = Counter(
        (key, value, tuple(headers or ()), place(key, partition))
        for key, value, headers, partition in given
        if place(key, partition) is not None
    )
    assert placed <= Counter(kept)


def test_rows_of_a_key_keep_the_order_of_their_task(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    frame = spark.range(0, 50_000, numPartitions=2).selectExpr(
        "concat(spark_partition_id(), '-', id % 50) AS key", "cast(id AS string) AS value"
    )
    write(frame, broker, topic=topic, kafka_batch_size="5000")
    seen: dict[bytes, list[int]] = {}
    places: dict[bytes, set[int]] = {}
    for record in read_topic(broker.bootstrap_servers, topic):
        assert record.key is not None and record.value is not None
        seen.setdefault(record.key, []).append(int(record.value))
        places.setdefault(record.key, set()).add(record.partition)
    assert sum(map(len, seen.values())) == 50_000
    assert all(values == sorted(values) for values in seen.values())
    assert all(places[key] == {partition_for_key(key, PARTITIONS)} for key in seen)


def test_text_may_come_in_large_columns(spark: SparkSession, broker: Broker, topic: str) -> None:
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(setting, "true")
    try:
        frame = spark.createDataFrame(
            [("k", "läuft", [("h", b"x")]), (None, None, None)],
            f"key string, value string, headers {HEADERS}",
        )
        write(frame, broker, topic=topic)
    finally:
        spark.conf.unset(setting)
    found = {(r.key, r.value, r.headers) for r in read_topic(broker.bootstrap_servers, topic)}
    assert found == {(b"k", "läuft".encode(), (("h", b"x"),)), (None, None, ())}


def test_the_topic_column_is_used_unless_the_option_names_a_topic(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    frame = spark.createDataFrame(
        [("one", f"{topic}-a"), ("two", f"{topic}-b"), ("three", f"{topic}-a")],
        "value string, topic string",
    )
    write(frame, broker)
    write(frame, broker, topic=topic)
    found = {
        name: sorted(record.value or b"" for record in read_topic(broker.bootstrap_servers, name))
        for name in (f"{topic}-a", f"{topic}-b", topic)
    }
    assert found[f"{topic}-a"] == [b"one", b"three"]
    assert found[f"{topic}-b"] == [b"two"]
    assert found[topic] == [b"one", b"three", b"two"]


def test_a_timestamp_column_is_the_records_time(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    frame = spark.sql(
        "SELECT 'a' AS value, timestamp_millis(1700000000123) AS timestamp"
        " UNION ALL SELECT 'b', NULL"
    )
    write(frame, broker, topic=topic)
    found = {r.value: r.timestamp_ms for r in read_topic(broker.bootstrap_servers, topic)}
    assert found[b"a"] == 1_700_000_000_123
    assert found[b"b"] > 1_700_000_000_123


@pytest.mark.parametrize(
    ("query", "options", "complaint"),
    [
        ("SELECT 1 AS value", {}, "column 'value' has the type int"),
        ("SELECT 'x' AS value", {"topicc": "t"}, "option 'topicc' is unknown; did you mean"),
        ("SELECT 'x' AS value", {"kafka_sasl_mechanism": "PLAIN"}, "sasl.mechanism is set"),
        ("SELECT 'x' AS value, string(null) AS topic", {"topic": ""}, "option 'topic' is empty"),
    ],
)
def test_what_cannot_be_written_is_said_before_a_task_runs(
    spark: SparkSession, broker: Broker, query: str, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        write(spark.sql(query), broker, **({"topic": "t"} | options))
    assert complaint in str(refused.value)


def test_a_row_that_cannot_be_written_fails_the_query_and_says_why(
    spark: SparkSession, broker: Broker
) -> None:
    with pytest.raises(PySparkException) as refused:
        write(spark.sql("SELECT 'x' AS value, string(null) AS topic"), broker)
    assert "column 'topic' holds a null" in str(refused.value)


def test_modes_other_than_append_are_refused(spark: SparkSession, broker: Broker) -> None:
    writer = spark.sql("SELECT 'x' AS value").write.format("tidelog")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for mode, complaint in (("overwrite", "mode('append')"), ("errorifexists", "Append")):
        with pytest.raises(AnalysisException) as refused:
            writer.mode(mode).option("topic", "t").save()
        assert complaint in str(refused.value)


# ---- streams -------------------------------------------------------------------------------


def test_a_stream_appends_and_goes_on_where_it_was(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    lines = text_stream(spark, tmp_path / "in")
    for number in range(2):
        feed(tmp_path / "in", str(number), [f"{number}-{line}" for line in range(100)])
        run_stream(lines, broker.bootstrap_servers, topic, tmp_path / "checkpoint")
    found = [record.value for record in read_topic(broker.bootstrap_servers, topic)]
    expected = {f"{number}-{line}".encode() for number in range(2) for line in range(100)}
    assert len(found) == 200
    assert set(found) == expected


@pytest.mark.parametrize(
    ("mode", "complaint"), [("complete", "foreachBatch"), ("update", "does not support Update")]
)
def test_a_stream_that_changes_its_results_is_refused_with_the_remedy(
    spark: SparkSession, broker: Broker, tmp_path: Path, mode: str, complaint: str
) -> None:
    feed(tmp_path / "in", "0", ["x"])
    counts = text_stream(spark, tmp_path / "in").groupBy("value").count()
    with pytest.raises(PySparkException) as refused:
        writer = counts.select("value").writeStream.format("tidelog").outputMode(mode)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).option("topic", "t")
        writer.trigger(availableNow=True).start().awaitTermination()
    assert complaint in str(refused.value)


def test_updating_aggregates_go_through_for_each_batch(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    counts = text_stream(spark, tmp_path / "in").groupBy("value").count()

    def update(frame: DataFrame, batch_id: int) -> None:
        updates = frame.selectExpr("value AS key", "to_json(struct(count)) AS value")
        write(updates, broker, topic=topic)

    for number in range(3):
        feed(tmp_path / "in", str(number), ["a"] * (number + 1) + ["b"] * (number % 2))
        query = (
            counts.writeStream.outputMode("update")
            .foreachBatch(update)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    latest = {
        r.key: json.loads(r.value or b"") for r in read_topic(broker.bootstrap_servers, topic)
    }
    assert latest == {b"a": {"count": 6}, b"b": {"count": 1}}
