"""Replicas moved, leaders elected and brokers taken out from the command line, on real brokers."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually
from tidelog.cli.main import main
from tidelog.client.admin import describe_configs
from tidelog.client.blocking import Client
from tidelog.client.blocking_producer import Producer
from tidelog.client.producer import ProducerRecord
from tidelog.model import ConfigResourceType
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=4, settings={"default.replication.factor": 1}) as running:
        yield running


class Shell:
    """`tidelog …` against one cluster, without the price of a process for each command."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def run(self, *arguments: str, code: int = 0) -> str:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main([*arguments, *(["-b", self._servers] if self._servers else [])])
        assert ended.value.code == code, out.getvalue() + err.getvalue()
        return (out if arguments[-1] == "json" else err).getvalue()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--format", "json"))

    def replicas(self, topic: str) -> list[list[int]]:
        (described,) = self.json("topic", "describe", topic)
        return [each["replicas"] for each in described["partitions"]]


@pytest.fixture
def shell(cluster: Cluster) -> Shell:
    return Shell(cluster.bootstrap_servers)


def throttles(cluster: Cluster, topic: str) -> list[str]:
    """What limits copying, on the topic or on any broker."""
    kinds = ConfigResourceType
    resources = [(kinds.TOPIC, topic)] + [(kinds.BROKER, str(each)) for each in range(4)]
    with Client(cluster.bootstrap_servers) as client:
        return [
            f"{each.name}={each.value}"
            for kind, name in resources
            for each in client.run(describe_configs(client.cluster, kind, name))
            if "throttled" in each.name and each.source != "default"
        ]


def test_replicas_are_added_moved_and_lead_and_a_broker_is_taken_out(
    cluster: Cluster, shell: Shell
) -> None:
    shell.run("topic", "create", "orders", "-p", "3")
    assert [len(each) for each in shell.replicas("orders")] == [1, 1, 1]
    assert "note: orders cannot be used" in shell.run("cluster", "health")

    shell.run("topic", "replicate", "orders", "--factor", "3", "--wait")
    assert [len(set(each)) for each in shell.replicas("orders")] == [3, 3, 3]
    assert shell.json("cluster", "health", "--wait")["healthy"]
    assert "nothing to do" in shell.run("topic", "replicate", "--all", "--factor", "3")

    shell.run("cluster", "reassign", "orders", "-p", "0", "--to", "3,1", "--wait")
    assert shell.replicas("orders")[0] == [3, 1]
    assert shell.json("cluster", "reassign") == []
    shell.run("cluster", "elect", "orders", "-p", "0")
    eventually(lambda: cluster.leader_of("orders", 0) == 3)
    assert "1 of 1 partitions are led by their first replica already" in shell.run(
        "cluster", "elect", "orders", "-p", "0"
    )
    assert "nothing of it is being moved" in shell.run("cluster", "reassign", "orders", "--cancel")

    out = shell.run(
        "cluster", "reassign", "orders", "-p", "2", "--to", "3", "--throttle", "1000000"
    )
    assert "copying up to 1000000 bytes a second on each broker" in out
    assert shell.replicas("orders")[2] == [3]
    assert throttles(cluster, "orders") == []
    out = shell.run(
        "cluster", "reassign", "orders", "-p", "2", "--to", "0,9", "--throttle", "5", code=1
    )
    assert "refused: orders-2" in out
    assert throttles(cluster, "orders") == []
    shell.run("cluster", "reassign", "orders", "-p", "2", "--to", "0,1,2", "--wait")

    out = shell.run("cluster", "reassign", "orders", "-p", "1", "--to", "0,9", code=1)
    assert "refused: orders-1: INVALID_REPLICA_ASSIGNMENT" in out
    assert "help: `tidelog cluster info` lists the brokers" in out
    assert "is still there" in shell.run(
        "cluster", "decommission", str(take_everything_from(shell, 3)), code=1
    )
    cluster.stop(3)
    eventually(lambda: shell.json("cluster", "info")["brokers"][3]["state"] == "away")
    assert "broker 3 is forgotten" in shell.run("cluster", "decommission", "3")
    assert [each["id"] for each in shell.json("cluster", "info")["brokers"]] == [0, 1, 2]
    assert shell.json("cluster", "health")["healthy"]


def take_everything_from(shell: Shell, broker: int) -> int:
    said = shell.run("cluster", "decommission", str(broker), "--wait")
    assert f"broker {broker} holds nothing any more; stop it" in said
    topics = shell.json("topic", "list", "--internal")
    assert all(broker not in row for topic in topics for row in shell.replicas(topic["name"]))
    return broker


def test_what_a_command_lacks_is_said(shell: Shell) -> None:
    assert "name topics, or give --all" in shell.run("topic", "replicate", "--factor", "3", code=2)
    assert "give --to BROKER" in shell.run("cluster", "reassign", "orders", code=2)
    assert "as in --to 0,1,2" in shell.run("cluster", "reassign", "orders", "--to", "a,b", code=2)
    assert "--unclean needs a topic" in shell.run("cluster", "elect", "--unclean", code=2)
    shell.run("topic", "create", "small")
    assert "there is no partition 7" in shell.run(
        "cluster", "reassign", "small", "-p", "7", "--to", "0", code=4
    )
    out = shell.run("cluster", "decommission", "9", code=1)
    assert "Broker ID 9 is not currently registered" in out and "tidelog cluster info" in out
    assert "9 replicas need as many brokers" in shell.run(
        "topic", "replicate", "--all", "--factor", "9", code=1
    )


def test_a_broker_does_not_leave_where_its_replicas_have_no_room_and_the_way_out_is_named() -> None:
    with Cluster(brokers=2, settings={"default.replication.factor": 2}) as small:
        shell = Shell(small.bootstrap_servers)
        shell.run("topic", "create", "orders")
        out = shell.run("cluster", "decommission", "1", code=1)
    assert "broker 1 cannot leave: orders would have more replicas than there are brokers" in out
    assert "tidelog topic replicate orders --factor 1" in out


def test_of_what_is_left_after_a_disaster_the_largest_log_leads(tmp_path: Path) -> None:
    """The controller alone would take the first replica, whose disk is new and empty."""
    settings = {"zookeeper.session.timeout.ms": 3000, "unclean.leader.election.enable": False}
    with Cluster(brokers=3, data_dir=tmp_path, settings=settings) as lost:
        servers = lost.bootstrap_servers
        shell = Shell(servers)
        shell.run("topic", "create", "orders")
        shell.run("cluster", "reassign", "orders", "--to", "0,1,2", "--wait")
        with Producer(servers) as producer:
            for number in range(100):
                producer.send(ProducerRecord("orders", value=b"%d" % number))
        shell.run("cluster", "health", "--wait")
        lost.kill(2)
        eventually(lambda: shell.json("cluster", "info")["brokers"][2]["state"] == "away")
        for broker in (1, 0):
            lost.kill(broker)
            shutil.rmtree(tmp_path / str(broker))
        for broker in (2, 0, 1):
            lost.restart(broker)
        said = shell.run("cluster", "health", code=1)
        assert "every broker that holds them is there" in said
        said = shell.run("cluster", "elect", "orders", "--unclean")
        assert "orders-0: broker 2 has most" in said and "elected a leader for 1 partition" in said
        shell.run("cluster", "health", "--wait")
        (described,) = shell.json("topic", "describe", "orders")
        (partition,) = described["partitions"]
        assert (partition["leader"], partition["replicas"]) == (2, [0, 1, 2])
        assert partition["end"] == 100
