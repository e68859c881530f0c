"""Transactions of our own client against real brokers, in both versions of the protocol."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.own_transactions import PARTITIONS, committed, write
from tests.peers import KAFKA_3_LONG, KAFKA_4, TIDELOG
from tests.waiting import eventually
from tidelog.client import aio_transactions
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.connection import Call
from tidelog.client.faults import raise_for
from tidelog.client.group import GroupConsumer
from tidelog.client.group_admin import committed_offsets, find_coordinator
from tidelog.client.operation import Operation, ask, retrying, topic_metadata
from tidelog.client.settings import ProducerSettings, TransactionSettings
from tidelog.client.transaction_admin import (
    TransactionFilter,
    coordinated,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from tidelog.client.transaction_faults import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
    TwoPhaseUnsupportedError,
)
from tidelog.client.transaction_view import describe_transaction
from tidelog.client.transactions import (
    VERSION_1,
    VERSION_2,
    GroupMetadata,
    PreparedTransaction,
    Protocol,
    end_transaction,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.testing import Cluster

_numbers = itertools.count()
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
Open = Callable[..., TransactionalProducer]


@pytest.fixture(scope="module", params=[TIDELOG, KAFKA_4, KAFKA_3_LONG])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param is not None:
        with request.param(settings=SETTINGS) as kafka:
            yield kafka.bootstrap_servers
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"topic-{next(_numbers)}"
    client.run(create_topic(client.cluster, NewTopic(name, partitions=PARTITIONS)))
    client.run(topic_metadata(client.cluster, [name], create=True))
    return name


@pytest.fixture
def transactional_id() -> str:
    return f"id-{next(_numbers)}"


@pytest.fixture(params=[VERSION_1, VERSION_2], ids=["v1", "v2"])
def open_producer(
    request: pytest.FixtureRequest, servers: str, transactional_id: str
) -> Iterator[Open]:
    """Producers of the protocol's version, which brokers of version 2 speak both of."""
    protocol: Protocol = request.param
    opened = []

    def make(name: str = transactional_id, timeout_ms: int = 30_000) -> TransactionalProducer:
        producer = TransactionalProducer(servers, TransactionSettings(name, timeout_ms))
        opened.append(producer)
        producer.init()
        if producer.transactional.protocol is VERSION_2:
            producer.transactional.protocol = protocol
        return producer

    yield make
    for producer in opened:
        producer.close()


def test_the_version_of_the_protocol_is_the_one_that_the_cluster_has_finalized(
    servers: str, transactional_id: str, request: pytest.FixtureRequest
) -> None:
    with TransactionalProducer(servers, TransactionSettings(transactional_id)) as producer:
        producer.init()
        is_old = "kafka-3.9" in request.node.callspec.id
        assert producer.transactional.protocol is (VERSION_1 if is_old else VERSION_2)


def test_commits_show_aborts_do_not_and_nothing_leaves_nothing(
    servers: str, topic: str, open_producer: Open
) -> None:
    producer = open_producer()
    for number in range(6):
        producer.begin()
        write(producer, topic, *(f"{number}-{each}" for each in range(PARTITIONS)))
        if number % 2:
            producer.flush()
            producer.abort()
        else:
            producer.commit()
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()
    expected = [f"{number}-{each}" for number in (0, 2, 4) for each in range(PARTITIONS)]
    assert committed(servers, topic) == expected


def test_t9_a_producer_that_was_replaced_says_so_and_commits_nothing(
    servers: str, topic: str, open_producer: Open
) -> None:
    zombie = open_producer()
    zombie.begin()
    write(zombie, topic, "zombie")
    zombie.flush()
    heir = open_producer()
    heir.begin()
    write(heir, topic, "heir")
    with pytest.raises(ProducerFencedError, match="another producer has taken over") as caught:
        zombie.commit()
    assert caught.value.committed is False
    with pytest.raises(ProducerFencedError):
        zombie.begin()
    heir.commit()
    assert committed(servers, topic) == ["heir"]
    # Who means to can take the id back.
    zombie.init()
    zombie.begin()
    write(zombie, topic, "back")
    zombie.commit()
    assert committed(servers, topic) == ["back", "heir"]


def test_a_transaction_that_the_broker_aborted_says_so_and_the_producer_goes_on(
    servers: str, topic: str, client: Client, transactional_id: str, open_producer: Open
) -> None:
    producer = open_producer(timeout_ms=500)
    producer.begin()
    write(producer, topic, "late")
    producer.flush()

    def is_aborted() -> bool:
        found = client.run(describe_transaction(client.cluster, transactional_id))
        return found is not None and found.state == "CompleteAbort"

    eventually(is_aborted, seconds=30)
    with pytest.raises(TransactionAbortedError, match="time-out of 500 ms"):
        producer.commit()
    producer.abort()
    producer.transactional.transactions.timeout_ms = 30_000
    producer.begin()
    write(producer, topic, "again")
    producer.commit()
    assert committed(servers, topic) == ["again"]


def test_a_record_that_is_refused_fails_its_transaction_and_no_other(
    servers: str, topic: str, open_producer: Open
) -> None:
    producer = open_producer()
    producer.begin()
    write(producer, topic, "good")
    refused = producer.send(ProducerRecord(topic, b"x" * (2 << 20), partition=1))
    with pytest.raises(TransactionAbortableError, match="Abort it and begin again") as caught:
        producer.commit()
    assert isinstance(caught.value.__cause__, KafkaError)
    assert refused.error is not None
    with pytest.raises(TransactionAbortableError):
        write(producer, topic, "more")
    producer.abort()
    producer.begin()
    write(producer, topic, "a", "b", "c")
    producer.commit()
    assert committed(servers, topic) == ["a", "b", "c"]


@pytest.mark.parametrize("commits", [True, False])
def test_t19_offsets_go_with_their_transaction(
    servers: str, topic: str, client: Client, open_producer: Open, commits: bool
) -> None:
    group = f"group-{next(_numbers)}"
    first = TopicPartition(topic, 0)
    producer = open_producer()
    with GroupConsumer(servers, group, [topic]) as member:
        member.keep_up()
        producer.begin()
        write(producer, topic, "copied")
        producer.send_offsets({first: 7}, member.metadata)
        producer.commit() if commits else producer.abort()
        eventually(
            lambda: (
                client.run(committed_offsets(client.cluster, group, [first]))
                == ({first: 7} if commits else {})
            )
        )


def test_a_member_that_was_replaced_cannot_commit_offsets(
    servers: str, topic: str, open_producer: Open
) -> None:
    group = f"group-{next(_numbers)}"
    producer = open_producer()
    with GroupConsumer(servers, group, [topic]) as member:
        member.keep_up()
        stale = GroupMetadata(group, member.metadata.member_id, member.metadata.generation - 1)
        producer.begin()
        write(producer, topic, "copied")
        with pytest.raises(TransactionAbortableError) as caught:
            producer.send_offsets({TopicPartition(topic, 0): 7}, stale)
        assert isinstance(caught.value.__cause__, KafkaError)
        assert caught.value.__cause__.code is ErrorCode.ILLEGAL_GENERATION
        producer.abort()
    assert committed(servers, topic) == []


def test_the_epoch_of_a_member_of_the_newer_protocol_is_checked(
    servers: str, topic: str, client: Client, open_producer: Open, request: pytest.FixtureRequest
) -> None:
    if "kafka-3.9" in request.node.callspec.id:
        # It has groups of the older protocol alone.
        return
    group = f"group-{next(_numbers)}"
    heartbeat = ConsumerGroupHeartbeatRequest(group, str(uuid4()), 0)
    heartbeat.rebalance_timeout_ms = 60_000
    heartbeat.subscribed_topic_names, heartbeat.topic_partitions = [topic], []

    def join() -> Operation[Any]:
        node = yield from find_coordinator(client.cluster, group)
        answer = yield from ask(Call(node, "ConsumerGroupHeartbeat", heartbeat))
        raise_for(answer.error_code)
        return answer

    member = client.run(retrying(client.cluster, join))
    first = TopicPartition(topic, 0)
    producer = open_producer()
    producer.begin()
    producer.send_offsets({first: 7}, GroupMetadata(group, member.member_id, member.member_epoch))
    producer.commit()
    eventually(lambda: client.run(committed_offsets(client.cluster, group, [first])) == {first: 7})
    producer.begin()
    with pytest.raises(TransactionAbortableError) as caught:
        producer.send_offsets({first: 9}, GroupMetadata(group, member.member_id, 99))
    assert isinstance(caught.value.__cause__, KafkaError)
    assert caught.value.__cause__.code in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
    )
    producer.abort()


def test_a_prepared_transaction_is_ended_by_another_process_and_by_it_alone(
    servers: str, topic: str, client: Client, open_producer: Open
) -> None:
    producer = open_producer()
    producer.begin()
    assert producer.prepare() is None
    left = []
    for name in ("kept", "gone"):
        producer = open_producer(f"{name}-{next(_numbers)}")
        producer.begin()
        write(producer, topic, name)
        prepared = producer.prepare()
        assert prepared is not None
        producer.close()
        left.append(prepared)
    kept, gone = left
    for _ in range(2):
        client.run(end_transaction(client.cluster, kept, commit=True))
        client.run(end_transaction(client.cluster, gone, commit=False))
    with pytest.raises(TransactionStateError, match="was committed before"):
        client.run(end_transaction(client.cluster, kept, commit=False))
    with pytest.raises(TransactionAbortedError, match="was aborted before"):
        client.run(end_transaction(client.cluster, gone, commit=True))
    assert committed(servers, topic) == ["kept"]
    heir = open_producer(kept.transactional_id)
    heir.begin()
    write(heir, topic, "heir")
    heir.flush()
    with pytest.raises(ProducerFencedError):
        client.run(end_transaction(client.cluster, kept, commit=True))
    unknown = PreparedTransaction("nobody", 12345, 0)
    with pytest.raises(ProducerFencedError):
        client.run(end_transaction(client.cluster, unknown, commit=True))
    heir.abort()
    assert committed(servers, topic) == ["kept"]


def test_what_is_open_is_listed_described_and_found_at_its_partitions(
    servers: str, topic: str, client: Client, open_producer: Open, transactional_id: str
) -> None:
    producer = open_producer()
    producer.begin()
    write(producer, topic, "a", "b")
    producer.flush()
    cluster, identity = client.cluster, producer.core.identity
    assert identity is not None
    wanted = TransactionFilter(("Ongoing",), (identity.producer_id,))
    [listed] = client.run(list_transactions(cluster, wanted))
    assert (listed.transactional_id, listed.state) == (transactional_id, "Ongoing")
    known = client.run(describe_transactions(cluster, [transactional_id, "nobody"]))
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert set(known) == {transactional_id}
    found = known[transactional_id]
    assert (found.producer, found.timeout_ms) == (identity, 30_000)
    assert (found.coordinator, sorted(found.partitions)) == (listed.coordinator, places)
    active = client.run(describe_producers(cluster, [*places, TopicPartition(topic, 2)]))
    assert [(each.partition, each.producer, each.transaction_start) for each in active] == [
        (tp, identity, 0) for tp in places
    ]
    assert client.run(coordinated(cluster, active)) == dict.fromkeys(active, found)
    producer.commit()

    def ends() -> list[int | None]:
        return [each.transaction_start for each in client.run(describe_producers(cluster, places))]

    eventually(lambda: ends() == [None, None])


def test_the_shell_on_an_event_loop_does_the_same(
    servers: str, topic: str, transactional_id: str
) -> None:
    async def scenario() -> None:
        settings = TransactionSettings(transactional_id)
        async with aio_transactions.TransactionalProducer(servers, settings) as producer:
            await producer.init()
            for number in range(4):
                producer.begin()
                for each in range(PARTITIONS):
                    value = b"%d-%d" % (number, each)
                    await producer.send(ProducerRecord(topic, value, partition=each))
                await producer.send_offsets(
                    {TopicPartition(topic, 0): number}, GroupMetadata("nobody's")
                )
                if number % 2:
                    await producer.abort()
                else:
                    await producer.commit()
            producer.begin()
            await producer.send(ProducerRecord(topic, b"open"))
            # What is open when the block ends is aborted.

    asyncio.run(scenario())
    assert committed(servers, topic) == [f"{n}-{each}" for n in (0, 2) for each in range(3)]


def test_a_time_out_above_the_broker_s_is_refused_with_what_to_do(
    servers: str, transactional_id: str
) -> None:
    settings = TransactionSettings(transactional_id, timeout_ms=2_000_000_000)
    with TransactionalProducer(servers, settings) as producer:
        with pytest.raises(KafkaError, match="ask for a shorter one"):
            producer.init()


def test_apache_kafka_is_said_not_to_leave_transactions_to_others(
    servers: str, transactional_id: str, request: pytest.FixtureRequest
) -> None:
    settings = TransactionSettings(transactional_id, two_phase=True)
    with TransactionalProducer(servers, settings) as producer:
        if "kafka" not in request.node.callspec.id:
            assert producer.init().ongoing is None
            return
        with pytest.raises(TwoPhaseUnsupportedError, match="Do without two_phase"):
            producer.init()


def test_a_broker_that_is_killed_in_the_middle_costs_time_only(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.bootstrap_servers) as client:
        client.run(create_topic(client.cluster, NewTopic("t", partitions=PARTITIONS)))
        settings = TransactionSettings("x")
        with TransactionalProducer(
            broker.bootstrap_servers, settings, ProducerSettings()
        ) as producer:
            producer.init()
            for number in range(3):
                producer.begin()
                write(producer, "t", f"{number}-a", f"{number}-b")
                producer.flush()
                broker.kill()
                broker.start()
                write(producer, "t", f"{number}-c")
                producer.commit()
        expected = [f"{number}-{each}" for number in range(3) for each in "abc"]
        assert committed(broker.bootstrap_servers, "t") == expected


def test_a_coordinator_that_is_killed_is_replaced_in_the_middle_of_transactions() -> None:
    """Of three brokers, whoever coordinates the id dies: before a commit, and before an abort."""
    settings = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"}
    with Cluster(brokers=3, settings=settings) as cluster:
        servers = cluster.bootstrap_servers
        with (
            Client(servers) as client,
            TransactionalProducer(servers, TransactionSettings("x")) as producer,
        ):
            client.run(create_topic(client.cluster, NewTopic("t", partitions=PARTITIONS)))
            producer.init()
            for number, commits in enumerate((True, False, True)):
                producer.begin()
                write(producer, "t", f"{number}-a", f"{number}-b")
                producer.flush()
                producer.send_offsets({TopicPartition("t", 0): number}, GroupMetadata("g"))
                found = client.run(describe_transaction(client.cluster, "x"))
                assert found is not None and found.state == "Ongoing"
                cluster.kill(found.coordinator)
                producer.commit() if commits else producer.abort()
                cluster.restart(found.coordinator)
            assert committed(servers, "t") == ["0-a", "0-b", "2-a", "2-b"]
            first = TopicPartition("t", 0)
            assert client.run(committed_offsets(client.cluster, "g", [first])) == {first: 2}
