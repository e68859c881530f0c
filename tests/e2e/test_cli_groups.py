"""`tidelog group` and `tidelog consume -g`, as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from bench.peers.kafka import ApacheKafka
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.test_cli import Shell
from tests.e2e.test_groups import Member
from tests.waiting import eventually


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "auto.create.topics.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
    }
    with BrokerProcess(tmp_path / "data", settings) as running:
        yield running


def document(shell: Shell, *arguments: str) -> Any:
    return json.loads(run(shell, *arguments, "--format", "json"))


def run(shell: Shell, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        shell.command(*arguments), env=shell.environment, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    text = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == status, text
    return done.stdout.decode() if status == 0 else text


def produce(broker: BrokerProcess, values: range, *, age_ms: int = 0) -> int:
    """Send the values with timestamps of that age; the timestamp."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    stamp = time.time_ns() // 1_000_000 - age_ms
    for value in values:
        producer.produce("t", str(value), partition=0, timestamp=stamp)
    assert producer.flush(10) == 0
    return stamp


def described_lag(shell: Shell, stamp: int) -> Any:
    """What `describe` says of the one partition; its lag in seconds is right to the second."""
    before = time.time_ns() // 1_000_000
    described = document(shell, "group", "describe", "g")["partitions"][0]
    after = time.time_ns() // 1_000_000
    assert (before - stamp) / 1000 - 1 <= described["lag_seconds"] <= (after - stamp) / 1000 + 1
    return described


def test_a_group_prints_each_record_once_and_resumes(broker: BrokerProcess) -> None:
    shell = Shell(broker)
    produce(broker, range(10))
    first = run(shell, "consume", "t", "-g", "g", "-n", "3").split()
    second = run(shell, "consume", "t", "-g", "g", "-n", "7").split()
    assert [*first, *second] == [str(each) for each in range(10)]


def test_lag_is_told_in_records_and_in_seconds(broker: BrokerProcess) -> None:
    shell = Shell(broker)
    older = produce(broker, range(4), age_ms=100_000)
    newer = produce(broker, range(4, 10), age_ms=40_000)
    for consumed, first_unconsumed in ((2, older), (2, newer)):
        run(shell, "consume", "t", "-g", "g", "-n", str(consumed))
        described = described_lag(shell, first_unconsumed)
    assert (described["committed"], described["end"], described["lag"]) == (4, 10, 6)
    run(shell, "consume", "t", "-g", "g", "-n", "6")
    described = document(shell, "group", "describe", "g")["partitions"][0]
    assert (described["lag"], described["lag_seconds"]) == (0, 0)


def test_seek_shows_first_and_moves_when_told(broker: BrokerProcess) -> None:
    shell = Shell(broker)
    produce(broker, range(5), age_ms=7_200_000)
    produce(broker, range(5, 10))
    run(shell, "consume", "t", "-g", "g", "-n", "10")
    for place, target in (("start", 0), ("-3", 7), ("4", 4), ("@-1h", 5), ("99", 10), ("end", 10)):
        shown = document(shell, "group", "seek", "g", "--to", place)
        assert [each["to"] for each in shown["partitions"]] == [target]
        assert document(shell, "group", "describe", "g")["partitions"][0]["committed"] == 10
    run(shell, "group", "seek", "g", "--to", "8", "--execute")
    assert run(shell, "consume", "t", "-g", "g", "-n", "2").split() == ["8", "9"]
    run(shell, "group", "seek", "new", "--to", "start", "--topic", "t", "--execute")
    assert document(shell, "group", "describe", "new")["partitions"][0]["committed"] == 0


def test_a_group_in_use_is_neither_moved_nor_deleted(broker: BrokerProcess) -> None:
    shell = Shell(broker)
    produce(broker, range(3))
    member = Member(broker.bootstrap_servers, "g", "t", **{"client.id": "worker-7"})
    try:
        eventually(lambda: len(member.values) == 3)
        assert "worker-7" in run(shell, "group", "seek", "g", "--to", "start", status=1)
        run(shell, "group", "delete", "g", "--yes", status=1)
        members = document(shell, "group", "members", "g")
        assert [each["client"] for each in members] == ["worker-7"]
        assert members[0]["partitions"] == ["t-0"]
        assert [each["state"] for each in document(shell, "group", "list")] == ["Stable"]
    finally:
        member.close()
    run(shell, "group", "delete", "g", "--yes")
    run(shell, "group", "delete", "g", "--if-exists", "--yes")
    run(shell, "group", "describe", "g", status=4)
    assert document(shell, "group", "list") == []


def test_a_consumer_group_is_shown_like_any_other(broker: BrokerProcess) -> None:
    shell = Shell(broker)
    produce(broker, range(3))
    settings: dict[str, object] = {"client.id": "worker-8", "group.protocol": "consumer"}
    member = Member(broker.bootstrap_servers, "new", "t", **settings)
    try:
        eventually(lambda: len(member.values) == 3)
        listed = document(shell, "group", "list")
        assert [(each["type"], each["state"]) for each in listed] == [("consumer", "Stable")]
        described = document(shell, "group", "describe", "new")
        assert (described["type"], described["protocol"]) == ("consumer", "uniform")
        assert described["partitions"][0]["committed"] == 3
        members = document(shell, "group", "members", "new")
        assert [(each["client"], each["partitions"]) for each in members] == [("worker-8", ["t-0"])]
        assert "worker-8" in run(shell, "group", "seek", "new", "--to", "start", status=1)
    finally:
        member.close()
    run(shell, "group", "seek", "new", "--to", "1", "--execute")
    assert document(shell, "group", "describe", "new")["partitions"][0]["committed"] == 1
    run(shell, "group", "delete", "new", "--yes")
    assert document(shell, "group", "list") == []


def test_our_member_shares_with_another_client(broker: BrokerProcess) -> None:
    shell = Shell(broker)
    run(shell, "topic", "create", "t", "-p", "2")
    other = Member(broker.bootstrap_servers, "g", "t", **{"partition.assignment.strategy": "range"})
    eventually(lambda: len(other.owned) == 2)
    ours = subprocess.Popen(
        shell.command("consume", "t", "-g", "g", "-n", "5"), env=shell.environment,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        eventually(lambda: len(other.owned) == 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for value in range(10):
            producer.produce("t", str(value), partition=value % 2)
        assert producer.flush(10) == 0
        output, _ = ours.communicate(timeout=30)
        printed = [int(each) for each in output.split()]
        eventually(lambda: sorted(printed + other.values) == list(range(10)))
        eventually(lambda: len(other.owned) == 2)
    finally:
        ours.send_signal(signal.SIGKILL) if ours.poll() is None else None
        ours.wait()
        other.close()


def test_what_a_killed_member_owned_is_done_by_another(broker: BrokerProcess) -> None:
    shell = Shell(broker)
    run(shell, "topic", "create", "t", "-p", "2")
    victim = subprocess.Popen(
        shell.command("consume", "t", "-g", "g"), env=shell.environment, stdout=subprocess.PIPE
    )
    assert victim.stdout is not None
    member = None
    try:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", "0", partition=0)
        producer.flush(10)
        assert victim.stdout.readline() == b"0\n"
        member = Member(
            broker.bootstrap_servers, "g", "t", **{"partition.assignment.strategy": "range"}
        )
        eventually(lambda: member is not None and len(member.owned) == 1)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        for value in range(1, 11):
            producer.produce("t", str(value), partition=value % 2)
        assert producer.flush(10) == 0
        # After the session of the one that was killed the other has all that was not committed.
        eventually(lambda: set(member.values) >= set(range(1, 11)))
        assert sorted(member.values) in (list(range(1, 11)), list(range(11)))
    finally:
        if victim.poll() is None:
            victim.kill()
        victim.wait()
        victim.stdout.close()
        if member is not None:
            member.close()


@pytest.mark.java
@pytest.mark.long
def test_the_same_commands_work_against_apache_kafka() -> None:
    with ApacheKafka(
        settings={
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
        }
    ) as kafka:
        shell = Shell(kafka)  # type: ignore[arg-type]
        run(shell, "topic", "create", "t", "-p", "1")
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        stamp = time.time_ns() // 1_000_000 - 60_000
        for value in range(10):
            producer.produce("t", str(value), timestamp=stamp)
        assert producer.flush(30) == 0
        consume = ["consume", "t", "-g", "g", "--timeout", "30"]
        assert run(shell, *consume, "-n", "4").split() == ["0", "1", "2", "3"]
        described = described_lag(shell, stamp)
        assert (described["committed"], described["lag"]) == (4, 6)
        run(shell, "group", "seek", "g", "--to", "-1", "--execute")
        assert run(shell, *consume, "-n", "1").split() == ["9"]
        assert document(shell, "group", "describe", "g")["partitions"][0]["lag_seconds"] == 0
        run(shell, "group", "delete", "g", "--yes")
        assert document(shell, "group", "list") == []
