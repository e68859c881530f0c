"""Kafka's own tools look at three of our brokers: topics by their trouble, the cluster itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from bench.peers.kafka import run_tool
from tests.e2e.test_cluster_cli import Shell
from tests.waiting import eventually
from tidelog.testing import Cluster

pytestmark = pytest.mark.java

TOOLS = "org.apache.kafka.tools"
FILTERS = ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")


def run(class_name: str, *arguments: str, code: int = 0) -> str:
    done = run_tool(f"{TOOLS}.{class_name}", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """With `most` that needs two in-sync replicas, `all` that needs three, `one` without a copy."""
    with Cluster(brokers=3) as running:
        shell = Shell(running.bootstrap_servers)
        shell.run("topic", "create", "most", "-p", "1", "--replicas", "3")
        shell.run(
            "topic", "create", "all", "-p", "1", "--replicas", "3",
            "--config", "min.insync.replicas=3",
        )  # fmt: skip
        shell.run("topic", "create", "one", "-p", "1", "--replicas", "1")
        yield running


def listed(cluster: Cluster, trouble: str) -> dict[str, str]:
    """What `kafka-topics --describe` lists with a filter, by topic."""
    out = run(
        "TopicCommand", "--bootstrap-server", cluster.bootstrap_servers, "--describe",
        f"--{trouble}-partitions",
    )  # fmt: skip
    return {re.split(r"\s+", line.strip())[1]: line for line in out.splitlines() if line.strip()}


def test_topics_are_listed_by_their_trouble(cluster: Cluster) -> None:
    lost = cluster.leader_of("one")
    cluster.kill(lost)
    eventually(lambda: cluster.leader_of("one") == -1)
    found = {trouble: listed(cluster, trouble) for trouble in FILTERS}
    assert {trouble: set(topics) for trouble, topics in found.items()} == {
        "under-replicated": {"most", "all", "one"},
        "unavailable": {"one"},
        "under-min-isr": {"all", "one"},
        "at-min-isr": {"most"},
    }
    # From DescribeTopicPartitions alone: who may lead again once it is back.
    assert re.search(rf"Elr: {lost}\b", found["under-min-isr"]["all"])
    assert re.search(rf"Leader: none.*Elr: {lost}\b", found["unavailable"]["one"])

    cluster.restart(lost)
    Shell(cluster.bootstrap_servers).run("cluster", "health", "--wait")
    assert {trouble: set(listed(cluster, trouble)) for trouble in FILTERS} == {
        "under-replicated": set(),
        "unavailable": set(),
        "under-min-isr": set(),
        "at-min-isr": {"all", "one"},
    }


def test_brokers_are_listed_and_unregistered(cluster: Cluster) -> None:
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    assert re.search(r"Cluster ID: [\w-]{22}$", run("ClusterTool", "cluster-id", *servers).strip())
    refused = run("ClusterTool", "unregister", "--id", "2", *servers, code=1)
    assert "Broker 2 is running. Stop it first" in refused
    assert "is not currently registered" in run(
        "ClusterTool", "unregister", "--id", "7", *servers, code=1
    )
    for topic in ("most", "all", "one"):
        Shell(cluster.bootstrap_servers).run("cluster", "reassign", topic, "--to", "0,1", "--wait")
    cluster.stop(2)

    def states() -> dict[str, str]:
        out = run("ClusterTool", "list-endpoints", "--include-fenced-brokers", *servers)
        rows = [line.split() for line in out.splitlines()]
        return {row[0]: row[4] for row in rows if row and row[0].isdecimal()}

    assert states() == {"0": "unfenced", "1": "unfenced", "2": "fenced"}
    assert "2" not in run("ClusterTool", "list-endpoints", *servers).split()
    run("ClusterTool", "unregister", "--id", "2", *servers)
    assert states() == {"0": "unfenced", "1": "unfenced"}


@pytest.mark.long
def test_directories_features_and_versions_of_every_broker_are_shown(cluster: Cluster) -> None:
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    out = run("LogDirsCommand", *servers, "--describe", "--topic-list", "most")
    shown = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    assert sorted(each["broker"] for each in shown["brokers"]) == [0, 1, 2]
    for broker in shown["brokers"]:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None and directory["logDir"].endswith(f"/{broker['broker']}")
        assert [each["partition"] for each in directory["partitions"]] == ["most-0"]

    features = run("FeatureCommand", *servers, "describe")
    assert re.search(r"metadata\.version\s.*FinalizedVersionLevel: 4\.3", features)
    assert re.search(r"group\.version\s.*FinalizedVersionLevel: 1\s", features)
    assert "can be upgraded" in run(
        "FeatureCommand", *servers, "upgrade", "--feature", "group.version=1", "--dry-run"
    )
    unknown = run("FeatureCommand", *servers, "upgrade", "--feature", "no.such=1", code=1)
    assert "no.such" in unknown

    versions = run("BrokerApiVersionsCommand", *servers)
    assert sorted(map(int, re.findall(r"\(id: (\d+) rack:", versions))) == [0, 1, 2]
    assert versions.count("DescribeTopicPartitions(75): 0 [usable: 0]") == 3
