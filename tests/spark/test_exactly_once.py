"""With `exactlyOnce` every row is there once for readers of committed records, whatever is killed.

P1 is a task that is run again, P2 a driver killed between two commits, P3 two drivers on one
checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tests.e2e.broker_process import BrokerProcess
from tests.spark.reading import read_committed
from tests.spark.text_streams import feed, run_stream, text_stream
from tests.spark.topics import create, produce_values
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.batching import Identity
from tidelog.client.blocking import Client
from tidelog.client.transaction_admin import TransactionFilter, list_transactions
from tidelog.client.transactions import PreparedTransaction
from tidelog.errors import TidelogError
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Mode, PipelineError
from tidelog.spark.sink.broker_port import BrokerPort
from tidelog.spark.sink.decisions import Decision
from tidelog.spark.sink.once import OnceStreamWriter
from tidelog.spark.sink.writer import stream_writer

TOPIC = "once"
LINES = 3_000
ONCE = {"exactlyOnce": "true", "kafka.batch.size": "16384"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("once") / "data") as broker:
        yield broker


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)
    with Client(broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic(name, 2)))
    return name


def lines_of(number: int) -> list[str]:
    return [f"{number}-{line}" for line in range(LINES)]


def expected(*numbers: int) -> Counter[bytes]:
    return Counter(line.encode() for number in numbers for line in lines_of(number))


def listed(broker: BrokerProcess, pattern: str) -> dict[str, str]:
    """The states of the sinks' transactional ids."""
    with Client(broker.bootstrap_servers) as client:
        found = client.run(list_transactions(client.cluster, TransactionFilter(pattern=pattern)))
    return {each.transactional_id: each.state for each in found}


def test_p2_a_micro_batch_that_comes_again_is_not_written_again(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """And its transactional ids are used again from batch to batch."""
    checkpoint = tmp_path / "checkpoint"
    lines = text_stream(spark, tmp_path / "in")
    servers = broker.bootstrap_servers
    for number in range(3):
        feed(tmp_path / "in", str(number), lines_of(number))
    run_stream(lines, servers, topic, checkpoint, **ONCE)
    assert Counter(read_committed(servers, topic)) == expected(0, 1, 2)
    # As a driver leaves it that is killed between the sink's commit and the checkpoint's.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink()
    feed(tmp_path / "in", "3", lines_of(3))
    run_stream(lines, servers, topic, checkpoint, **ONCE)
    assert Counter(read_committed(servers, topic)) == expected(0, 1, 2, 3)
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    # One for the only task of each micro-batch.
    states = listed(broker, rf"tidelog-sink\.{query}\..*")
    assert len(states) == 1 and "Ongoing" not in states.values(), states


class DyingWriter(OnceStreamWriter):
    """The first attempt of each task ends as if the machine had been switched off."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return super().write(self._until_killed(iterator))

    def _until_killed(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task: Any = TaskContext.get()
        for number, batch in enumerate(iterator):
            if number == 2 and task.attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


class DyingSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog_dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> OnceStreamWriter:
        made = stream_writer(schema, self.options, overwrite)
        assert isinstance(made, OnceStreamWriter)
        return DyingWriter(made._settings, made._once)


def test_p1_an_attempt_that_is_killed_leaves_nothing_visible_and_nothing_open(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    spark.dataSource.register(DyingSink)
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(setting, "500")
    try:
        for number in range(2):
            feed(tmp_path / "in", str(number), lines_of(number))
        writer = text_stream(spark, tmp_path / "in").writeStream.format("tidelog_dying")
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        writer = writer.option("topic", topic).options(**ONCE).option("txnAppId", "dying")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(setting)
    assert Counter(read_committed(broker.bootstrap_servers, topic)) == expected(0, 1)
    states = listed(broker, r"tidelog-sink\.dying\..*")
    assert len(states) == 2 and "Ongoing" not in states.values(), states


class DyingPort(BrokerPort):
    """The driver's process ends at a request, before it is sent or when it was answered.

    The points are files in a directory, each of which is used up.
    """

    points: Path

    def write(self, driver: Identity, decision: Decision) -> Identity:
        name = "done" if decision.is_done else "decision"
        return self._at(name, lambda: super(DyingPort, self).write(driver, decision))

    def end(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[TidelogError | None]:
        """One after the other, so that there is a moment between them."""
        errors: list[TidelogError | None] = []
        for number, each in enumerate(transactions, 1):
            end = partial(super().end, [each], commit=commit)
            errors += self._at(f"end-{number}", end)
        return errors

    def _at(self, name: str, request: Callable[[], Any]) -> Any:
        self._die(f"before-{name}")
        answer = request()
        self._die(f"after-{name}")
        return answer

    def _die(self, point: str) -> None:
        try:
            (self.points / point).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class DyingDriverWriter(OnceStreamWriter):
    def _port(self, prefix: str) -> BrokerPort:
        settings = self._settings
        port = DyingPort(settings.servers, settings.producer.client, prefix, self._once.timeout_ms)
        port.points = Path(self._once.checkpoint).parent / "points"
        return port


class DyingDriverSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog_dying_driver"

    def streamWriter(self, schema: StructType, overwrite: bool) -> OnceStreamWriter:
        made = stream_writer(schema, self.options, overwrite)
        assert isinstance(made, OnceStreamWriter)
        return DyingDriverWriter(made._settings, made._once)


# In a batch of two tasks; each is followed by a start that has to put it right.
POINTS = ("before-decision", "after-decision", "after-end-1", "before-done", "after-done")


def test_p2_a_driver_is_killed_at_each_step_of_its_commit(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    spark.dataSource.register(DyingDriverSink)
    points = tmp_path / "points"
    points.mkdir()
    lines = text_stream(spark, tmp_path / "in").repartition(2)
    writer = lines.writeStream.format("tidelog_dying_driver")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer = writer.option("topic", topic).options(**ONCE)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.trigger(availableNow=True)
    for number, point in enumerate(POINTS):
        feed(tmp_path / "in", str(number), lines_of(number))
        (points / point).touch()
        with pytest.raises(Exception, match=r"(?s)."):
            writer.start().awaitTermination()
        assert not list(points.iterdir()), f"the driver was not killed {point}"
    writer.start().awaitTermination()
    values = Counter(read_committed(broker.bootstrap_servers, topic))
    assert values == expected(*range(len(POINTS)))
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    states = listed(broker, rf"tidelog-sink\.{query}\..*")
    assert len(states) == 2 and "Ongoing" not in states.values(), states


def test_a_version_of_a_batch_write_is_written_once(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    frame = spark.range(0, 1000, numPartitions=2).selectExpr("cast(id AS string) AS value")
    for version in (0, 0, 1):
        writer = frame.write.format("tidelog").mode("append").options(**ONCE)
        writer = writer.option("txnAppId", "batches").option("txnVersion", str(version))
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option(
            "topic", topic
        ).save()
    values = Counter(read_committed(broker.bootstrap_servers, topic))
    assert values == Counter({b"%d" % number: 2 for number in range(1000)})


def test_a_batch_write_that_fails_leaves_nothing_visible(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    """All or nothing: one task fails for good when the other is through."""
    frame = spark.range(0, 1000, numPartitions=2).selectExpr(
        "cast(id AS string) AS value",
        "if(id = 999, cast(raise_error('bad row') AS int), 0) AS partition",
    )
    writer = frame.write.format("tidelog").mode("append").options(**ONCE)
    writer = writer.option("txnAppId", "failing").option("txnVersion", "0")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    with pytest.raises(Exception, match="bad row"):
        writer.option("topic", topic).save()
    assert read_committed(broker.bootstrap_servers, topic) == []


PIPELINE = """\
pipeline: {topic}
connect: {{bootstrap.servers: "{servers}"}}
checkpoint: ./state
sources:
  numbers: {{topic: {topic}, value: text, limit: {{rows: 100}}}}
steps:
  all: {{sql: "SELECT value FROM numbers"}}
  counts: {{sql: "SELECT length(value) AS digits, count(*) AS n FROM numbers GROUP BY 1"}}
targets:
  copy: {{from: all, topic: {topic}-copy, value: text, exactly_once: true}}
  counts: {{from: counts, topic: {topic}-counts, key: digits, emit: updates, exactly_once: true}}
"""


def catch_up(spark: SparkSession, file: Path, mode: Mode = Mode.CATCH_UP) -> None:
    from tidelog.pipelines.run.runner import Runner, RunSettings

    pipeline = load_pipeline(file, {})
    settings = RunSettings(mode, publish=False)
    reports = Runner(spark, pipeline, check_static(pipeline), settings).run()
    assert all(str(each.state) == "done" for each in reports), reports


def test_p2_a_pipelines_targets_are_exactly_once_updates_too(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    servers, topic = broker.bootstrap_servers, "numbers"
    for name in (topic, f"{topic}-copy", f"{topic}-counts"):
        create(servers, name, 2)
    produce_values(servers, topic, range(250), 2)
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.format(topic=topic, servers=servers))
    catch_up(spark, file)
    updates = Counter(read_committed(servers, f"{topic}-counts"))
    last = max(int(each.name) for each in (tmp_path / "state/copy/commits").glob("[0-9]*"))
    assert last == 2
    # As drivers leave it that are killed between the sinks' commits and the checkpoints'.
    for target in ("copy", "counts"):
        for name in (f"{last}", f".{last}.crc"):
            (tmp_path / "state" / target / "commits" / name).unlink(missing_ok=True)
    catch_up(spark, file)
    assert Counter(read_committed(servers, f"{topic}-counts")) == updates
    copied = Counter(read_committed(servers, f"{topic}-copy"))
    assert copied == Counter(b"%d" % number for number in range(250))
    # What would write rows again is refused: history as a batch, and going back.
    with pytest.raises(PipelineError, match=r"target copy is exactly_once.*--into DIR"):
        catch_up(spark, file, Mode.BATCH)
    file.write_text(file.read_text().replace(", value: text, exactly_once: true", ", value: text"))
    with pytest.raises(PipelineError, match="to a topic, exactly once and now to a topic"):
        catch_up(spark, file)


@pytest.mark.parametrize("option", ["exactlyOnce", "txnAppId"])
def test_a_pipeline_says_exactly_once_beside_the_topic(tmp_path: Path, option: str) -> None:
    from tidelog.pipelines.run.option_check import check_options

    file = tmp_path / "p.yaml"
    text = PIPELINE.format(topic="t", servers="127.0.0.1:1")
    wrong = f"options: {{{option}: x}}"
    file.write_text(text.replace("value: text, exactly_once: true", f"value: text, {wrong}"))
    with pytest.raises(PipelineError, match=f"target copy: option '{option}' is not for a pipe"):
        check_options(load_pipeline(file, {}))
