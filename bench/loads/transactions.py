"""Loads of transactions: by the Java client in version 2 of the protocol, by librdkafka in 1."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.measure import Stopwatch, cpu_seconds, percentile
from bench.peers.kafka import class_path

_STATE_TOPIC = "__transaction_state"
_JVM_OPTIONS = ("-Xmx512M", "-server")
_SECONDS = 30.0


def java(
    bootstrap_servers: str,
    pid: int,
    topic: str,
    transactions: int,
    records: int,
    durability: str | None = None,
) -> dict[str, float]:
    """Transactions of so many records of 100 B, each committed before the next begins."""
    set_durability(bootstrap_servers, durability)
    program = str(Path(__file__).with_name("Transactions.java"))
    arguments = (bootstrap_servers, topic, str(transactions), str(records), "100")
    cpu = cpu_seconds(pid)
    done = subprocess.run(
        ["java", *_JVM_OPTIONS, "-cp", class_path(), program, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    used = cpu_seconds(pid) - cpu
    if done.returncode != 0:
        raise RuntimeError(f"Transactions failed:\n{done.stdout}{done.stderr}")
    counted, seconds, p50, p99 = done.stdout.split()
    share = int(counted) / transactions
    return {
        "transactions": int(counted),
        "elapsed_s": float(seconds),
        "cpu_user_s": used.user * share,
        "cpu_system_s": used.system * share,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
    }


def librdkafka(
    bootstrap_servers: str,
    pid: int,
    topic: str,
    transactions: int,
    records: int,
    durability: str | None = None,
) -> dict[str, float]:
    """The same by librdkafka; the first tenth is not counted."""
    set_durability(bootstrap_servers, durability)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": f"bench-{topic}",
            "linger.ms": 0 if records == 1 else 5,
        }
    )
    producer.init_transactions(_SECONDS)
    value, took_ms, unmeasured = b"x" * 100, [], transactions // 10
    for number in range(transactions + unmeasured):
        if number == unmeasured:
            stopwatch = Stopwatch(pid)
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=0)
        producer.flush(_SECONDS)
        start = time.perf_counter()
        producer.commit_transaction(_SECONDS)
        took_ms.append((time.perf_counter() - start) * 1e3)
    result = stopwatch.result(transactions=transactions)
    counted = took_ms[unmeasured:]
    times = {"p50_ms": percentile(counted, 0.50), "p99_ms": percentile(counted, 0.99)}
    return {**result, **times}


def set_durability(bootstrap_servers: str, durability: str | None) -> None:
    """Have a Tidelog broker answer before, or after, the log of transactions is on the disk.

    Apache Kafka has no such setting: it answers before.
    """
    if durability is None:
        return
    first = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "bench-first"})
    first.init_transactions(_SECONDS)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    (described,) = admin.describe_configs([ConfigResource("topic", _STATE_TOPIC)]).values()
    if "durability" not in described.result(_SECONDS):
        return
    entry = ConfigEntry("durability", durability, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", _STATE_TOPIC, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(_SECONDS)
