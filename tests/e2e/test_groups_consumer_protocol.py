"""Consumer groups (KIP-848) of real clients: join, share, leave, die, resume."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_client import RawClient
from tests.e2e.test_groups import (
    PARTITIONS,
    WAIT_SECONDS,
    Member,
    committed_sum,
    create_topic,
    produce,
    shared_by,
)
from tests.waiting import eventually
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.testing import Broker

NEWER: dict[str, object] = {"group.protocol": "consumer"}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "2000",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as running:
        yield running


def describe(servers: str, group: str) -> Any:
    with RawClient(servers) as client:
        request = ConsumerGroupDescribeRequest([group])
        found = client.call("ConsumerGroupDescribe", 1, request).groups[0]
    assert found.error_code == 0, found
    return found


@pytest.mark.parametrize("version", [3, 4])
def test_consumer_groups_are_a_finalized_feature(broker: Broker, version: int) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        request = ApiVersionsRequest("test", "1")
        answer = client.call("ApiVersions", version, request)
    assert {68, 69} <= {each.api_key for each in answer.api_keys}
    supported = {each.name: each.max_version for each in answer.supported_features}
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert supported["group.version"] == finalized["group.version"] == 1


def values_of(members: list[Member]) -> set[int]:
    return {value for each in members for value in each.values}


def test_members_share_as_they_come_and_go_and_go_on_where_others_were(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "t")
    members: list[Member] = []
    try:
        for count in (1, 2, 3):
            members.append(Member(servers, "g", "t", **NEWER))
            eventually(lambda: shared_by(members), lambda: [each.owned for each in members])
            assert {len(each.owned) for each in members} == {PARTITIONS // count}
            produce(servers, "t", range(count * 60, count * 60 + 60))
        members[1].close()
        left = [members[0], members[2]]
        eventually(lambda: shared_by(left))
        produce(servers, "t", range(240, 300))
        eventually(lambda: values_of(members) == set(range(60, 300)))
        # A partition moves when its owner has given it back: nothing is taken twice.
        assert sum(len(each.values) for each in members) == 240
        assert not [error for each in members for error in each.errors]
        found = describe(servers, "g")
        assert (found.group_state, found.assignor_name) == ("Stable", "uniform")
        assert found.group_epoch == found.assignment_epoch == 5
    finally:
        for each in members:
            each.close()
    again = Member(servers, "g", "t", **NEWER)
    try:
        produce(servers, "t", range(300, 330))
        eventually(lambda: len(again.values) >= 30)
        assert sorted(again.values) == list(range(300, 330))
    finally:
        again.close()


def test_members_beyond_the_partitions_idle_and_get_new_ones(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "narrow", 1)
    members = [Member(servers, "g", "narrow", **NEWER) for _ in range(3)]
    try:
        eventually(lambda: sorted(len(each.owned) for each in members) == [0, 0, 1])
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_partitions([NewPartitions("narrow", 3)])["narrow"].result(timeout=10)
        eventually(lambda: [len(each.owned) for each in members] == [1, 1, 1])
        produce(servers, "narrow", range(30), 3)
        eventually(lambda: values_of(members) == set(range(30)))
    finally:
        for each in members:
            each.close()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_work_of_a_dead_or_sleeping_worker_is_taken_over(
    broker: Broker, fault: signal.Signals
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "work")
    produce(servers, "work", range(60))
    script = str(Path(__file__).with_name("group_worker.py"))
    worker = subprocess.Popen(
        [sys.executable, script, servers, "work", "work", "consumer"], stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    member = None
    try:
        first = worker.stdout.readline()
        member = Member(servers, "work", "work", **NEWER)
        eventually(lambda: member is not None and len(member.owned) == PARTITIONS // 2)
        worker.send_signal(fault)
        eventually(lambda: member is not None and len(member.owned) == PARTITIONS)
        produce(servers, "work", range(60, 120))
        eventually(lambda: member is not None and set(member.values) >= set(range(60, 120)))
        expected = 120
        if fault is signal.SIGSTOP:
            # It wakes up with what others own now, learns that it is no member, and joins again.
            worker.send_signal(signal.SIGCONT)
            eventually(lambda: member is not None and len(member.owned) == PARTITIONS // 2)
            produce(servers, "work", range(120, 180))
            expected = 180
        eventually(lambda: committed_sum(servers) == expected)
    finally:
        worker.kill()
        worker.wait()
        printed = worker.stdout.read()
        worker.stdout.close()
        if member is not None:
            member.close()
    taken = {int(line) for line in (first + printed).split() if line.isdigit()}
    assert taken | set(member.values) == set(range(expected))


def test_a_static_member_that_returns_gets_what_it_had(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "t")
    first = Member(servers, "g", "t", **NEWER, **{"group.instance.id": "one"})
    second = Member(servers, "g", "t", **NEWER, **{"group.instance.id": "two"})
    try:
        eventually(lambda: shared_by([first, second]))
        before, epoch = set(first.owned), describe(servers, "g").group_epoch
        first.close()
        first = Member(servers, "g", "t", **NEWER, **{"group.instance.id": "one"})
        eventually(lambda: first.owned == before)
        assert shared_by([first, second])
        assert describe(servers, "g").group_epoch == epoch, "nobody else was disturbed"
    finally:
        first.close()
        second.close()


def test_members_and_epochs_live_through_a_kill_of_the_broker(tmp_path: Path) -> None:
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "10000"}
    with BrokerProcess(tmp_path / "data", settings) as process:
        servers = process.bootstrap_servers
        create_topic(servers, "t")
        patience: dict[str, object] = {**NEWER, "reconnect.backoff.max.ms": 200}
        members = [Member(servers, "g", "t", **patience) for _ in range(2)]
        try:
            eventually(lambda: shared_by(members))
            produce(servers, "t", range(60))
            eventually(lambda: values_of(members) == set(range(60)))
            before = describe(servers, "g")
            process.kill()
            process.start()
            produce(servers, "t", range(60, 120))
            eventually(lambda: values_of(members) == set(range(120)))
            after = describe(servers, "g")
            assert after.group_epoch == before.group_epoch
            assert {(each.member_id, each.member_epoch) for each in after.members} == {
                (each.member_id, each.member_epoch) for each in before.members
            }
            # All was committed before the broker went.
            assert sum(len(each.values) for each in members) - 120 <= PARTITIONS
        finally:
            for each in members:
                each.close()


def test_a_pattern_is_resolved_by_the_broker_with_topics_that_come_later(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    for topic in ("orders-a", "other"):
        create_topic(servers, topic, 1)
        produce(servers, topic, range(10), 1)
    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "g", **NEWER}
    settings["auto.offset.reset"] = "earliest"
    values: list[tuple[str | None, bytes | None]] = []

    def has_read(expected: set[str | None]) -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            values.append((message.topic(), message.value()))
        return {topic for topic, _ in values} == expected

    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["^orders-.*"])
        eventually(lambda: has_read({"orders-a"}))
        assert describe(servers, "g").members[0].subscribed_topic_regex == "(^orders-.*)"
        create_topic(servers, "orders-b", 1)
        produce(servers, "orders-b", range(10), 1)
        eventually(lambda: has_read({"orders-a", "orders-b"}) and len(values) == 20)
    assert len(set(values)) == 20


def test_a_malformed_pattern_is_refused_and_named_so(broker: Broker) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    with closing(Consumer({**settings, **NEWER})) as consumer:
        # The library's own rules allow it.
        consumer.subscribe(["^ta**"])
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None
        error = message.error()
        assert error is not None and "regular expression is not valid" in error.str()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g9_a_committed_offset_out_of_range_is_never_passed_over_in_silence(
    broker: Broker, protocol: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "t", 1)
    produce(servers, "t", range(10), 1)
    settings: dict[str, Any] = {"group.protocol": protocol, "bootstrap.servers": servers}
    for group, committed in (("below", 2), ("beyond", 99)):
        with closing(Consumer({"bootstrap.servers": servers, "group.id": group})) as seeder:
            seeder.commit(offsets=[TopicPartition("t", 0, committed)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_records([TopicPartition("t", 0, 5)])[TopicPartition("t", 0)].result(timeout=10)
    for group in ("below", "beyond"):
        strict = {**settings, "group.id": group, "auto.offset.reset": "error"}
        with closing(Consumer(strict)) as consumer:
            consumer.subscribe(["t"])
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None
            error = message.error()
            assert error is not None, message.value()
            assert error.code() == KafkaError._AUTO_OFFSET_RESET
        lenient = Member(
            servers, group, "t", **{"group.protocol": protocol, "auto.offset.reset": "earliest"}
        )
        try:
            eventually(lambda member=lenient: len(member.values) == 5)
            assert lenient.values == list(range(5, 10))
        finally:
            lenient.close()
