"""Which brokers the matrix is run against, and how they are started.

They run in processes of their own: a client then meets them as it would anywhere, and what a broker
holds open is not mistaken for a leak of a test.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.peers.clusters import KafkaCluster
from bench.peers.kafka import ApacheKafka

TIDELOG, APACHE_KAFKA, OTHER = "Tidelog", "Apache Kafka", "other"
SETTINGS = {
    "auto.create.topics.enable": "false",
    # With the coordinator's own five seconds every rebalance of such a group takes as long.
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
}
# It looks for transactions that outlived their time-out every ten seconds.
KAFKA_SETTINGS = SETTINGS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
START_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Brokers:
    """Those under test; `count` is also how many replicas the cases give a topic."""

    count: int
    bootstrap_servers: str


def name() -> str:
    if os.environ.get("TIDELOG_COMPAT_BOOTSTRAP"):
        return OTHER
    asked = os.environ.get("TIDELOG_COMPAT_BROKER", "tidelog")
    if asked not in ("tidelog", "kafka"):
        raise ValueError(f"TIDELOG_COMPAT_BROKER is {asked!r}: say tidelog or kafka")
    return APACHE_KAFKA if asked == "kafka" else TIDELOG


@contextlib.contextmanager
def brokers(count: int) -> Iterator[str]:
    """The bootstrap servers of so many of the brokers that were asked for, while they run."""
    which = name()
    if which == OTHER:
        if count > 1:
            raise ValueError(
                "TIDELOG_COMPAT_BOOTSTRAP names one broker: leave out the others by -k"
            )
        yield os.environ["TIDELOG_COMPAT_BOOTSTRAP"]
    elif which == APACHE_KAFKA:
        with (ApacheKafka if count == 1 else KafkaCluster)(settings=KAFKA_SETTINGS) as kafka:
            yield kafka.bootstrap_servers
    else:
        with _tidelog(count) as bootstrap_servers:
            yield bootstrap_servers


@contextlib.contextmanager
def _tidelog(count: int) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.compat.serve", str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the broker ended with {process.wait(START_TIMEOUT_S)}")
        yield line
    finally:
        process.stdin.close()
        try:
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
