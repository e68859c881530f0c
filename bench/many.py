"""Rows of several of our brokers on one machine: how they scale, and what idle replicas cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.measure import cpu_seconds, family, resident_mb
from bench.peers.clusters import BROKERS, TidelogCluster
from bench.peers.peer import Peer
from bench.rows import Row
from bench.runner import Result, Say, brief, measured_load

_TOPICS = 10
_SETTLED_SECONDS = 5.0


def run_brokers(
    row: Row, make: Sequence[Callable[[], Peer]], rounds: int, quick: bool, say: Say
) -> Result:
    """A load on so many brokers, whose topics have one replica; one Kafka beside one of ours."""
    results: dict[str, list[Result]] = {}
    for maker in make:
        peer = maker()
        if peer.name == "tidelog":
            peer = TidelogCluster(settings=peer.settings, brokers=row.brokers, replicas=1)
        elif row.brokers > 1:
            continue
        with peer:
            for number in range(-1, rounds):
                with peer.topic(row.partitions) as topic:
                    result = measured_load(row, peer, topic, quick or number < 0)
                result["resident_mb_each"] = broker_resident_mb(peer)
                if isinstance(peer, TidelogCluster):
                    result["callback_ms"] = peer.callback_ms()
                if number >= 0:
                    results.setdefault(peer.name, []).append(result)
                    say(f"  {row.key} round {number + 1} {peer.name}: {brief(result)}")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": results}


def run_idle_replicas(row: Row, quick: bool, settings: dict[str, str], say: Say) -> Result:
    """Three brokers with replicas by the thousand, which nobody writes to or reads from."""
    sizes = row.sized(quick)
    with TidelogCluster(settings=settings) as cluster:
        began = time.monotonic()
        create_replicated_topics(cluster.bootstrap_servers, sizes["replicas"] // _TOPICS)
        created_s = time.monotonic() - began
        time.sleep(_SETTLED_SECONDS)
        processes = broker_processes(cluster)
        before = [cpu_seconds(pid).total for pid in processes]
        time.sleep(sizes["seconds"])
        used = [cpu_seconds(pid).total - cpu for pid, cpu in zip(processes, before, strict=True)]
        result: Result = {
            "elapsed_s": created_s,
            "idle_percent": max(used) / sizes["seconds"] * 100,
            "resident_mb_each": broker_resident_mb(cluster),
            "callback_ms": cluster.callback_ms(),
        }
    say(f"  {row.key} tidelog: {brief(result)}, {result['idle_percent']:.2f} % of a core")
    return {"key": row.key, "title": row.title, "kind": row.kind, "rounds": {"tidelog": [result]}}


def create_replicated_topics(bootstrap_servers: str, partitions: int) -> None:
    """Topics of three replicas; returns when every partition has all of them in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    names = [f"idle-{number}" for number in range(_TOPICS)]
    for name in names:
        admin.create_topics([NewTopic(name, partitions, BROKERS)])[name].result(60)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            topics = admin.list_topics(timeout=30).topics
            states = [each for name in names for each in topics[name].partitions.values()]
            if sum(len(each.isrs) == BROKERS for each in states) == partitions * _TOPICS:
                return
        time.sleep(0.5)
    raise RuntimeError(f"not all of {partitions * _TOPICS} partitions are in sync after 120 s")


def broker_processes(cluster: Peer) -> list[int]:
    """Those of the brokers: the children of a parent, or a broker that is alone."""
    parent, *children = family(cluster.pid)
    return children or [parent]


def broker_resident_mb(cluster: Peer) -> float:
    """Resident memory of one broker: the average of all."""
    return sum(map(resident_mb, broker_processes(cluster))) / cluster.brokers


def cluster_loop(peers: Sequence[Peer]) -> list[Result]:
    """How long our brokers' event loops were held at most, after everything asked of them."""
    title = "Three brokers after all loads of theirs"
    return [
        {
            "key": "cluster-loop",
            "title": title,
            "kind": "cluster-loop",
            "rounds": {
                "tidelog": [
                    {
                        "callback_ms": cluster.callback_ms(),
                        "resident_mb_each": broker_resident_mb(cluster),
                    }
                ]
            },
        }
        for cluster in peers
        if isinstance(cluster, TidelogCluster)
    ]
