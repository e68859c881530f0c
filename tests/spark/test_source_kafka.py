"""Our source on Apache Kafka, beside Spark's own connector on the same topics: the same rows.

Apache Kafka has what our broker has not yet, transactions, and its own compaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from bench.peers.kafka import ApacheKafka
from tests.spark.topics import create, fill_with_everything, produce_values
from tidelog.arrow.columns import record_schema
from tidelog.arrow.decode import Decoder
from tidelog.arrow.scan import PartitionRange, Scan
from tidelog.client.blocking_consumer import Consumer

pytestmark = pytest.mark.java
COMPACTED_WITHIN_S = 60


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
    with ApacheKafka(settings=settings) as started:
        yield started


def rows(spark: Any, form: str, servers: str, topic: str, **options: str) -> list[Any]:
    reader = (
        spark.read.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
    )
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return sorted(reader.load().collect(), key=lambda row: (row["partition"], row["offset"]))


def fill_with_transactions(servers: str, topic: str) -> None:
    for turn in range(6):
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"writer-{turn % 2}",
                "compression.type": ("none", "zstd")[turn % 2],
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for index in range(30):
            producer.produce(topic, b"%d-%d" % (turn, index), b"k%d" % index, partition=index % 2)
        producer.flush(30)
        if turn % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def offsets_kept(servers: str, topic: str, end: int) -> int:
    """How many records there still are up to an offset, read without Spark."""
    decoder = Decoder(record_schema(("offset",)))
    with Consumer(servers) as consumer:
        scan = Scan(consumer, [PartitionRange(topic, 0, 0, end)], decoder)
        return sum(batch.num_rows for batch in scan)


def test_every_codec_headers_and_nulls(spark: Any, kafka: ApacheKafka) -> None:
    servers = kafka.bootstrap_servers
    create(servers, "everything", 2)
    count = fill_with_everything(servers, "everything")
    ours = rows(spark, "tidelog", servers, "everything")
    assert len(ours) == count
    assert ours == rows(spark, "kafka", servers, "everything")


def test_markers_of_transactions_are_no_rows_and_no_loss(spark: Any, kafka: ApacheKafka) -> None:
    """P6: markers are not misread."""
    servers = kafka.bootstrap_servers
    create(servers, "transactions", 2)
    fill_with_transactions(servers, "transactions")
    for isolation, expected in (("read_committed", 120), ("read_uncommitted", 180)):
        options = {"kafka_isolation_level": isolation}
        ours = rows(spark, "tidelog", servers, "transactions", **options)
        assert len(ours) == expected
        assert ours == rows(spark, "kafka", servers, "transactions", **options)


def test_gaps_of_compaction_are_no_loss(spark: Any, kafka: ApacheKafka, tmp_path: Path) -> None:
    """P6: gaps are not misread."""
    servers = kafka.bootstrap_servers
    create(
        servers, "compacted", 1, cleanup_policy="compact", segment_ms="100",
        min_cleanable_dirty_ratio="0.01", min_compaction_lag_ms="0",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": servers})
    deadline = time.monotonic() + COMPACTED_WITHIN_S
    produced = 0
    while offsets_kept(servers, "compacted", produced) == produced:
        assert time.monotonic() < deadline, "Kafka does not compact"
        for index in range(200):
            # Keys that come once stay between those that are replaced: gaps on both sides.
            key = b"once-%d" % produced if index % 10 == 0 else b"k%d" % (index % 20)
            producer.produce("compacted", b"%d" % index, key)
            produced += 1
        assert producer.flush(30) == 0
    ours = rows(spark, "tidelog", servers, "compacted")
    assert ours[-1]["offset"] + 1 - ours[0]["offset"] > len(ours)
    # Kafka goes on cleaning; the newest value of each key is what stays.
    newest = {row["key"]: row["value"] for row in ours}
    theirs = {row["key"]: row["value"] for row in rows(spark, "kafka", servers, "compacted")}
    assert newest == theirs
    seen: list[Any] = []
    stream = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "compacted")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert {row["key"]: row["value"] for row in seen} == newest


def test_a_stream_shows_its_lag_as_a_group_of_kafkas(
    spark: Any, kafka: ApacheKafka, tmp_path: Path
) -> None:
    from bench.peers.kafka import run_tool

    servers = kafka.bootstrap_servers
    create(servers, "lag", 2)
    produce_values(servers, "lag", range(100), 2)
    query = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "lag")
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", "lag-of-spark")
        .option("maxBytesPerTrigger", "200")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(each["numInputRows"] for each in query.recentProgress) == 100
    assert len(query.recentProgress) > 1
    done = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server", servers, "--describe", "--group", "lag-of-spark",
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("lag-of-spark")]
    assert sorted((line[2], line[3], line[4], line[5]) for line in lines) == [
        ("0", "50", "50", "0"),
        ("1", "50", "50", "0"),
    ]
