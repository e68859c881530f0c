"""Spark reads and writes over TLS as a user; the password is in no plan and no checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog.testing import Broker, Security

PASSWORD = "canary-spark-41"


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    security = Security("SASL_SSL", "SCRAM-SHA-512", {"spark": PASSWORD})
    with Broker(security=security) as broker:
        settings = broker.client_settings("spark")
        yield {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            **{f"kafka.{name}": value for name, value in settings.items()},
        }


def test_a_stream_reads_and_writes_as_a_user(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, capfd: Any
) -> None:
    rows = spark.range(100).selectExpr("string(id) AS value")
    rows.write.format("tidelog").options(**options).option("topic", "in").mode("append").save()
    records = spark.readStream.format("tidelog").options(**options).option("subscribe", "in")
    stream = records.option("startingOffsets", "earliest").load()
    query = (
        stream.selectExpr("value")
        .writeStream.format("tidelog")
        .options(**options)
        .option("topic", "out")
        .option("exactlyOnce", "true")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    copied = spark.read.format("tidelog").options(**options).option("subscribe", "out").load()
    assert {int(row.value) for row in copied.select("value").collect()} == set(range(100))
    copied.explain(True)
    query.explain(True)
    printed = capfd.readouterr()
    assert "tidelog" in printed.out
    assert PASSWORD not in printed.out + printed.err + str(query.lastProgress)
    files = [file for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if PASSWORD.encode() in file.read_bytes()]
    with pytest.raises(Exception, match="SASL: SCRAM-SHA-512 authentication failed") as refused:
        wrong = options["kafka.sasl.jaas.config"].replace(PASSWORD, "wrong-41")
        other = {**options, "subscribe": "out", "kafka.sasl.jaas.config": wrong}
        spark.read.format("tidelog").options(**other).load().count()
    assert "wrong-41" not in str(refused.value)


@pytest.mark.java
@pytest.mark.long
def test_sparks_own_connector_reads_and_writes_as_a_user(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    rows = spark.range(100).selectExpr("string(id) AS value")
    rows.write.format("kafka").options(**options).option("topic", "of-connector").save()
    records = spark.readStream.format("kafka").options(**options)
    stream = records.option("subscribe", "of-connector").option("startingOffsets", "earliest")
    query = (
        stream.load()
        .selectExpr("value")
        .writeStream.format("kafka")
        .options(**options)
        .option("topic", "of-connector-copied")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    copied = (
        spark.read.format("kafka").options(**options).option("subscribe", "of-connector-copied")
    )
    values = copied.load().selectExpr("string(value) AS value").collect()
    assert sorted(int(row.value) for row in values) == list(range(100))
    with pytest.raises(Exception, match="SaslAuthenticationException"):
        wrong = options["kafka.sasl.jaas.config"].replace(PASSWORD, "wrong-41")
        other = {**options, "subscribe": "of-connector", "kafka.sasl.jaas.config": wrong}
        spark.read.format("kafka").options(**other).load().count()
