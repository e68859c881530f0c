"""Brokers reach brokers: in order, within deadlines, and without copies of what is large."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from tests.unit.cluster.scripted_broker import ScriptedBroker
from tidelog.client.faults import ConnectError, NetworkError, RequestTimeoutError
from tidelog.cluster.backoff import Backoff
from tidelog.cluster.image import Endpoint
from tidelog.cluster.peer import PeerConnection, PeerOptions, Send
from tidelog.host.host import Host, system_host
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.testing.simulation.machines import World
from tidelog.testing.simulation.network import SimulatedNetwork
from tidelog.testing.simulation.nodes import SimulatedLoop
from tidelog.testing.virtual_loop import SeededRandom

LARGE = bytes(range(256)) * 4096


def answer(header: RequestHeader, message: Any) -> Any:
    if isinstance(message, FetchRequest):
        records = LARGE[message.max_wait_ms :]
        part = PartitionData(partition_index=0, records=records)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic_id=UUID(int=1), partitions=[part])]
        )
    return DescribeClusterResponse(cluster_id="of-tests")


async def ask(peer: PeerConnection, timeout_s: float = 5.0) -> str:
    response = await peer.request("DescribeCluster", DescribeClusterRequest(), timeout_s)
    return str(response.cluster_id)


async def fetch(peer: PeerConnection, skip: int) -> memoryview:
    request = FetchRequest(max_wait_ms=skip)
    response = await peer.request("Fetch", request, 5.0)
    records: memoryview = response.responses[0].partitions[0].records
    return records


def simulated(test: Any) -> Any:
    """Run a test on the simulated network, with the scripted broker on the machine `far`."""

    def run() -> None:
        loop = SimulatedLoop(1, limit_seconds=3600)

        async def main() -> None:
            world = World(loop)
            broker = ScriptedBroker(answer)
            host = world.client_host()
            endpoint = await loop.add("far").start(broker.listen(host, "far"))
            await test(host, broker, endpoint)

        try:
            loop.run_until_complete(main())
        finally:
            loop.close()

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def on_sockets(test: Any) -> None:
    async def main() -> None:
        host = system_host("test")
        broker = ScriptedBroker(answer)
        endpoint = await broker.listen(host)
        try:
            await test(host, broker, endpoint)
        finally:
            await broker.close()
            host.offload.close()

    asyncio.run(main())


async def several(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*work, return_exceptions=True)


@simulated
async def test_requests_share_a_connection_and_are_answered_in_order(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    peer = PeerConnection(host.network, endpoint)
    results = await several(ask(peer), fetch(peer, 7), ask(peer), fetch(peer, 9))
    assert results == ["of-tests", LARGE[7:], "of-tests", LARGE[9:]]
    assert len(broker.connections) == 1 and peer.lives == 1


@simulated
async def test_a_request_that_gets_no_answer_in_time_costs_the_connection(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    peer = PeerConnection(host.network, endpoint)
    await ask(peer)
    broker.answers_now = False
    late, behind = await several(ask(peer, 1.0), ask(peer, 5.0))
    assert isinstance(late, RequestTimeoutError) and "DescribeCluster within 1 s" in str(late)
    assert isinstance(behind, NetworkError)
    assert not peer.is_connected
    # The answer that comes late is not taken for that to another request.
    broker.answer_held()
    assert await ask(peer) == "of-tests"
    assert peer.lives == 2


@simulated
async def test_a_lost_connection_fails_every_request_under_way(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    peer = PeerConnection(host.network, endpoint)
    await ask(peer)
    broker.answers_now = False
    waiting = asyncio.gather(ask(peer), ask(peer), return_exceptions=True)
    await asyncio.sleep(0.1)
    broker.connections[0].transport.abort()
    assert all(isinstance(each, NetworkError) for each in await waiting)
    assert not peer.is_connected


@simulated
async def test_connecting_counts_against_the_deadline_and_sends_nothing(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    assert isinstance(host.network, SimulatedNetwork)
    host.network.cut("world", "far")
    peer = PeerConnection(host.network, endpoint)
    started = host.clock.monotonic()
    with pytest.raises(ConnectError):
        await ask(peer, 2.0)
    assert host.clock.monotonic() - started == pytest.approx(2.0)
    host.network.heal_all()
    assert await ask(peer) == "of-tests"
    assert len(broker.requests) == 1


@simulated
async def test_an_address_where_nobody_listens_is_a_connect_error(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    with pytest.raises(ConnectError, match="far:1: Connection refused"):
        await ask(PeerConnection(host.network, Endpoint("BROKER", "far", 1)))


@simulated
async def test_nothing_is_sent_before_the_broker_has_authenticated(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    seen = []

    async def authenticate(send: Send) -> None:
        seen.append((await send("DescribeCluster", DescribeClusterRequest())).cluster_id)
        seen.append(len(broker.requests))

    peer = PeerConnection(host.network, endpoint, PeerOptions(authenticate=authenticate))
    await several(fetch(peer, 0), fetch(peer, 0))
    assert seen == ["of-tests", 1]
    assert [header.api_key for header, _ in broker.requests] == [60, 1, 1]


@simulated
async def test_a_refused_authentication_ends_the_connection(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    async def authenticate(send: Send) -> None:
        raise ConnectError("far", "the password is wrong")

    peer = PeerConnection(host.network, endpoint, PeerOptions(authenticate=authenticate))
    with pytest.raises(ConnectError, match="the password is wrong"):
        await ask(peer)
    await asyncio.sleep(0.1)
    assert broker.connections[0].is_lost and not broker.requests


@simulated
async def test_a_closed_connection_fails_what_is_under_way_and_what_comes(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    peer = PeerConnection(host.network, endpoint)
    await ask(peer)
    broker.answers_now = False
    waiting = asyncio.ensure_future(several(ask(peer)))
    await asyncio.sleep(0.1)
    peer.close()
    assert isinstance((await waiting)[0], NetworkError)
    with pytest.raises(ConnectError):
        await ask(peer)
    assert len(broker.connections) == 1


@simulated
async def test_closing_ends_an_attempt_to_connect_at_once(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    assert isinstance(host.network, SimulatedNetwork)
    host.network.cut("world", "far")
    peer = PeerConnection(host.network, endpoint)
    started = host.clock.monotonic()
    waiting = asyncio.ensure_future(several(ask(peer, 30.0), ask(peer, 30.0)))
    await asyncio.sleep(0.5)
    peer.close()
    assert [type(each) for each in await waiting] == [ConnectError, ConnectError]
    assert host.clock.monotonic() - started == pytest.approx(0.5)


@simulated
async def test_a_request_that_is_given_up_does_not_leave_its_answer_to_the_next(
    host: Host, broker: ScriptedBroker, endpoint: Endpoint
) -> None:
    peer = PeerConnection(host.network, endpoint, PeerOptions(reuses_memory=True))
    await fetch(peer, 0)
    broker.answers_now = False
    given_up = asyncio.ensure_future(fetch(peer, 1))
    await asyncio.sleep(0.1)
    given_up.cancel()
    await several(asyncio.wait_for(given_up, 1))
    broker.answer_held()
    assert await fetch(peer, 2) == LARGE[2:]
    assert peer.lives == 2


def test_large_answers_come_into_the_same_memory_on_real_sockets() -> None:
    async def check(host: Host, broker: ScriptedBroker, endpoint: Endpoint) -> None:
        peer = PeerConnection(host.network, endpoint, PeerOptions(reuses_memory=True))
        first = await fetch(peer, 0)
        assert first == LARGE
        second = await fetch(peer, 1)
        assert second == LARGE[1:]
        assert first.obj is second.obj
        peer.close()

    on_sockets(check)


def test_answers_that_are_under_way_together_keep_their_own_memory_on_real_sockets() -> None:
    async def check(host: Host, broker: ScriptedBroker, endpoint: Endpoint) -> None:
        peer = PeerConnection(host.network, endpoint)
        results = await several(*(fetch(peer, skip) for skip in range(5)), ask(peer))
        assert results == [LARGE[skip:] for skip in range(5)] + ["of-tests"]
        peer.close()

    on_sockets(check)


def test_waits_between_tries_grow_within_their_bounds_and_differ() -> None:
    backoff = Backoff(SeededRandom(3))
    waits = [backoff.next_s() for _ in range(200)]
    assert all(0.05 <= each <= 1.0 for each in waits)
    assert waits[0] <= 0.1 and min(waits[5:]) >= 0.5
    assert len(set(waits)) > 100
    backoff.reset()
    assert backoff.next_s() <= 0.1
