"""The limits to hold brokers against: bare loops, with answers recorded from a real broker."""

from __future__ import annotations

from bench.peers.bare_loop import TOPIC, Answers, Recorder
from bench.peers.peer import Peer
from bench.runner import run_load
from bench.topics import fresh_topic


def recorded_answers(broker: Peer, *, java: bool) -> Answers:
    """What `broker` answers to the clients of the loads that a bare loop can take."""
    with fresh_topic(broker.bootstrap_servers, name=TOPIC), Recorder(broker.port) as recorder:
        through = f"127.0.0.1:{recorder.port}"
        common = {"pid": broker.pid, "topic": TOPIC}
        sizes = {"records": 2_000, "record_bytes": 100}
        rdkafka = sizes | common | {"bootstrap_servers": through}
        for acks in ("1", "all"):
            run_load("librdkafka.synchronous", rdkafka | {"records": 20, "acks": acks})
        run_load("librdkafka.produce", rdkafka | {"partitions": 1})
        if java:
            run_load("java.produce", rdkafka)
        raw = {"batch_bytes": 65_536, "total_bytes": 1_000_000, "in_flight": 1}
        run_load("raw.pipelined_produce", common | raw | {"port": recorder.port})
        small = {"kind": "metadata", "connections": 1, "duration_s": 0.01}
        run_load("raw.small_requests", common | small | {"port": recorder.port})
    return recorder.answers
