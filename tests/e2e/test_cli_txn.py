"""`tidelog txn` and `tidelog why --stable`, as processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers.kafka import ApacheKafka
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.own_transactions import PARTITIONS, committed, write
from tests.e2e.test_cli import Shell
from tests.e2e.test_cli_groups import document, run
from tests.waiting import eventually
from tidelog.cli.main import main
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.batching import Identity, ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.operation import topic_metadata
from tidelog.client.settings import TransactionSettings
from tidelog.client.transaction_faults import ProducerFencedError
from tidelog.client.transactional import Phase
from tidelog.client.transactions import VERSION_1
from tidelog.model import TopicPartition


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as started:
        prepare(started.bootstrap_servers)
        yield started


def prepare(servers: str) -> None:
    with Client(servers) as client:
        client.run(create_topic(client.cluster, NewTopic("t", partitions=PARTITIONS)))
        client.run(topic_metadata(client.cluster, ["t"], create=True))


def opened(servers: str, settings: TransactionSettings, *values: str) -> TransactionalProducer:
    producer = TransactionalProducer(servers, settings)
    producer.init()
    producer.begin()
    write(producer, "t", *values)
    producer.flush()
    return producer


def test_a_transaction_is_listed_described_blamed_and_aborted(broker: BrokerProcess) -> None:
    shell, servers = Shell(broker), broker.bootstrap_servers
    assert document(shell, "txn", "list") == []
    assert "nothing holds it" in run(shell, "why", "t", "-p", "0", "--stable")
    with opened(servers, TransactionSettings("billing-1", 120_000), "a", "b", "c", "d") as producer:
        [row] = document(shell, "txn", "list", "--state", "ongoing", "--like", "billing-.*")
        identity = producer.core.identity
        assert identity is not None
        assert row == {
            "transactional_id": "billing-1",
            "state": "Ongoing",
            "producer_id": identity.producer_id,
            "coordinator": 0,
        }
        assert document(shell, "txn", "list", "--longer-than", "1h") == []
        assert document(shell, "txn", "list", "--like", "other") == []
        [entry] = document(shell, "txn", "describe", "billing-1")
        assert entry["partitions"] == ["t-0", "t-1", "t-2"]
        assert entry["timeout_ms"] == 120_000
        assert 0 <= entry["open_seconds"] <= 120 - entry["times_out_in_seconds"] + 1
        held = document(shell, "why", "t", "-p", "0", "--stable")
        assert (held["last_stable_offset"], held["high_watermark"]) == (0, 2)
        assert held["held_by"]["transactional_id"] == "billing-1"
        assert held["held_by"]["hangs"] is False
        told = run(shell, "why", "t", "-p", "0", "--stable")
        assert "readers of committed records wait at offset 0, 2 before the end" in told
        assert "held by: 'billing-1'" in told
        assert "`tidelog txn abort billing-1` does so now" in told
        assert document(shell, "txn", "find-hanging", "--longer-than", "0s") == []
        where = ("--topic", "t", "-p", "0", "--start-offset")
        assert "`tidelog txn abort billing-1`" in run(shell, "txn", "abort", *where, "0", status=1)
        assert "open ones begin at: 0" in run(shell, "txn", "abort", *where, "1", status=1)
        run(shell, "txn", "abort", "billing-1")
        with pytest.raises(ProducerFencedError):
            producer.commit()
    eventually(
        lambda: "nothing holds it" in run(shell, "why", "t", "-p", "0", "--stable"),
        lambda: run(shell, "why", "t", "-p", "0", "--stable"),
    )
    assert "no transaction to abort" in run(shell, "txn", "abort", "billing-1", status=1)
    assert committed(servers, "t") == []


def test_what_waits_for_a_decision_is_not_aborted_by_mistake(broker: BrokerProcess) -> None:
    shell, servers = Shell(broker), broker.bootstrap_servers
    settings = TransactionSettings("sink-1", two_phase=True)
    with opened(servers, settings, "a") as producer:
        [entry] = document(shell, "txn", "describe", "sink-1")
        assert (entry["timeout_ms"], entry["times_out_in_seconds"]) == (None, None)
        told = run(shell, "why", "t", "-p", "0", "--stable")
        assert "no time-out does" in told and "--force" in told
        assert "--force" in run(shell, "txn", "abort", "sink-1", status=1)
        run(shell, "txn", "abort", "sink-1", "--force")
        with pytest.raises(ProducerFencedError):
            producer.commit()


def test_mistakes_are_named_with_what_to_do(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status, told in (
        ("txn describe nobody", 4, "`tidelog txn list`"),
        ("txn abort nobody", 4, "`tidelog txn list`"),
        ("txn abort", 2, "--start-offset"),
        ("txn abort x --topic t", 2, "--start-offset"),
        ("txn abort --topic t -p 0", 2, "--start-offset"),
        ("txn abort --topic t -p 9 --start-offset 0", 4, "no partition 9"),
        ("txn abort --topic nope -p 0 --start-offset 0", 4, "does not exist"),
        ("txn list --longer-than soon", 2, "30s, 15m"),
        ("txn find-hanging nope", 4, "does not exist"),
        ("why t -p 0", 2, "--stable"),
        ("why t -p 9 --stable", 4, "no partition 9"),
        ("why nope -p 0 --stable", 4, "does not exist"),
    ):
        with pytest.raises(SystemExit) as stop:
            main([*words.split(), "-b", broker.bootstrap_servers])
        said = capsys.readouterr().err
        assert (stop.value.code, told in said) == (status, True), (words, said)


def leave_hanging(servers: str) -> Identity:
    """Records of a transaction that the coordinator was never told of, as before Kafka 3.6."""
    with TransactionalProducer(servers, TransactionSettings("old")) as producer:
        identity = producer.init().producer
        core = producer.transactional
        core.protocol = VERSION_1
        core.begin()
        core._added.add(TopicPartition("t", 1))
        producer.send(ProducerRecord("t", b"hangs", partition=1))
        producer.flush()
        # Nobody is told how it ends.
        core.phase = Phase.READY
    return identity


@pytest.mark.java
@pytest.mark.long
def test_a_hanging_transaction_is_found_and_ended_on_apache_kafka() -> None:
    settings = {"transaction.partition.verification.enable": "false"}
    with ApacheKafka(settings=settings) as kafka:
        servers = kafka.bootstrap_servers
        shell = Shell(kafka)
        prepare(servers)
        with opened(servers, TransactionSettings("fine"), "fine"):
            identity = leave_hanging(servers)
            [found] = document(shell, "txn", "find-hanging", "--longer-than", "0s")
            place: dict[str, Any] = {"topic": "t", "partition": 1, "start_offset": 0}
            assert found.items() >= {**place, "producer_id": identity.producer_id}.items()
            assert document(shell, "txn", "find-hanging") == []
            told = run(shell, "why", "t", "-p", "1", "--stable")
            ending = "txn abort --topic t -p 1 --start-offset 0"
            assert f"nothing does, it hangs; `tidelog {ending}` ends it" in told
            [aborted] = json.loads(run(shell, *ending.split(), "--format", "json"))
            assert aborted.items() >= place.items()
            eventually(lambda: "nothing holds" in run(shell, "why", "t", "-p", "1", "--stable"))
            assert document(shell, "txn", "find-hanging", "--longer-than", "0s") == []
