"""Real clients restarted one by one, from the classic group protocol to the newer one and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_client import RawClient
from tests.e2e.test_groups import Member, create_topic, produce, shared_by
from tests.e2e.test_groups_consumer_protocol import NEWER, SETTINGS, values_of
from tests.waiting import eventually
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.testing import Broker

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


class Fleet:
    """Three members of a group, and what they have read in all their lives."""

    def __init__(self, servers: str, protocol: dict[str, object]) -> None:
        self.servers = servers
        self.produced = 0
        self.gone: list[Member] = []
        self.members = [Member(servers, "g", "t", **protocol) for _ in range(3)]
        self.until_shared()

    def restart(self, index: int, protocol: dict[str, object]) -> None:
        """The process ends in good order and comes back with another protocol."""
        self.members[index].close()
        self.gone.append(self.members[index])
        self.members[index] = Member(self.servers, "g", "t", **protocol)

    def until_shared(self) -> None:
        eventually(
            lambda: shared_by(self.members),
            lambda: [(each.owned, each.errors) for each in self.members],
        )

    def produce(self) -> None:
        produce(self.servers, "t", range(self.produced, self.produced + 60))
        self.produced += 60

    def until_read(self) -> None:
        everything = [*self.gone, *self.members]
        eventually(lambda: values_of(everything) == set(range(self.produced)))

    @property
    def repeated(self) -> int:
        return sum(len(each.values) for each in (*self.gone, *self.members)) - self.produced

    def errors(self) -> list[Any]:
        return [error for each in (*self.gone, *self.members) for error in each.errors]

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
        assert fleet.repeated == 0, "every partition was given back before it went on"
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
            for index, protocol in ((0, NEWER), (1, NEWER), (0, COOPERATIVE), (1, COOPERATIVE)):
                fleet.restart(index, {**protocol, **patience})
                # Right in the middle of it.
                process.kill()
                process.start()
                fleet.produce()
                fleet.until_shared()
                fleet.until_read()
            assert group_type(process.bootstrap_servers) == "classic"
            # All was committed before the broker went, except what was on its way.
            assert fleet.repeated <= 4 * 6
        finally:
            fleet.close()
