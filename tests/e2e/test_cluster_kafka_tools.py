"""Kafka's own tools move replicas and elect leaders on three of our brokers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bench.peers.kafka import run_tool
from tests.e2e.test_cluster_cli import Shell
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
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"


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


def write(cluster: Cluster, count: int) -> None:
    """So many times 10 kB, acknowledged by all in-sync replicas."""
    with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(ProducerRecord("t", b"v" * 10_000, None))


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
            cluster, ELECT, "--election-type", "preferred", "--all-topic-partitions",
        )  # fmt: skip
        assert "t-0" in out
        eventually(lambda: cluster.leader_of("t") == 2)

        # Another move, at a limited rate: half a megabyte takes as many seconds as it must.
        write(cluster, 50)
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


def test_a_move_is_planned_listed_and_cancelled(tmp_path: Path) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    with Cluster(brokers=3) as cluster:
        shell = Shell(cluster.bootstrap_servers)
        shell.run("topic", "create", "t", "-p", "1", "--replicas", "1")
        (home,) = cluster_replicas(cluster)
        write(cluster, 200)
        others = [str(each) for each in range(3) if each != home]
        out = run(
            cluster, MOVE, "--generate", "--topics-to-move-json-file", str(topics),
            "--broker-list", ",".join(others),
        )  # fmt: skip
        current, proposed = (json.loads(each) for each in out.splitlines() if each.startswith("{"))
        assert current["partitions"][0]["replicas"] == [home]
        assert current["partitions"][0]["log_dirs"][0].endswith(f"/{home}")
        (target,) = proposed["partitions"][0]["replicas"]
        assert str(target) in others
        plan.write_text(json.dumps(proposed))

        # At this rate it would take minutes.
        file = ("--reassignment-json-file", str(plan))
        run(cluster, MOVE, *file, "--execute", "--throttle", "10000")
        listed = run(cluster, MOVE, "--list")
        assert f"t-0: replicas: {target},{home}. adding: {target}. removing: {home}." in listed
        assert "is still in progress" in run(
            cluster, MOVE, *file, "--verify", "--preserve-throttles"
        )
        cancelled = run(cluster, MOVE, *file, "--cancel")
        assert "Successfully cancelled partition reassignment for: t-0" in cancelled
        assert cluster_replicas(cluster) == [home] and throttles(cluster) == {}
        assert "No partition reassignments found." in run(cluster, MOVE, "--list")


@pytest.mark.long
def test_a_leader_is_elected_that_lacks_records(tmp_path: Path) -> None:
    """Only by name: a preferred election leaves the partition as it is."""
    plan = tmp_path / "partitions.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0}]}))
    with Cluster(brokers=3) as cluster:
        run(
            cluster, "org.apache.kafka.tools.TopicCommand",
            "--create", "--topic", "t", "--replica-assignment", "1:2",
        )  # fmt: skip
        write(cluster, 1)
        cluster.stop(2)
        write(cluster, 1)
        cluster.kill(1)
        cluster.restart(2)
        eventually(lambda: cluster.leader_of("t") == -1)
        servers, file = ("--bootstrap-server", cluster.bootstrap_servers), str(plan)
        preferred = run_tool(
            ELECT, *servers, "--election-type", "preferred", "--path-to-json-file", file
        )
        assert "PreferredLeaderNotAvailableException" in preferred.stdout
        assert preferred.returncode == 1 and cluster.leader_of("t") == -1
        out = run(cluster, ELECT, "--election-type", "unclean", "--path-to-json-file", file)
        assert "Successfully completed leader election (UNCLEAN) for partitions t-0" in out
        eventually(lambda: cluster.leader_of("t") == 2)
