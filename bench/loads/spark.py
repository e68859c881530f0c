"""Spark reading and writing topics: our data source beside Spark's own Kafka connector.

All sides run in one session, in turn within each round, with the same rows and columns; what the
JVM and its Python workers use of the processor is counted with the broker's.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

import psutil  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import cloudpickle

from bench.measure import Stopwatch, percentile
from bench.peers import constant_source, spark_connector
from tidelog.spark.launch.session import open_session, session_settings

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
_STREAM_RATE = 200
_WARM_ROUNDS = 3


def _session(*, connector: bool) -> Any:
    settings = {
        **session_settings({}, tempfile.gettempdir()),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
    }
    if connector:
        settings["spark.jars"] = ",".join(str(path) for path in spark_connector.jars())
    return open_session("bench", settings)


def _tree_cpu_s() -> float:
    """Processor time of all that this process has started, what has ended included."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def compare(
    direction: str,
    sides: Mapping[str, Mapping[str, Any]],
    records: int,
    record_bytes: int,
    rounds: int,
) -> dict[str, list[dict[str, float]]]:
    """`rounds` rounds of each side after those in which the JVM compiles."""
    session = _session(connector=True)
    # Spark's Python processes need not find the bench on their path.
    cloudpickle.register_pickle_by_value(constant_source)
    session.dataSource.register(constant_source.ConstantSource)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    try:
        for number in range(-_WARM_ROUNDS, rounds):
            for name, side in sides.items():
                broker, before = Stopwatch(side["pid"]), _tree_cpu_s()
                if direction == "read":
                    _read(session, side)
                else:
                    _write(session, side, records, record_bytes)
                result = broker.result(records=records, bytes=records * record_bytes)
                result["spark_cpu_s"] = _tree_cpu_s() - before
                if number >= 0:
                    results[name].append(result)
                elif direction == "read" and number == -1:
                    found = _frame(session, side).count()
                    assert found >= records, f"{name} read {found} of {records}"
    finally:
        session.stop()
    return results


def _frame(session: Any, side: Mapping[str, Any]) -> Any:
    reader = session.read.format(side["format"]).options(**side["options"])
    return reader.load().select(*_COLUMNS)


def _read(session: Any, side: Mapping[str, Any]) -> None:
    _frame(session, side).write.format("noop").mode("overwrite").save()


def _write(session: Any, side: Mapping[str, Any], records: int, record_bytes: int) -> None:
    rows = session.range(0, records, 1, 2).selectExpr(
        "CAST(id AS STRING) AS key", f"repeat('x', {record_bytes}) AS value"
    )
    writer = rows.write.format(side["format"]).options(**side["options"])
    writer.mode("append").save()


def stream(bootstrap_servers: str, pid: int, topic: str, seconds: float) -> dict[str, float]:
    """A live topic to topic stream: how long a micro-batch takes, and a record on its way."""
    session, checkpoint = _session(connector=False), tempfile.mkdtemp()
    target = f"{topic}-out"
    query = (
        session.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
        .select("key", "value")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    ended, latencies = threading.Event(), list[float]()
    try:
        while query.lastProgress is None:
            time.sleep(0.1)
        sender = threading.Thread(target=_send, args=(bootstrap_servers, topic, ended))
        sender.start()
        stopwatch = Stopwatch(pid)
        _receive(bootstrap_servers, target, seconds, latencies)
        ended.set()
        sender.join()
        batches = [
            float(each["durationMs"]["triggerExecution"])
            for each in query.recentProgress
            if each["numInputRows"]
        ]
        result = stopwatch.result(records=len(latencies))
    finally:
        ended.set()
        query.stop()
        session.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    # The first ones pay for the JVM's warming up.
    steady = latencies[len(latencies) // 3 :]
    return {
        **result,
        "batch_p50_ms": percentile(batches[len(batches) // 3 :], 0.5),
        "arrival_p95_ms": percentile(steady, 0.95) * 1000,
    }


def _send(servers: str, topic: str, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    while not ended.wait(1 / _STREAM_RATE):
        producer.produce(topic, json.dumps({"sent": time.monotonic()}))
        producer.poll(0)
    producer.flush(10)


def _receive(servers: str, topic: str, seconds: float, latencies: list[float]) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "-", "log_level": 0})
    deadline = time.monotonic() + seconds
    consumer.assign([TopicPartition(topic, 0, 0)])
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            sent = json.loads(message.value() or b"")["sent"]
            latencies.append(time.monotonic() - sent)
    consumer.close()
