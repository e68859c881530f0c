"""What is killed in mid-write loses nothing; how much is there twice then is printed.

A retry inside a task attempt duplicates nothing, since an attempt is one idempotent producer. What
starts over (a task, a micro-batch) writes its rows again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.e2e.broker_process import BrokerProcess
from tests.spark.reading import duplicates, read_topic
from tests.spark.sinks import BATCHES_BEFORE_KILL, KILLED_FORMAT, KilledSink
from tests.spark.text_streams import feed, run_stream, text_stream
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.blocking import Client
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.model import TopicPartition

ROOT = Path(__file__).resolve().parents[2]
ROWS = 200_000
ARROW_ROWS = 1000
TOPIC = "kills"
PARTITIONS = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        with Client(broker.bootstrap_servers) as client:
            client.run(create_topic(client.cluster, NewTopic(TOPIC, PARTITIONS)))
        yield broker


@pytest.fixture(autouse=True)
def _small_batches(spark: SparkSession) -> Iterator[None]:
    spark.dataSource.register(KilledSink)
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(setting, str(ARROW_ROWS))
    yield
    spark.conf.unset(setting)


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, numPartitions=2).selectExpr(
        "cast(id AS string) AS key", "lpad(id, 100, '0') AS value"
    )


EXPECTED = {b"%0100d" % number for number in range(ROWS)}


def write(frame: DataFrame, broker: BrokerProcess, source: str) -> None:
    writer = frame.write.format(source).mode("append").option("topic", TOPIC)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.option("kafka.batch.size", "16384").save()


def wait_for(broker: BrokerProcess, count: int, still_running: Callable[[], bool]) -> int:
    """Wait until so many records are stored; how many there are then."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ends = dict.fromkeys(partitions, LATEST)
    with Client(broker.bootstrap_servers) as client:
        while True:
            places = client.run(list_offsets(client.cluster, ends))
            found = sum(place.offset for place in places.values())
            if found >= count:
                return found
            assert still_running(), f"the writer ended with {found} of {count} records stored"
            time.sleep(0.05)


def test_a_worker_killed_in_mid_write_is_run_again(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    """P1: a task that is run again loses nothing, and writes again what it had written."""
    write(numbers(spark), broker, KILLED_FORMAT)
    values = [record.value for record in read_topic(broker.bootstrap_servers, TOPIC)]
    twice = duplicates(values, EXPECTED)
    print(f"worker SIGKILLed after {BATCHES_BEFORE_KILL * ARROW_ROWS} rows: {twice} duplicates")
    assert twice <= BATCHES_BEFORE_KILL * ARROW_ROWS


def test_a_broker_killed_in_mid_write_costs_neither_rows_nor_duplicates(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    written = threading.Event()

    def kill_and_start() -> int:
        stored = wait_for(broker, ROWS // 20, lambda: not written.is_set())
        broker.kill()
        assert not written.is_set(), "the write was over before the broker was killed"
        broker.start()
        return stored

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_and_start)
        try:
            write(numbers(spark), broker, "tidelog")
        finally:
            written.set()
        before = killing.result()
    values = [record.value for record in read_topic(broker.bootstrap_servers, TOPIC)]
    twice = duplicates(values, EXPECTED)
    print(f"broker SIGKILLed with {before} of {ROWS} rows stored: {twice} duplicates")
    assert twice == 0


def test_a_micro_batch_whose_commit_was_lost_is_written_again(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """P2, where a topic is the target."""
    for number in range(2):
        feed(tmp_path / "in", str(number), [f"{number}-{line}" for line in range(1000)])
    checkpoint = tmp_path / "checkpoint"
    lines = text_stream(spark, tmp_path / "in")
    run_stream(lines, broker.bootstrap_servers, TOPIC, checkpoint)
    # As a driver leaves it that is killed between the sink's commit and the checkpoint's.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    run_stream(lines, broker.bootstrap_servers, TOPIC, checkpoint)
    values = [record.value for record in read_topic(broker.bootstrap_servers, TOPIC)]
    expected = {f"{number}-{line}".encode() for number in range(2) for line in range(1000)}
    twice = duplicates(values, expected)
    print(f"driver killed before the checkpoint's commit: {twice} duplicates")
    assert twice == 1000


@pytest.mark.long
def test_a_stream_goes_on_after_its_driver_was_killed(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    files, lines_each = 100, 2000
    for number in range(files):
        feed(tmp_path / "in", f"{number:03}", [f"{number}-{n}" for n in range(lines_each)])
    arguments = (broker.bootstrap_servers, TOPIC, tmp_path / "in", tmp_path / "checkpoint")
    command = [sys.executable, "-m", "tests.spark.text_streams", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            before = wait_for(broker, 3 * lines_each, lambda: driver.poll() is None)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert before < files * lines_each, "the stream was over before its driver was killed"
    lines = text_stream(spark, tmp_path / "in", files)
    run_stream(lines, broker.bootstrap_servers, TOPIC, tmp_path / "checkpoint")
    values = [record.value for record in read_topic(broker.bootstrap_servers, TOPIC)]
    expected = {f"{number}-{n}".encode() for number in range(files) for n in range(lines_each)}
    twice = duplicates(values, expected)
    print(f"driver SIGKILLed with {before} rows stored: {twice} duplicates")
    assert twice <= 2 * lines_each
