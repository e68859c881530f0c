"""Loads by the Java client: Kafka's own ProducerPerformance, and a consumer without a group."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bench.measure import cpu_seconds
from bench.peers.kafka import class_path, run_tool

# Kafka's own script gives its tools this heap; the just-in-time compiler is left whole.
_JVM_OPTIONS = ("-Xmx512M", "-server")


def produce(
    bootstrap_servers: str, pid: int, topic: str, records: int, record_bytes: int
) -> dict[str, float]:
    """ProducerPerformance with batches of 64 KB and 5 ms of lingering; idempotent, acks=all.

    The rate is that of the last three quarters: before, the client's own code is being compiled.
    The processor time is that of the broker for all records.
    """
    result = _perform(bootstrap_servers, pid, topic, records, record_bytes)
    return {**result, "stored": records}


def in_transactions(
    bootstrap_servers: str, pid: int, topic: str, records: int, record_bytes: int
) -> dict[str, float]:
    """The same in transactions of a second, and by how much less than without them."""
    plain = _perform(bootstrap_servers, pid, topic, records, record_bytes)
    within = ("--transactional-id", f"bench-{topic}", "--transaction-duration-ms", "1000")
    result = _perform(bootstrap_servers, pid, topic, records, record_bytes, *within)
    overhead = 1 - plain["elapsed_s"] / result["elapsed_s"]
    return {**result, "overhead_percent": overhead * 100}


def _perform(
    bootstrap_servers: str, pid: int, topic: str, records: int, record_bytes: int, *options: str
) -> dict[str, float]:
    cpu = cpu_seconds(pid)
    done = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", "-1", "--warmup-records", str(records // 4)),
        *("--bootstrap-server", bootstrap_servers, *options),
        *("--command-property", "batch.size=65536", "linger.ms=5"),
        jvm_options=_JVM_OPTIONS,
        timeout_s=300,
    )
    used = cpu_seconds(pid) - cpu
    summary = re.search(r"(\d+) steady state records sent, ([\d.]+) records/sec", done.stdout)
    if done.returncode != 0 or summary is None or int(summary[1]) != records - records // 4:
        raise RuntimeError(f"ProducerPerformance failed:\n{done.stdout}{done.stderr}")
    return {
        "records": records,
        "bytes": records * record_bytes,
        "elapsed_s": records / float(summary[2]),
        "cpu_user_s": used.user,
        "cpu_system_s": used.system,
    }


def consume(
    bootstrap_servers: str, pid: int, topic: str, records: int, record_bytes: int, partitions: int
) -> dict[str, float]:
    """A consumer of kafka-clients with its partitions assigned by hand, run from its source.

    Rate and processor time are as in `produce`.
    """
    program = str(Path(__file__).with_name("AssignedConsumer.java"))
    arguments = (bootstrap_servers, topic, str(partitions), str(records))
    cpu = cpu_seconds(pid)
    done = subprocess.run(
        ["java", *_JVM_OPTIONS, "-cp", class_path(), program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    used = cpu_seconds(pid) - cpu
    if done.returncode != 0:
        raise RuntimeError(f"AssignedConsumer failed:\n{done.stdout}{done.stderr}")
    count, rate = done.stdout.split()
    return {
        "records": int(count),
        "bytes": int(count) * record_bytes,
        "elapsed_s": int(count) / float(rate),
        "cpu_user_s": used.user,
        "cpu_system_s": used.system,
    }
