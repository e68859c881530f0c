"""Kafka's own tools read the log of transactions, and list, describe and abort them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.peers.kafka import run_tool
from tests.e2e.kafka_files import dump
from tests.e2e.raw_client import RawClient
from tests.e2e.transaction_script import TransactionScript
from tidelog.testing import Broker

pytestmark = pytest.mark.java

TOOL = "org.apache.kafka.tools.TransactionsCommand"
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


def run(broker: Broker, *arguments: str) -> list[dict[str, str]]:
    """The table that the tool prints, a dictionary for each row."""
    done = run_tool(TOOL, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.strip()]
    if not lines:
        return []
    heads = [each.strip() for each in lines[0]]
    return [dict(zip(heads, map(str.strip, row), strict=False)) for row in lines[1:]]


def test_kafka_transactions_shows_and_aborts_them(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path, settings=SETTINGS) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        script = TransactionScript(client)
        done = script.init("done")
        # Not to be aborted by its time-out while the tools start.
        hanging = script.init("hanging", timeout_ms=900_000)
        script.produce("done", done, 0, version=12)
        script.end("done", done, committed=True)
        script.settle("done")
        script.produce("hanging", hanging, 0, partition=1, version=12)
        listed = {row["TransactionalId"]: row for row in run(broker, "list")}
        assert listed["done"]["TransactionState"] == "CompleteCommit"
        assert listed["hanging"]["TransactionState"] == "Ongoing"
        (described,) = run(broker, "describe", "--transactional-id", "hanging")
        assert described["TopicPartitions"] == "t-1"
        # It is open, and its coordinator knows of it: however old, it does not hang.
        hanging_ones = ("find-hanging", "--topic", "t", "--max-transaction-timeout", "0")
        assert run(broker, *hanging_ones) == []
        where = ("--topic", "t", "--partition", "1")
        (producer,) = run(broker, "describe-producers", *where)
        assert producer["CurrentTransactionStartOffset"] == "0"
        run(broker, "abort", *where, "--start-offset", "0")
        (producer,) = run(broker, "describe-producers", *where)
        assert producer["CurrentTransactionStartOffset"] == "None"


def test_kafkas_dump_tool_reads_the_log_of_transactions(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path, settings=SETTINGS) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        script = TransactionScript(client)
        producer = script.init("one")
        script.produce("one", producer, 0, version=12)
        script.end("one", producer, committed=True)
        script.settle("one")
    (log,) = (tmp_path / "__transaction_state-0").glob("*.log")
    told = dump("--transaction-log-decoder", files=[log])
    lines = [line.partition("payload: ")[2] for line in told.splitlines() if "payload: " in line]
    values = [json.loads(each)["data"] for each in lines]
    assert [each["transactionStatus"] for each in values] == [0, 1, 2, 4]
    assert [each["producerEpoch"] for each in values] == [0, 0, 1, 1]
    assert values[1]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0]}]
