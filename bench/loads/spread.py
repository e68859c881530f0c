"""A load over the partitions of several brokers: prebuilt batches, a connection to each leader."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import AdminClient

from bench.loads.raw import pipelined
from bench.measure import Stopwatch, percentile
from bench.wire import Connection, batch_of_size, produce_error, produce_frame, record_batch

_IN_FLIGHT = 5
_SINGLE_RECORDS = 1_000


def produce(
    bootstrap_servers: str, pid: int, topic: str, partitions: int, total_bytes: int
) -> dict[str, float]:
    """Batches of 1 MB of 1 KB records to all partitions at once, five in flight on each.

    Then 100 B records one at a time, to the first partition, for p50 and p99.
    """
    batch, records = batch_of_size(1_000_000, 1_000)
    requests = [produce_frame(topic, batch, partition=each) for each in range(partitions)]
    ports = leader_ports(bootstrap_servers, topic)
    connections = [Connection(ports[each]) for each in range(partitions)]
    for connection, request in zip(connections, requests, strict=True):
        assert produce_error(connection.ask(request), topic) == 0
    count = total_bytes // len(batch) // partitions
    stopwatch = Stopwatch(pid)
    with ThreadPoolExecutor(partitions) as threads:
        answers = threads.map(
            lambda pair: pipelined(pair[0], [pair[1]], count, _IN_FLIGHT),
            zip(connections, requests, strict=True),
        )
        assert all(produce_error(answer, topic) == 0 for answer in answers)
    sent = count * partitions
    result = stopwatch.result(records=sent * records, requests=sent, bytes=sent * len(batch))
    single, took_ms = produce_frame(topic, record_batch([b"x" * 100])), []
    for _ in range(_SINGLE_RECORDS):
        start = time.perf_counter()
        connections[0].ask(single)
        took_ms.append((time.perf_counter() - start) * 1e3)
    for connection in connections:
        connection.close()
    times = {"p50_ms": percentile(took_ms, 0.50), "p99_ms": percentile(took_ms, 0.99)}
    return {**result, **times, "stored": (sent + partitions) * records + _SINGLE_RECORDS}


def leader_ports(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The port of the leader of each partition."""
    found = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(topic, timeout=30)
    ports = {node: broker.port for node, broker in found.brokers.items()}
    return {each: ports[state.leader] for each, state in found.topics[topic].partitions.items()}
