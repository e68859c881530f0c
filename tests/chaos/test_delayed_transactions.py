"""Requests of transactions that the network delivers late, with real clients (T10 to T12).

Each time the first try of a request is kept back and the client's second one goes through, so that
all goes on; then, with the next transaction under way, the first one arrives, at whoever leads or
coordinates by then. It must change nothing. Version 1 of the protocol has no epoch for each
transaction, so that there an end or a marker that is late is not told from the next one's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.chaos.holding import Hold
from tests.chaos.proxied import ProxiedBrokers
from tests.compat.clients import CLIENTS
from tests.compat.driver import Driver
from tests.compat.transactions import TransactionalProducer
from tests.compat.wire import StoredBatch, Wire
from tests.compat.wire_transactions import TransactionWire
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.testing import ZooKeeper

PRODUCE, END_TXN, WRITE_TXN_MARKERS = 0, 26, 27
BROKERS: Final = 3
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": "3000",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "1",
}
_SECONDS: Final = 60.0
CLIENT_IDS: Final = ["confluent-kafka", pytest.param("java-4.3", marks=pytest.mark.java)]
VERSION_2: Final = [pytest.param("java-4.3", marks=pytest.mark.java)]
# What happens while the request is on its way; the one with a failover takes a session.
BETWEEN: Final = ["nothing", pytest.param("failover", marks=pytest.mark.long)]


class World:
    """Three brokers behind proxies, one client, and a topic for each test."""

    def __init__(self, brokers: ProxiedBrokers, drivers: dict[str, Driver]) -> None:
        self.brokers = brokers
        self.drivers = drivers
        self.topic = ""
        self.transactional_id = ""
        self.partition = 0
        self.producer: TransactionalProducer | None = None
        self._tests = 0

    def begin(self, client: str) -> TransactionalProducer:
        """A producer of a new id, and a partition that another broker leads than coordinates it."""
        self._tests += 1
        self.topic, self.transactional_id = f"topic-{self._tests}", f"id-{self._tests}"
        with self.wire() as wire:
            wire.create_topic(self.topic, BROKERS)
            leaders = wire.leaders(self.topic)
        driver = self.drivers[client]
        self.producer = TransactionalProducer(driver, f"producer-{self._tests}")
        self.producer.open(self.transactional_id)
        coordinator = self.coordinator()
        self.partition = next(each for each, leader in leaders.items() if leader != coordinator)
        return self.producer

    def deliver(self, value: bytes) -> None:
        assert self.producer is not None
        self.producer.deliver(self.topic, value, partition=self.partition)

    def hold(self, api_key: int) -> Hold:
        """Keep the first request of the kind back that is of this test."""
        marks = {
            # The first record, which is not compressed; newer versions name topics by their ids.
            PRODUCE: b"one",
            END_TXN: self.transactional_id.encode(),
            WRITE_TXN_MARKERS: self.topic.encode(),
        }
        held = Hold(api_key, marks[api_key])
        for proxy in self.brokers.proxies:
            proxy.hold = held
        return held

    def leader(self) -> int:
        return self.brokers.leader_of(self.topic, self.partition)

    def coordinator(self) -> int:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        found: list[int] = []

        def is_found() -> bool:
            running = next(each for each in self.brokers.ids if self.brokers.is_running(each))
            with RawClient(self.brokers.server(running)) as client:
                (answer,) = client.call("FindCoordinator", 4, request).coordinators
            found[:] = [answer.node_id] if answer.error_code == 0 else []
            return bool(found)

        eventually(is_found, seconds=_SECONDS)
        return found[0]

    def fail_over(self, who: Callable[[], int]) -> None:
        """Kill who has the role, wait for another one in it, and start the first again."""
        killed = who()
        self.brokers.kill(killed)
        eventually(lambda: who() not in (killed, -1), seconds=_SECONDS)
        self.brokers.restart(killed)

    def batches(self) -> list[StoredBatch]:
        with self.wire() as wire:
            return wire.fetch_batches(self.topic, self.partition)

    def values(self) -> list[bytes | None]:
        with self.wire() as wire:
            view = TransactionWire(wire).until_stable(self.topic, self.partition)
        return list(view.values)

    def is_open(self) -> bool:
        with self.wire() as wire:
            view = TransactionWire(wire).view(self.topic, self.partition)
        return view.stable_offset < view.high_watermark

    def wire(self) -> contextlib.closing[Wire]:
        """New each time: a connection to a broker that was killed is of no use any more."""
        return contextlib.closing(Wire(self.brokers.server(0), BROKERS))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with contextlib.ExitStack() as cleanup:
        zookeeper = ZooKeeper().start()
        cleanup.callback(zookeeper.stop)
        data = tmp_path_factory.mktemp("delayed") / "data"
        brokers = ProxiedBrokers(BROKERS, data, _SETTINGS, zookeeper.address)
        cleanup.callback(brokers.end)
        brokers.start()
        drivers = {
            client.name: Driver(client.command(), brokers.bootstrap_servers, BROKERS)
            for client in CLIENTS
            if client.name in ("confluent-kafka", "java-4.3")
        }
        for driver in drivers.values():
            cleanup.callback(driver.close)
        yield World(brokers, drivers)


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("client", CLIENT_IDS)
def test_t10_a_produce_that_comes_after_the_abort_leaves_nothing_open(
    world: World, client: str, between: str
) -> None:
    producer = world.begin(client)
    late = world.hold(PRODUCE)
    producer.begin()
    world.deliver(b"one")
    assert late.kept.is_set()
    producer.abort()
    assert world.values() == []
    if between == "failover":
        world.fail_over(world.leader)
    stored = world.batches()
    late.deliver(world.brokers.address(world.leader()))
    assert world.batches() == stored
    assert not world.is_open()
    producer.close()


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("client", CLIENT_IDS)
def test_t11_a_produce_that_comes_late_does_not_join_the_next_transaction(
    world: World, client: str, between: str
) -> None:
    producer = world.begin(client)
    late = world.hold(PRODUCE)
    producer.begin()
    world.deliver(b"one")
    assert late.kept.is_set()
    producer.abort()
    producer.begin()
    world.deliver(b"two")
    if between == "failover":
        world.fail_over(world.leader)
    stored = world.batches()
    late.deliver(world.brokers.address(world.leader()))
    assert world.batches() == stored
    producer.commit()
    assert world.values() == [b"two"]
    producer.close()


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("client", VERSION_2)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_t12_an_end_that_comes_late_does_not_end_the_next_transaction(
    world: World, client: str, between: str, commits: bool
) -> None:
    producer = world.begin(client)
    producer.begin()
    world.deliver(b"one")
    late = world.hold(END_TXN)
    producer.commit() if commits else producer.abort()
    assert late.kept.is_set()
    producer.begin()
    world.deliver(b"two")
    if between == "failover":
        world.fail_over(world.coordinator)
    late.deliver(world.brokers.address(world.coordinator()))
    assert world.is_open()
    # The other way round than the late one: what it says must not show.
    producer.abort() if commits else producer.commit()
    assert world.values() == ([b"one"] if commits else [b"two"])
    producer.close()


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("client", VERSION_2)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_t13_a_marker_that_comes_late_does_not_decide_the_next_transaction(
    world: World, client: str, between: str, commits: bool
) -> None:
    producer = world.begin(client)
    late = world.hold(WRITE_TXN_MARKERS)
    producer.begin()
    world.deliver(b"one")
    producer.commit() if commits else producer.abort()
    assert late.kept.wait(_SECONDS)
    producer.begin()
    world.deliver(b"two")
    if between == "failover":
        world.fail_over(world.leader)
    stored = world.batches()
    late.deliver(world.brokers.address(world.leader()))
    assert world.batches() == stored
    assert world.is_open()
    producer.abort() if commits else producer.commit()
    assert world.values() == ([b"one"] if commits else [b"two"])
    producer.close()
