"""Kafka's own tools move replicas and elect leaders on three of our brokers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bench.peers.kafka import run_tool
from tests.waiting import eventually
from tidelog.client.admin import describe_configs, describe_topic
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_producer import Producer
from tidelog.model import ConfigResourceType
from tidelog.testing import Cluster

pytestmark = pytest.mark.java

SIDES = ("leader", "follower")
MOVE = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def run(cluster: Cluster, class_name: str, *arguments: str) -> str:
    done = run_tool(class_name, "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def throttles(cluster: Cluster) -> dict[str, dict[str, str | None]]:
    """What limits copying, on the topic and on each broker."""
    kinds = ConfigResourceType
    found = {}
    with Client(cluster.bootstrap_servers) as client:
        for kind, name in ((kinds.TOPIC, "t"), *((kinds.BROKER, str(each)) for each in range(3))):
            entries = client.run(describe_configs(client.cluster, kind, name))
            limits = {
                each.name: each.value
                for each in entries
                if "throttled" in each.name and each.source != "default"
            }
            if limits:
                found[name] = limits
    return found


def cluster_replicas(cluster: Cluster) -> list[int]:
    with Client(cluster.bootstrap_servers) as client:
        return client.run(describe_topic(client.cluster, "t")).partitions[0].replicas


def test_replicas_are_moved_and_preferred_leaders_elected(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    moved = {"topic": "t", "partition": 0, "replicas": [2, 0]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    with Cluster(brokers=3) as cluster:
        run(
            cluster, "org.apache.kafka.tools.TopicCommand",
            "--create", "--topic", "t", "--replica-assignment", "0:1",
        )  # fmt: skip
        file = ("--reassignment-json-file", str(plan))
        out = run(cluster, MOVE, *file, "--execute")
        assert "Successfully started partition reassignment for t-0" in out
        eventually(lambda: "is completed" in run(cluster, MOVE, *file, "--verify"))
        out = run(
            cluster, "org.apache.kafka.tools.LeaderElectionCommand",
            "--election-type", "preferred", "--all-topic-partitions",
        )  # fmt: skip
        assert "t-0" in out
        eventually(lambda: cluster.leader_of("t") == 2)

        # Another move, at a limited rate: half a megabyte takes as many seconds as it must.
        with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(50):
                producer.send(ProducerRecord("t", b"v" * 10_000, None))
        moved["replicas"] = [2, 1]
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        began = time.monotonic()
        out = run(cluster, MOVE, *file, "--execute", "--throttle", "150000")
        assert "The inter-broker throttle limit was set to 150000 B/s" in out
        assert throttles(cluster) == {
            "t": {"leader.replication.throttled.replicas": "0:0,0:2",
                  "follower.replication.throttled.replicas": "0:1"},
            **{str(each): {f"{side}.replication.throttled.rate": "150000" for side in SIDES}
               for each in range(3)},
        }  # fmt: skip
        eventually(lambda: cluster_replicas(cluster) == [2, 1])
        assert time.monotonic() - began >= 2, "three windows have not enough bytes for it"
        assert "Clearing topic-level throttles on topic t" in run(cluster, MOVE, *file, "--verify")
        assert throttles(cluster) == {}
