"""Real clients restarted one by one, from the classic group protocol to the newer one and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_client import RawClient
from tests.e2e.test_groups import PARTITIONS, Member, create_topic, produce, shared_by
from tests.e2e.test_groups_consumer_protocol import NEWER, SETTINGS, values_of
from tests.waiting import eventually
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.testing import Broker

# What a client reports and gets over by itself: it joins again.
PASSING = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)
CLASSIC: dict[str, object] = {"group.protocol": "classic"}
EAGER: dict[str, object] = {**CLASSIC, "partition.assignment.strategy": "range"}
COOPERATIVE: dict[str, object] = {
    **CLASSIC,
    "partition.assignment.strategy": "cooperative-sticky",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as running:
        yield running


class CountingMember(Member):
    """Counts the commits that a rebalance overtook: their records come again, with any broker."""

    refused = 0

    def _commit(self, message: Message) -> None:
        try:
            self.consumer.commit(message, asynchronous=False)
        except KafkaException as raised:
            self.refused += 1
            self.note(raised.args[0])

    def note(self, error: KafkaError) -> None:
        if error.code() not in PASSING:
            self.errors.append(error)


class Fleet:
    """Three members of a group, and what they have read in all their lives."""

    def __init__(self, servers: str, protocol: dict[str, object]) -> None:
        self.servers = servers
        self.produced = 0
        self.gone: list[CountingMember] = []
        self.members = [CountingMember(servers, "g", "t", **protocol) for _ in range(3)]
        self.until_shared()

    def restart(self, index: int, protocol: dict[str, object]) -> None:
        """The process ends in good order and comes back with another protocol."""
        self.members[index].close()
        self.gone.append(self.members[index])
        self.members[index] = CountingMember(self.servers, "g", "t", **protocol)

    def until_shared(self) -> None:
        eventually(
            lambda: shared_by(self.members),
            lambda: [(each.owned, each.errors) for each in self.members],
        )

    def produce(self) -> None:
        produce(self.servers, "t", range(self.produced, self.produced + 60))
        self.produced += 60

    def until_read(self) -> None:
        eventually(lambda: values_of([*self.everybody]) == set(range(self.produced)))

    @property
    def everybody(self) -> list[CountingMember]:
        return [*self.gone, *self.members]

    @property
    def repeated(self) -> int:
        return sum(len(each.values) for each in self.everybody) - self.produced

    @property
    def refused(self) -> int:
        return sum(each.refused for each in self.everybody)

    def errors(self) -> list[KafkaError]:
        found = [error for each in self.everybody for error in each.errors]
        return [error for error in found if error.code() not in PASSING]

    def close(self) -> None:
        for each in self.members:
            each.close()


def group_type(servers: str) -> str:
    with RawClient(servers) as client:
        (found,) = client.call("ListGroups", 5, ListGroupsRequest()).groups
    return str(found.group_type)


@pytest.mark.parametrize("classic", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_fleet_goes_over_to_the_newer_protocol_and_back_one_by_one(
    broker: Broker, classic: dict[str, object]
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "t")
    fleet = Fleet(servers, classic)
    try:
        for protocol, kind in ((NEWER, "consumer"), (classic, "classic")):
            for index in range(3):
                fleet.produce()
                fleet.restart(index, protocol)
                fleet.until_shared()
                fleet.produce()
                fleet.until_read()
            assert group_type(servers) == kind
        # Every partition was given back before it went on.
        assert fleet.repeated <= fleet.refused
        assert not fleet.errors()
    finally:
        fleet.close()


def test_a_group_of_both_protocols_lives_through_a_kill_of_the_broker(tmp_path: Path) -> None:
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "10000"}
    patience: dict[str, object] = {"reconnect.backoff.max.ms": 200}
    with BrokerProcess(tmp_path / "data", settings) as process:
        create_topic(process.bootstrap_servers, "t")
        fleet = Fleet(process.bootstrap_servers, {**COOPERATIVE, **patience})
        try:
            for protocol in (NEWER, COOPERATIVE):
                fleet.restart(0, {**protocol, **patience})
                # Right in the middle of it.
                process.kill()
                process.start()
                fleet.produce()
                fleet.until_shared()
                fleet.until_read()
            assert group_type(process.bootstrap_servers) == "classic"
            # All was committed before the broker went, except what was on its way.
            assert fleet.repeated <= fleet.refused + 2 * PARTITIONS
        finally:
            fleet.close()
