"""Kafka's own `kafka-consumer-groups`, console consumer and log dump on our groups."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.peers.kafka import run_tool
from tests.e2e.test_groups import Member, confluent_consume, create_topic, produce
from tests.waiting import eventually
from tidelog.testing import Broker

pytestmark = pytest.mark.java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def groups(servers: str, *arguments: str) -> str:
    done = run_tool(GROUPS, "--bootstrap-server", servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if line.strip()]


def test_kafkas_tool_lists_describes_resets_and_deletes_groups(tmp_path: Path) -> None:
    with Broker(
        data_dir=str(tmp_path / "data"), settings={"group.min.session.timeout.ms": "500"}
    ) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "t", 2)
        produce(servers, "t", range(20), 2)
        member = Member(servers, "live", "t")
        try:
            eventually(lambda: len(member.values) == 20)
            assert ["live", "Stable"] in rows(groups(servers, "--list", "--state"))
            described = rows(groups(servers, "--describe", "--group", "live"))
            assert [row[:6] for row in described if row[0] == "live"] == [
                ["live", "t", "0", "10", "10", "0"],
                ["live", "t", "1", "10", "10", "0"],
            ]
            assert "rdkafka" in groups(servers, "--describe", "--group", "live", "--members")
            refused = groups(servers, "--delete", "--group", "live")
            assert "not empty" in refused
        finally:
            member.close()
        assert confluent_consume(servers, "idle", "t", 20)
        reset = groups(
            servers, "--group", "idle", "--topic", "t", "--reset-offsets", "--to-offset", "3",
            "--execute",
        )  # fmt: skip
        assert [row[-1] for row in rows(reset)[-2:]] == ["3", "3"]
        console = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--bootstrap-server", servers, "--topic", "t", "--group", "idle",
            "--max-messages", "14", "--timeout-ms", "20000",
        )  # fmt: skip
        assert sorted(map(int, console.stdout.split())) == list(range(6, 20)), console.stderr
        deleted = groups(servers, "--delete-offsets", "--group", "idle", "--topic", "t")
        assert "Successful" in deleted
        groups(servers, "--delete", "--group", "idle")
        assert "idle" not in groups(servers, "--list").split()
    text = dump_offsets(tmp_path / "data")
    assert '"group":"live"' in text and '"topic":"t"' in text and '"offset":10' in text
    assert '"protocolType":"consumer"' in text and '"generation":1' in text
    assert "<DELETE>" in text


def dump_offsets(data: Path) -> str:
    """The log of the offsets topic, read by Kafka's own decoder."""
    logs = [path for path in data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    assert logs
    done = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--offsets-decoder", "--files", ",".join(map(str, logs)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text: str = done.stdout
    assert "Could not" not in text and "isvalid: false" not in text
    return text


def test_a_java_consumer_of_the_console_joins_and_resumes() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "t", 1)
        produce(servers, "t", range(10), 1)
        for first in (0, 5):
            console = run_tool(
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                "--bootstrap-server", servers, "--topic", "t", "--group", "console",
                "--from-beginning", "--max-messages", "5", "--timeout-ms", "20000",
            )  # fmt: skip
            assert list(map(int, console.stdout.split())) == list(range(first, first + 5))


def console(servers: str, count: int) -> list[int]:
    """What a Java consumer with `group.protocol=consumer` takes as a member of the group `g`."""
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", servers, "--topic", "t", "--group", "g",
        "--command-property", "group.protocol=consumer",
        "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000",
    )  # fmt: skip
    return list(map(int, done.stdout.split()))


def test_java_and_librdkafka_share_a_consumer_group(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path / "data")) as broker, ThreadPoolExecutor(1) as thread:
        servers = broker.bootstrap_servers
        create_topic(servers, "t", 2)
        produce(servers, "t", range(10), 2)
        first = console(servers, 4)
        member = Member(servers, "g", "t", **{"group.protocol": "consumer"})
        try:
            eventually(lambda: len(member.values) == 6)
            java = thread.submit(console, servers, 5)
            eventually(lambda: len(member.owned) == 1)
            described = rows(
                groups(servers, "--describe", "--group", "g", "--members", "--verbose")
            )
            shown = [dict(zip(described[0], row, strict=False)) for row in described[1:]]
            assert sorted(each["CURRENT-ASSIGNMENT"] for each in shown) == ["t:0", "t:1"]
            assert {each["CURRENT-EPOCH"] for each in shown} == {shown[0]["TARGET-EPOCH"]}
            produce(servers, "t", range(10, 20), 2)
            taken = java.result(timeout=60)
            eventually(lambda: len(member.owned) == 2)
            eventually(lambda: len(member.values) == 11)
            assert sorted([*first, *taken, *member.values]) == list(range(20))
            listed = rows(groups(servers, "--list", "--type", "consumer"))
            assert ["g"] in [row[:1] for row in listed]
        finally:
            member.close()
    text = dump_offsets(tmp_path / "data")
    assert '"subscribedTopicNames":["t"]' in text and '"assignmentEpochs":[2,2]' in text
