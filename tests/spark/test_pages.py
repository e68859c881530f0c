"""The Spark code on the pages runs as it stands there, block after block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.reading import read_committed
from tests.spark.text_streams import feed, text_stream
from tests.spark.topics import create
from tests.unit.docs.pages import ROOT, blocks
from tidelog.testing import Broker

CLICKS = [{"user": f"user-{n % 3}", "page": f"/{n % 2}", "at": "2026-01-01"} for n in range(6)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        for topic in ("greetings", "clicks", "orders", "changes", "page-counts", "totals"):
            create(broker.bootstrap_servers, topic, 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for click in CLICKS:
            producer.produce("clicks", json.dumps(click))
        assert producer.flush(30) == 0
        yield broker


def run_page(page: str, names: dict[str, Any], broker: Broker, directory: Path) -> int:
    """Run a page's blocks in one namespace, each stream up to its end; how many there are."""
    code = [block.text for block in blocks(ROOT / page) if block.language == "py"]
    for number, text in enumerate(code):
        text = text.replace("127.0.0.1:9092", broker.bootstrap_servers)
        # Relative paths would count from where the JVM was started.
        text = text.replace('"lake/', f'"{directory}/lake/')
        text = text.replace('"state/', f'"{directory}/{number}/state/')
        exec(compile(text, f"{page}, block {number}", "exec"), names)
        for query in names["spark"].streams.active:
            query.processAllAvailable()
            query.stop()
    return len(code)


def values(broker: Broker, topic: str) -> list[bytes]:
    return sorted(each or b"" for each in read_committed(broker.bootstrap_servers, topic))


def test_the_readme(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark}
    assert run_page("README.md", names, broker, tmp_path) == 1
    assert names["df"].isStreaming


def test_reading(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    source = spark.read.format("tidelog").option("subscribe", "clicks")
    records = source.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    names: dict[str, Any] = {"spark": spark, "records": records}
    assert run_page("docs/spark.md", names, broker, tmp_path) == 2
    assert sorted(row.user for row in names["rows"].collect()) == sorted(
        click["user"] for click in CLICKS
    )
    assert names["dead"].count() == 0


def test_writing(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    feed(tmp_path / "input", "first", ["a", "b"])
    changes = text_stream(spark, tmp_path / "input")
    names: dict[str, Any] = {
        "spark": spark,
        "orders": spark.createDataFrame([("alice", 3)], "customer STRING, amount INT"),
        "totals": spark.createDataFrame([("3",)], "value STRING"),
        "changes": changes,
        "clicks": changes.selectExpr("value AS page"),
    }
    assert run_page("docs/spark-sink.md", names, broker, tmp_path) == 5
    assert values(broker, "orders") == [b'{"customer":"alice","amount":3}']
    assert values(broker, "changes") == [b"a", b"a", b"b", b"b"], "by two of the page's queries"
    assert values(broker, "page-counts") == [b'{"views":1}', b'{"views":1}']
    assert values(broker, "totals") == [b"3"]


def test_tables(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    assert run_page("docs/tables.md", {"spark": spark}, broker, tmp_path) == 2
    table = DeltaTable(str(tmp_path / "lake" / "visits")).to_pyarrow_table()
    assert sorted(table["user"].to_pylist()) == sorted(click["user"] for click in CLICKS)
