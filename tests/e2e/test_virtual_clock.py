"""Tests let weeks pass: records and offsets grow old, clients and their sessions do not notice."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import eventually
from tidelog.errors import TidelogError
from tidelog.testing import Broker, Cluster, VirtualClock

GROUP = "readers"


def create(servers: str, topic: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, 1, replicas, config={"retention.ms": str(7 * 86_400_000)})
    admin.create_topics([new])[topic].result(20)


def produce(servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def read_all(servers: str, topic: str) -> list[bytes | None]:
    settings = {
        "bootstrap.servers": servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes | None] = []
    try:
        while (message := consumer.poll(20)) is not None and message.error() is None:
            values.append(message.value())
        assert message is not None, "nothing came"
        return values
    finally:
        consumer.close()


def group_member(servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False})


def committed(member: Consumer, topic: str) -> int:
    (found,) = member.committed([TopicPartition(topic, 0)], timeout=20)
    return found.offset


def try_a_week(servers: str, clock: VirtualClock, replicas: int) -> None:
    create(servers, "orders", replicas)
    produce(servers, "orders", b"old")
    clock.advance(days=5)
    assert read_all(servers, "orders") == [b"old"]
    produce(servers, "orders", b"new")
    clock.advance(days=3)
    assert read_all(servers, "orders") == [b"new"]
    clock.advance(days=7)
    assert read_all(servers, "orders") == []


def test_records_older_than_the_retention_are_gone_and_newer_ones_are_there() -> None:
    clock = VirtualClock()
    # A segment for each day, so that the newer record is not in the older one's.
    with Broker(clock=clock, settings={"log.roll.hours": 24}) as broker:
        try_a_week(broker.bootstrap_servers, clock, 1)


def test_three_brokers_share_a_clock() -> None:
    clock = VirtualClock()
    with Cluster(brokers=3, clock=clock, settings={"log.roll.hours": 24}) as cluster:
        try_a_week(cluster.bootstrap_servers, clock, 3)
        leader = cluster.leader_of("orders")
        cluster.stop(leader)
        produce(cluster.bootstrap_servers, "orders", b"later")
        cluster.restart(leader)
        clock.advance(hours=1)
        assert read_all(cluster.bootstrap_servers, "orders") == [b"later"]
        with pytest.raises(TidelogError, match="no processes"):
            cluster.kill(0)


def test_committed_offsets_expire_once_nobody_is_in_the_group() -> None:
    clock = VirtualClock()
    settings = {"offsets.retention.minutes": 60 * 24, "offsets.topic.num.partitions": 1}
    with Broker(clock=clock, settings=settings) as broker:
        servers = broker.bootstrap_servers
        create(servers, "orders", 1)
        produce(servers, "orders", b"one")
        member = group_member(servers)
        member.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        clock.advance(hours=23)
        assert committed(member, "orders") == 1
        clock.advance(hours=2)
        assert committed(member, "orders") < 0
        member.close()


def test_a_member_stays_in_its_group_whatever_is_advanced() -> None:
    clock = VirtualClock()
    with Broker(clock=clock, settings={"offsets.topic.num.partitions": 1}) as broker:
        servers = broker.bootstrap_servers
        create(servers, "orders", 1)
        member = group_member(servers)
        revoked: list[object] = []
        member.subscribe(
            ["orders"],
            on_revoke=lambda _, partitions: revoked.extend(partitions),
            on_lost=lambda _, partitions: revoked.extend(partitions),
        )
        eventually(lambda: member.poll(0.1) is None and bool(member.assignment()))
        member.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        clock.advance(days=30)
        produce(servers, "orders", b"one")
        message = member.poll(20)
        assert message is not None and message.value() == b"one"
        member.commit(message, asynchronous=False)
        assert committed(member, "orders") == 1
        assert not revoked
        member.close()


def test_the_time_goes_on_over_a_restart_and_never_back(tmp_path: Path) -> None:
    clock = VirtualClock()
    with Broker(clock=clock, data_dir=tmp_path / "data") as broker:
        create(broker.bootstrap_servers, "orders", 1)
        produce(broker.bootstrap_servers, "orders", b"old")
        clock.advance(days=5)
    before = clock.time()
    with Broker(clock=clock, data_dir=tmp_path / "data") as broker:
        assert read_all(broker.bootstrap_servers, "orders") == [b"old"]
        clock.advance(days=3)
        assert read_all(broker.bootstrap_servers, "orders") == []
    assert clock.time() >= before + 3 * 86_400
    with pytest.raises(TidelogError, match="not set back"):
        clock.advance(days=-1)
