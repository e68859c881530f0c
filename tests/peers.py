"""Apache Kafka as a parameter of fixtures, for tests that hold of every broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.peers.kafka import ApacheKafka, ApacheKafka3
from tidelog.testing import Broker

KAFKA_4 = pytest.param(ApacheKafka, id="kafka-4", marks=pytest.mark.java)
# In the long tier: they repeat on another broker what a faster run has tried.
KAFKA_4_LONG = pytest.param(ApacheKafka, id="kafka-4", marks=[pytest.mark.java, pytest.mark.long])
KAFKA_3_LONG = pytest.param(
    ApacheKafka3, id="kafka-3.9", marks=[pytest.mark.java, pytest.mark.long]
)
TIDELOG = pytest.param(None, id="tidelog")


@contextmanager
def serving(kafka: type[ApacheKafka] | None, broker: Broker) -> Iterator[str]:
    """The bootstrap servers of such a Kafka, or of the session's broker."""
    if kafka is None:
        yield broker.bootstrap_servers
        return
    with kafka() as started:
        yield started.bootstrap_servers
