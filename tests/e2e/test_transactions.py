"""Transactions of real clients on one broker, which is stopped and killed in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.produce_requests import create_topic
from tests.e2e.raw_client import RawClient
from tests.e2e.transaction_script import TransactionScript
from tests.waiting import eventually
from tidelog.testing import Broker

PARTITIONS = 3
SECONDS = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> str:
    with RawClient(broker.bootstrap_servers) as client:
        create_topic(client, "t", PARTITIONS)
    return "t"


def producer(servers: str, transactional_id: str = "x", **more: object) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "log_level": 0,
            **more,
        }  # type: ignore[arg-type]
    )
    made.init_transactions(SECONDS)
    return made


def write(client: Producer, topic: str, *values: str) -> None:
    for number, value in enumerate(values):
        client.produce(topic, value, partition=number % PARTITIONS)


def committed(servers: str, topic: str, count: int) -> list[str]:
    """What a reader of committed records finds, `count` of them and no more."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found, ends = [], 0
    while ends < PARTITIONS or len(found) < count:
        message = reader.poll(SECONDS)
        assert message is not None, f"{found} are not {count}"
        if message.error():
            ends += 1
        else:
            found.append(message.value().decode())
    reader.close()
    assert len(found) == count, found
    return sorted(found)


def test_commits_show_and_aborts_do_not(broker: Broker, topic: str) -> None:
    client = producer(broker.bootstrap_servers)
    for number in range(10):
        client.begin_transaction()
        write(client, topic, *(f"{number}-{each}" for each in range(6)))
        if number % 2:
            client.flush(SECONDS)
            client.abort_transaction(SECONDS)
        else:
            client.commit_transaction(SECONDS)
    # An empty one leaves nothing behind.
    client.begin_transaction()
    client.commit_transaction(SECONDS)
    found = committed(broker.bootstrap_servers, topic, 30)
    assert found == sorted(f"{n}-{each}" for n in range(0, 10, 2) for each in range(6))


def test_t20_a_transaction_that_is_open_is_not_read_by_its_own_program(
    broker: Broker, topic: str
) -> None:
    client = producer(broker.bootstrap_servers)
    client.begin_transaction()
    write(client, topic, "a", "b")
    client.flush(SECONDS)
    assert committed(broker.bootstrap_servers, topic, 0) == []
    client.commit_transaction(SECONDS)
    assert committed(broker.bootstrap_servers, topic, 2) == ["a", "b"]


def test_t9_a_producer_that_was_replaced_cannot_write_nor_commit(
    broker: Broker, topic: str
) -> None:
    zombie = producer(broker.bootstrap_servers)
    zombie.begin_transaction()
    write(zombie, topic, "zombie")
    zombie.flush(SECONDS)
    other = producer(broker.bootstrap_servers)
    other.begin_transaction()
    write(other, topic, "other")
    other.commit_transaction(SECONDS)
    write(zombie, topic, "again")
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(SECONDS)
    assert caught.value.args[0].fatal()
    assert committed(broker.bootstrap_servers, topic, 1) == ["other"]


def test_a_transaction_that_outlives_its_time_out_is_aborted_and_readers_go_on(
    broker: Broker, topic: str
) -> None:
    late = producer(broker.bootstrap_servers, "late", **{"transaction.timeout.ms": 1_000})
    late.begin_transaction()
    write(late, topic, "late")
    late.flush(SECONDS)
    other = producer(broker.bootstrap_servers, "other")
    other.begin_transaction()
    write(other, topic, "other")
    other.commit_transaction(SECONDS)
    assert committed(broker.bootstrap_servers, topic, 1) == ["other"]
    with pytest.raises(KafkaException):
        late.commit_transaction(SECONDS)


@pytest.mark.parametrize(("commits", "offset"), [(True, 2), (False, -1001)])
def test_t19_offsets_go_with_their_transaction(
    broker: Broker, topic: str, commits: bool, offset: int
) -> None:
    servers = broker.bootstrap_servers
    plain = Producer({"bootstrap.servers": servers})
    for value in ("a", "b"):
        plain.produce(topic, value, partition=0)
    plain.flush(SECONDS)
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "copier",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([topic])
    assert [reader.poll(SECONDS).value() for _ in range(2)] == [b"a", b"b"]
    client = producer(servers)
    client.begin_transaction()
    write(client, topic, "copied")
    client.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 2)], reader.consumer_group_metadata(), SECONDS
    )
    if commits:
        client.commit_transaction(SECONDS)
    else:
        client.abort_transaction(SECONDS)
    (found,) = reader.committed([TopicPartition(topic, 0)], SECONDS)
    assert found.offset == offset
    reader.close()


@pytest.mark.parametrize("kills", [True, False])
def test_t14_a_decision_survives_the_broker(tmp_path: Path, kills: bool) -> None:
    """All that is known of transactions is found again, whatever was written last."""
    with BrokerProcess(tmp_path) as process:
        with RawClient(process.bootstrap_servers) as raw:
            script = TransactionScript(raw)
            kept = script.init("kept")
            script.produce("kept", kept, 0, version=12)
            gone = script.init("gone")
            script.produce("gone", gone, 0, partition=1, version=12)
            open_ = script.init("open")
            script.produce("open", open_, 0, partition=2, version=12)
            kept = script.end("kept", kept, committed=True)
            gone = script.end("gone", gone, committed=False)
        process.kill() if kills else process.terminate()
        process.start()
        with RawClient(process.bootstrap_servers) as raw:
            script.client = raw
            script.settle("kept")
            script.settle("gone")
            # They go on where they were.
            script.produce("open", open_, 1, partition=2, version=12)
            script.end("open", open_, committed=True)
            script.settle("open")
            script.produce("kept", kept, 0, version=12)
            script.end("kept", kept, committed=True)
            script.settle("kept")
        refused = [each for each in script.answers if "NONE" not in str(each)]
        assert not refused
        # The first one's two batches with two markers, and so on; an aborted record does not show.
        assert committed(process.bootstrap_servers, "t", 4) == ["value"] * 4


def test_t22_a_topic_that_is_deleted_holds_up_nobody_else(broker: Broker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    client = producer(broker.bootstrap_servers)
    with RawClient(broker.bootstrap_servers) as raw:
        create_topic(raw, "gone", 1)
    client.begin_transaction()
    client.produce("gone", "a", partition=0)
    write(client, topic, "b")
    client.flush(SECONDS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["gone"])["gone"].result(SECONDS)
    eventually(lambda: "gone" not in admin.list_topics(timeout=SECONDS).topics)
    client.commit_transaction(SECONDS)
    assert committed(broker.bootstrap_servers, topic, 1) == ["b"]
