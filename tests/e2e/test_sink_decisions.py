"""The steps of a write that is exactly once, on a broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.peers.kafka import ApacheKafka
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.batching import Identity, ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.offsets import Start, log_bounds
from tidelog.client.settings import ClientSettings, ConsumerSettings, TransactionSettings
from tidelog.client.transaction_faults import ProducerFencedError
from tidelog.client.transactions import PreparedTransaction
from tidelog.model import Isolation, TopicPartition
from tidelog.spark.sink import decisions, ledger
from tidelog.spark.sink.broker_port import BrokerPort
from tidelog.spark.sink.decisions import Decision, ExactlyOnceError, Run, Task, carry_out
from tidelog.testing import Broker

TOPIC = TopicPartition("out", 0)
PREFIX = "tidelog-sink.q"
TIMEOUT_MS = 60_000


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker() as broker:
        with Client(broker.bootstrap_servers) as client:
            client.run(create_topic(client.cluster, NewTopic(TOPIC.topic, 1)))
        yield broker.bootstrap_servers


@pytest.fixture
def port(servers: str) -> Iterator[BrokerPort]:
    with BrokerPort(servers, ClientSettings(), PREFIX, TIMEOUT_MS) as port:
        yield port


def begin(port: BrokerPort) -> Run:
    steps = decisions.begin(PREFIX, two_phase=port.two_phase, timeout_ms=TIMEOUT_MS)
    return carry_out(steps, port)


def write(
    servers: str, port: BrokerPort, run: Run, task: Task, value: bytes
) -> PreparedTransaction:
    claimed = carry_out(decisions.claim(run, task), port)
    settings = TransactionSettings(claimed.transactional_id, TIMEOUT_MS)
    producer = TransactionalProducer(servers, settings)
    producer.resume(Identity(claimed.producer_id, claimed.producer_epoch))
    producer.begin()
    producer.send(ProducerRecord(TOPIC.topic, value))
    left = producer.prepare()
    producer.close()
    assert left == claimed
    return left


def visible(servers: str) -> list[bytes | None]:
    """What readers of committed records find, to the end of the log: nothing holds them up."""
    settings = ConsumerSettings(isolation=Isolation.READ_COMMITTED)
    found: list[bytes | None] = []
    with Consumer(servers, settings) as consumer:
        _, end = consumer.run(log_bounds(consumer.cluster, [TOPIC]))[TOPIC]
        consumer.assign({TOPIC: Start("start")})
        while consumer.core.positions[TOPIC].position < end:
            for _, records in consumer.poll(0.2):
                found += [each.value for each in records]
    return found


def test_ids_are_used_again_and_leftovers_are_ended(servers: str, port: BrokerPort) -> None:
    names: set[str] = set()
    for batch in range(4):
        run = begin(port)
        assert run.two_phase
        left = [
            write(servers, port, run, Task(number, 0, f"{batch}{number}"), b"%d" % batch)
            for number in range(2)
        ]
        # A second attempt of the first task, as speculation has it, which loses.
        write(servers, port, run, Task(0, 1, f"{batch}9"), b"twice")
        carry_out(decisions.commit(run, Decision("q", batch, tuple(left))), port)
        names |= {each.transactional_id for each in port.find()}
    assert len(names) == 3
    assert sorted(visible(servers)) == sorted([b"0", b"1", b"2", b"3"] * 2)


def test_a_driver_that_starts_finishes_what_was_decided_and_aborts_the_rest(
    servers: str, port: BrokerPort
) -> None:
    run = begin(port)
    decided = write(servers, port, run, Task(0, 0, "1"), b"decided")
    port.write(run.driver, Decision("q", 0, (decided,)))
    # Killed here: nothing is ended, and an attempt has left something open that is not in the list.
    other = PreparedTransaction("tidelog-sink.q.1.0-0-2", *port_claim(port))
    producer = TransactionalProducer(servers, TransactionSettings(other.transactional_id))
    producer.resume(Identity(other.producer_id, other.producer_epoch))
    producer.begin()
    producer.send(ProducerRecord(TOPIC.topic, b"left"))
    producer.prepare()
    producer.close()
    after = begin(port)
    assert after.has("q", 0) and not after.has("q", 1)
    assert visible(servers) == [b"decided"]
    # Once more, and nothing is ended twice.
    assert begin(port).granted == after.granted
    assert visible(servers) == [b"decided"]


def port_claim(port: BrokerPort) -> tuple[int, int]:
    claimed = port.claim("tidelog-sink.q.1.0-0-2", None)
    return claimed.producer_id, claimed.producer_epoch


def test_a_driver_that_was_replaced_decides_nothing(servers: str, port: BrokerPort) -> None:
    old = begin(port)
    left = write(servers, port, old, Task(0, 0, "1"), b"old")
    begin(port)
    with pytest.raises(ExactlyOnceError, match="another driver of the same query"):
        carry_out(decisions.commit(old, Decision("q", 0, (left,))), port)
    with pytest.raises(ExactlyOnceError, match="another driver of the same query"):
        carry_out(decisions.claim(old, Task(0, 1, "2")), port)
    assert visible(servers) == []


def test_an_attempt_gets_an_id_that_no_other_has(servers: str, port: BrokerPort) -> None:
    run = begin(port)
    left = write(servers, port, run, Task(0, 0, "1"), b"1")
    carry_out(decisions.commit(run, Decision("q", 0, (left,))), port)
    run = begin(port)
    (name,) = run.granted
    first = port.claim(name, run.granted[name])
    with pytest.raises(ProducerFencedError):
        port.claim(name, run.granted[name])
    claimed = carry_out(decisions.claim(run, Task(0, 0, "7")), port)
    assert claimed.transactional_id != name
    assert first.producer_epoch == run.granted[name].producer_epoch + 1


def test_a_decision_is_found_however_far_back_it_lies(
    port: BrokerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The end of the transaction is a record as well, so the last one is never a decision.
    monkeypatch.setattr(ledger, "_FIRST_LOOK", 1)
    run = begin(port)
    port.write(run.driver, Decision("q", 3, (), is_done=True))
    assert begin(port).decided == ("q", 3)


@pytest.mark.java
def test_apache_kafka_has_time_outs_so_a_batch_that_takes_too_long_is_not_decided() -> None:
    with ApacheKafka() as kafka, Client(kafka.bootstrap_servers) as client:
        servers = kafka.bootstrap_servers
        client.run(create_topic(client.cluster, NewTopic(TOPIC.topic, 1)))
        with BrokerPort(servers, ClientSettings(), PREFIX, TIMEOUT_MS) as port:
            run = begin(port)
            assert not run.two_phase
            left = write(servers, port, run, Task(0, 0, "1"), b"in time")
            write(servers, port, run, Task(0, 1, "2"), b"twice")
            carry_out(decisions.commit(run, Decision("q", 0, (left,))), port)
            assert visible(servers) == [b"in time"]
            late = replace(begin(port), timeout_ms=1)
            left = write(servers, port, late, Task(0, 0, "3"), b"late")
            with pytest.raises(ExactlyOnceError, match=r"more than half of .*timeout\.ms=1: "):
                carry_out(decisions.commit(late, Decision("q", 1, (left,))), port)
            # Whoever starts next aborts it.
            assert not begin(port).has("q", 1)
            assert visible(servers) == [b"in time"]
