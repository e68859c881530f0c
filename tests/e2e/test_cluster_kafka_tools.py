"""Kafka's own tools move replicas and elect leaders on three of our brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.peers.kafka import run_tool
from tests.waiting import eventually
from tidelog.testing import Cluster

pytestmark = pytest.mark.java

MOVE = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def run(cluster: Cluster, class_name: str, *arguments: str) -> str:
    done = run_tool(class_name, "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
