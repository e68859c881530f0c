"""Our source and sink on Apache Kafka 4 and 3.9, beside Spark's own connector: the same rows.

Apache Kafka has what our broker has not yet, transactions, and its own compaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import tidelog
from bench.peers.kafka import ApacheKafka, run_tool
from tests.peers import KAFKA_3_LONG, KAFKA_4
from tests.spark.processes import wait_for
from tests.spark.reading import read_topic
from tests.spark.topics import CODECS, create, fill_with_everything, produce_values
from tidelog.arrow.columns import record_schema
from tidelog.arrow.decode import Decoder
from tidelog.arrow.scan import PartitionRange, Scan, ScanPolicy
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.partitioner import partition_for_key
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import TidelogError
from tidelog.model import Isolation, TopicPartition
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.run.brokers import log_ends, open_client
from tidelog.spark.source.open_transactions import PATIENCE_S
from tidelog.spark.source.progress import QueryProgress
from tidelog.spark.source.read_options import parse
from tidelog.spark.source.topics import Topics

COMPACTED_WITHIN_S = 60
PARTITIONS = 4


@pytest.fixture(scope="module", params=[KAFKA_4, KAFKA_3_LONG])
def kafka(request: pytest.FixtureRequest) -> Iterator[ApacheKafka]:
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
    with request.param(settings=settings) as started:
        yield started


class ManualClock:
    """Time that passes when the test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


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
    table = tidelog.read("everything", bootstrap_servers=servers, columns=["offset", "value"])
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (row["offset"], row["value"]) for row in ours
    ]


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


class HeldTopic:
    """Ten records, a transaction of five that is left open, and seven behind it."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic
        create(servers, topic, 1)
        produce_values(servers, topic, range(10))
        settings = {"bootstrap.servers": servers, "transactional.id": f"writer-of-{topic}"}
        self.writer = Producer(settings)
        self.writer.init_transactions(30)
        self.begin(range(10, 15))
        produce_values(servers, topic, range(15, 22))

    def begin(self, values: range) -> None:
        self.writer.begin_transaction()
        for value in values:
            self.writer.produce(self.topic, b"%d" % value, partition=0)
        assert self.writer.flush(30) == 0

    def end(self, *, commit: bool) -> None:
        """End it, and wait for its marker, which comes behind the answer."""
        (self.writer.commit_transaction if commit else self.writer.abort_transaction)(30)
        wanted = {TopicPartition(self.topic, 0): LATEST}
        with Client(self.servers) as client:

            def end_of(isolation: Isolation) -> int:
                ((_, place),) = client.run(list_offsets(client.cluster, wanted, isolation)).items()
                return place.offset

            levels = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
            wait_for(lambda: len({end_of(level) for level in levels}) == 1)

    @property
    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }


def test_p6_an_open_transaction_holds_a_stream_back_and_then_it_goes_on(
    spark: Any, kafka: ApacheKafka, tmp_path: Path
) -> None:
    """Neither a batch nor a stream waits for its end; nothing behind it is lost."""
    held = HeldTopic(kafka.bootstrap_servers, "held")

    def catch_up() -> list[int]:
        seen: list[int] = []
        query = (
            spark.readStream.format("tidelog").options(**held.options).load().writeStream
            .foreachBatch(lambda rows, _: seen.extend(int(row.value) for row in rows.collect()))
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sorted(seen)

    batch = rows(spark, "tidelog", held.servers, "held", kafka_isolation_level="read_committed")
    assert [int(row["value"]) for row in batch] == list(range(10))
    assert catch_up() == list(range(10))
    held.end(commit=True)
    held.begin(range(100, 105))
    held.end(commit=False)
    assert catch_up() == list(range(10, 22)), "behind markers, and without what was aborted"


def test_p6_a_query_that_an_open_transaction_holds_back_says_so(kafka: ApacheKafka) -> None:
    held = HeldTopic(kafka.bootstrap_servers, "held-and-told")
    parsed = parse({**held.options, "kafka.metadata.max.age.ms": "0"}, streaming=True)
    topics, clock, log = Topics(parsed), ManualClock(), []
    try:
        progress = QueryProgress(parsed, topics, clock, log.append)
        first = progress.advance(progress.initial(), unlimited=False)
        assert first.next == {TopicPartition("held-and-told", 0): 10}
        clock.now += PATIENCE_S
        assert progress.advance(first, unlimited=False) is first, "it stands"
        assert log == [
            "held-and-told-0: an open transaction at offset 10 holds back 12 offsets, for"
            f" {PATIENCE_S:.0f} s now; read_committed waits for its end"
        ]
        held.end(commit=False)
        clock.now += PATIENCE_S
        following = progress.advance(first, unlimited=False)
        assert following.next == {TopicPartition("held-and-told", 0): 23}, "with the marker"
        assert log[1:] == ["held-and-told-0: the transaction at offset 10 has ended; going on"]
    finally:
        topics.close()


def test_p6_a_batch_beyond_an_open_transaction_is_told_and_ends(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    held = HeldTopic(kafka.bootstrap_servers, "held-batch")
    settings = ConsumerSettings(isolation=Isolation.READ_COMMITTED)
    decoder, policy = Decoder(record_schema(("offset",))), ScanPolicy(stall_timeout_ms=3_000)
    with Consumer(held.servers, settings) as consumer:
        scan = Scan(consumer, [PartitionRange("held-batch", 0, 0, 22)], decoder, policy)
        with pytest.raises(TidelogError, match="an open transaction stands there"):
            assert sum(batch.num_rows for batch in scan) == 10

    (tmp_path / "p.yaml").write_text(
        f"pipeline: p\nconnect: {{bootstrap.servers: '{held.servers}'}}\n"
        "sources: {a: {topic: held-batch, options: {kafka.isolation.level: read_committed}}}\n"
        "targets: {t: {from: a, topic: u, value: raw}}\n"
    )
    pipeline = load_pipeline(tmp_path / "p.yaml", {})
    with open_client(pipeline) as client:
        ends = log_ends(client, pipeline, pipeline.sources["a"])
    assert ends == {TopicPartition("held-batch", 0): 10}
    held.end(commit=False)


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


def test_rows_are_written_with_every_codec(spark: Any, kafka: ApacheKafka) -> None:
    rows = spark.range(0, 20_000, numPartitions=2).selectExpr(
        "cast(id AS string) AS key", "cast(id AS string) AS value",
        "array(struct('id' AS key, cast(string(id) AS binary) AS value)) AS headers",
    )  # fmt: skip
    for codec in CODECS:
        topic = f"written-{codec}"
        create(kafka.bootstrap_servers, topic, PARTITIONS)
        writer = rows.write.format("tidelog").mode("append").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer.option("compression", codec).option("kafka.batch.size", "20000").save()
        found = read_topic(kafka.bootstrap_servers, topic)
        assert len(found) == len({record.value for record in found}) == 20_000
        for record in found:
            assert record.key is not None and record.key == record.value
            assert record.headers == (("id", record.key),)
            assert record.partition == partition_for_key(record.key, PARTITIONS)
