"""Loads by Kafka's own Java programs."""

from __future__ import annotations

import re

from bench.measure import cpu_seconds
from bench.peers.kafka import run_tool

# Kafka's own script gives its tools this heap; the just-in-time compiler is left whole.
_JVM_OPTIONS = ("-Xmx512M", "-server")


def produce(
    bootstrap_servers: str, pid: int, topic: str, records: int, record_bytes: int
) -> dict[str, float]:
    """ProducerPerformance with batches of 64 KB and 5 ms of lingering; idempotent, acks=all.

    The rate is that of the last three quarters: before, the client's own code is being compiled.
    The processor time is that of the broker for all records.
    """
    cpu = cpu_seconds(pid)
    done = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", "-1", "--warmup-records", str(records // 4)),
        *("--bootstrap-server", bootstrap_servers),
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
        "stored": records,
        "bytes": records * record_bytes,
        "elapsed_s": records / float(summary[2]),
        "cpu_user_s": used.user,
        "cpu_system_s": used.system,
    }
