"""Clients beyond their quotas: what they are told, when they are read again, who is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.server.middle import Middle, Peer, turns_of_the_loop
from tidelog.cluster.controller_link import Charged, Mutations
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.schema import encode
from tidelog.security.authorizer import Principal
from tidelog.server.answer_cache import EncodedAnswer
from tidelog.server.routes import Route
from tidelog.server.throttling import LoopUse, MutationQuota, Throttling, timed
from tidelog.testing.virtual_loop import virtual_time

# Ten seconds' worth of each may be used at once; see `security/quotas`.
ANYBODY = (("user", None),)
BROKER = Principal("User:__broker", is_broker=True)


def middle(monkeypatch: pytest.MonkeyPatch, **quotas: float) -> Middle:
    def produce(request: ProduceRequest, _: object) -> ProduceResponse | None:
        return ProduceResponse() if request.acks else None

    made = Middle(
        monkeypatch,
        {
            "Produce": Route(produce, overlaps=True),
            "Heartbeat": Route(lambda *_: HeartbeatResponse()),
            "Metadata": Route(lambda *_: EncodedAnswer(encode(MetadataResponse(), 12))),
        },
    )
    made.throttling.follow({ANYBODY: quotas})
    return made


def produce(peer: Peer, number: int, size: int, acks: int = 1) -> None:
    """A request of `size` bytes in all."""
    request = ProduceRequest(None, acks, 1_000, [TopicProduceData("t", partition_data=[])])
    request.topic_data[0].partition_data = [PartitionProduceData(0, b"")]
    empty = len(peer.frame(number, "Produce", 8, request))
    request.topic_data[0].partition_data = [PartitionProduceData(0, bytes(size - empty))]
    peer.ask(number, "Produce", 8, request)


def now() -> float:
    return asyncio.get_running_loop().time()


async def answered(peer: Peer, number: int) -> float:
    """When a request is answered, which it need not be at once."""
    while number not in peer.answered:
        await asyncio.sleep(0.001)
    return now()


@virtual_time
async def test_the_answer_leaves_first_and_then_the_connection_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = middle(monkeypatch, producer_byte_rate=1_000).connect()
    began = now()
    produce(peer, 1, 10_000)
    assert peer.answer(1).throttle_time_ms == 0 and not peer.connection.is_muted
    produce(peer, 2, 2_000)
    # 12,000 bytes in ten seconds: two tenths too many.
    assert peer.answer(2).throttle_time_ms == 2_000 and peer.connection.is_muted
    produce(peer, 3, 100)
    assert peer.answered == [1, 2], "sent already, and taken up when the time is over"
    assert await answered(peer, 3) - began == pytest.approx(2.0, abs=0.002)


@virtual_time
async def test_another_client_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = middle(monkeypatch)
    made.throttling.follow({(("user", "ANONYMOUS"),): {"producer_byte_rate": 1.0}})
    noisy, quiet = made.connect(), made.connect()
    quiet.connection.principal = Principal("User:quiet", is_broker=False)
    produce(noisy, 1, 5_000)
    assert noisy.connection.is_muted
    produce(quiet, 1, 900)
    produce(quiet, 2, 900)
    assert quiet.answered == [1, 2]


@virtual_time
async def test_connections_of_one_user_share_its_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    made = middle(monkeypatch, producer_byte_rate=1_000)
    first, second = made.connect(), made.connect()
    produce(first, 1, 10_000)
    produce(second, 1, 1_000)
    assert second.answer(1).throttle_time_ms == 1_000
    assert second.connection.is_muted and not first.connection.is_muted


@virtual_time
async def test_a_produce_without_an_answer_counts_and_mutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = middle(monkeypatch, producer_byte_rate=1_000).connect()
    produce(peer, 1, 12_000, acks=0)
    assert peer.connection.is_muted and peer.answered == []


@virtual_time
async def test_brokers_are_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = middle(monkeypatch, producer_byte_rate=1).connect()
    peer.connection.principal = BROKER
    produce(peer, 1, 50_000)
    assert peer.answer(1).throttle_time_ms == 0 and not peer.connection.is_muted


@virtual_time
async def test_a_greedy_producer_is_held_within_five_percent_of_its_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, size = 100_000, 16_384
    peer = middle(monkeypatch, producer_byte_rate=limit).connect()
    number = counted = 0
    while now() < 1_240:
        number += 1
        produce(peer, number, size)
        assert peer.answered == [number]
        wait_s = peer.answer(number).throttle_time_ms / 1000
        peer.received.clear()
        if now() >= 1_040:
            counted += size
        await asyncio.sleep(wait_s + 0.001)
    assert counted / 200 == pytest.approx(limit, rel=0.05)


@virtual_time
async def test_a_greedy_consumer_is_held_within_five_percent_of_its_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, size = 100_000, 16_384
    made = middle(monkeypatch, consumer_byte_rate=limit)
    connection = made.connect().connection
    header = RequestHeader(1, 11, 1, "peer")
    context: Any = SimpleNamespace(connection=connection, header=header, quota_use=None)
    assert made.throttling.fetch_bytes_max(context) == 10 * limit
    counted = withheld = 0
    while now() < 1_240:
        wait_ms, is_given = made.throttling.fetched(context, size)
        assert is_given == (wait_ms == 0)
        withheld += not is_given
        if is_given and now() >= 1_040:
            counted += size
        await asyncio.sleep(wait_ms / 1000 + 0.001)
    assert withheld and counted / 200 == pytest.approx(limit, rel=0.05)


# -- what a muted connection must not suffer ------------------------------------------------------


@virtual_time
async def test_a_muted_connection_is_not_closed_as_idle_or_stalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = middle(monkeypatch, producer_byte_rate=5)
    peer = made.connect()
    produce(peer, 1, 500)
    # The next request has begun to arrive.
    peer.send(b"\0\0\1\0half")
    await asyncio.sleep(60)
    made.listener.sweep(now())
    assert peer.connection.is_muted and not peer.is_closed
    await asyncio.sleep(31)
    assert not peer.connection.is_muted
    made.listener.sweep(now())
    assert not peer.is_closed, "its time begins now"
    await asyncio.sleep(2)
    made.listener.sweep(now())
    assert peer.is_closed


@virtual_time
async def test_a_shutdown_does_not_wait_for_muted_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = middle(monkeypatch, producer_byte_rate=1)
    peer = made.connect()
    produce(peer, 1, 100_000)
    assert peer.connection.is_muted
    began = now()
    await made.listener.drain(began + 30)
    assert peer.is_closed and now() == began and not peer.connection.is_muted


@virtual_time
async def test_a_connection_that_is_gone_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = middle(monkeypatch, producer_byte_rate=1).connect()
    produce(peer, 1, 100_000)
    peer.connection.close("the test is done")
    await turns_of_the_loop()
    assert not peer.connection.is_muted


@virtual_time
async def test_what_was_asked_before_is_answered_while_muted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = middle(monkeypatch, producer_byte_rate=1_000)
    waiting: list[asyncio.Future[ProduceResponse]] = []

    def wait(*_: object) -> asyncio.Future[ProduceResponse]:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    made.serve("Produce", Route(wait, overlaps=True))
    peer = made.connect()
    produce(peer, 1, 20_000)
    produce(peer, 2, 20_000)
    waiting[0].set_result(ProduceResponse())
    await turns_of_the_loop()
    assert peer.connection.is_muted and peer.answered == [1]
    waiting[1].set_result(ProduceResponse())
    await turns_of_the_loop()
    assert peer.answered == [1, 2]


# -- time of requests -----------------------------------------------------------------------------


class BusyClock:
    """A clock that every look at it moves on, as work would."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.time = 1_000.0

    def monotonic(self) -> float:
        self.time += self.step
        return self.time


@virtual_time
async def test_time_on_the_loop_counts_and_no_wait_is_longer_than_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = middle(monkeypatch, request_percentage=10)
    peer = made.connect()
    peer.connection.loop_use.begin(now() - 0.5)
    peer.connection.loop_use.end(now())
    peer.ask(1, "Heartbeat", 4, HeartbeatRequest("g"))
    # Half a second in ten are 5 percent.
    assert peer.answer(1).throttle_time_ms == 0
    peer.connection.loop_use.begin(now() - 0.55)
    peer.connection.loop_use.end(now())
    peer.ask(2, "Heartbeat", 4, HeartbeatRequest("g"))
    assert peer.answer(2).throttle_time_ms == 500
    await asyncio.sleep(0.6)
    peer.connection.loop_use.begin(now() - 9)
    peer.connection.loop_use.end(now())
    peer.ask(3, "Metadata", 12, MetadataRequest())
    assert peer.answer(3).throttle_time_ms == 1_000


def test_the_steps_of_a_task_are_timed_and_its_waits_are_not() -> None:
    async def run() -> tuple[str, float]:
        use, clock = LoopUse(), BusyClock(1.0)

        async def work() -> str:
            await asyncio.sleep(0)
            try:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            except KafkaError:
                await asyncio.sleep(0)
            return "done"

        result = await timed(work(), use, clock)  # type: ignore[arg-type]
        return result, use.take(clock.monotonic())

    # Three steps, with a second from each look at the clock to the next.
    assert asyncio.run(run()) == ("done", 3.0)


# -- changes of metadata --------------------------------------------------------------------------


class Mutating:
    """One request after another that creates partitions, here or where the controller is."""

    def __init__(self, limit: float, *, is_strict: bool, charged: Charged | None = None) -> None:
        self.clock = BusyClock(0.0)
        throttling = Throttling(self.clock)  # type: ignore[arg-type]
        throttling.follow({ANYBODY: {"controller_mutation_rate": limit}})
        self.quota = MutationQuota(throttling, ("alice", ""), is_strict=is_strict)
        self.charged = charged
        self.asked: list[Mutations] = []

    def take(self, *counts: int) -> list[ErrorCode | None]:
        errors = asyncio.run(self.quota.take(counts, self._at_controller))
        return [None if each is None else each.code for each in errors]

    async def _at_controller(self, mutations: Mutations) -> Charged | None:
        self.asked.append(mutations)
        return self.charged


LATER = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_partitions_beyond_the_quota_are_refused_until_nothing_is_owed() -> None:
    made = Mutating(2, is_strict=True)
    # What takes none is not refused.
    assert made.take(10, 0, 20, 1, 0) == [None, None, None, LATER, None]
    assert made.quota.throttle_ms == 4_000
    assert made.take(1) == [LATER]
    made.clock.time += 4
    assert made.take(1) == [None]


def test_older_versions_are_not_refused_and_wait() -> None:
    made = Mutating(2, is_strict=False)
    assert made.take(30) == [None] and made.quota.throttle_ms == 4_000
    assert made.take(2) == [None] and made.quota.throttle_ms == 5_000


def test_the_controller_counts_for_clients_of_other_brokers() -> None:
    made = Mutating(2, is_strict=True, charged=Charged(1, 700))
    assert made.take(0, 3, 4) == [None, None, LATER] and made.quota.throttle_ms == 700
    assert made.asked == [Mutations("alice", "", True, [3, 4])]


# -- connections ----------------------------------------------------------------------------------


@virtual_time
async def test_an_address_that_connects_too_fast_is_closed_unread_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = middle(monkeypatch)
    made.throttling.follow({(("ip", "127.0.0.1"),): {"connection_creation_rate": 0.5}})
    peers = [made.connect() for _ in range(6)]
    *good, late = peers
    for peer in peers:
        peer.ask(1, "Heartbeat", 4, HeartbeatRequest("g"))
    assert [peer.answered for peer in good] == [[1]] * 5 and late.answered == []
    await asyncio.sleep(0.999)
    assert not late.is_closed, "it counts for the limits meanwhile"
    await asyncio.sleep(0.002)
    assert late.is_closed and made.throttling.throttled.connections == 1
    # Another address has no such quota.
    assert made.throttling.connected("127.0.0.9") == 0


# -- what quotas change ---------------------------------------------------------------------------


@virtual_time
async def test_a_new_limit_counts_at_once_with_what_was_used_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = middle(monkeypatch, producer_byte_rate=1e9)
    peer = made.connect()
    produce(peer, 1, 20_000)
    made.throttling.follow({ANYBODY: {"producer_byte_rate": 1_000}})
    produce(peer, 2, 1_000)
    assert peer.answer(2).throttle_time_ms == 11_000
    await asyncio.sleep(11.1)
    made.throttling.follow({})
    assert not made.throttling.is_on
    produce(peer, 3, 100_000)
    assert peer.answer(3).throttle_time_ms == 0


def test_what_is_known_of_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.server.throttling._CLIENTS_MAX", 100)
    clock = BusyClock(0.0)
    throttling = Throttling(clock)  # type: ignore[arg-type]
    throttling.follow({(("client-id", None),): {"producer_byte_rate": 1.0}})
    for number in range(1_000):
        throttling._client("alice", f"client-{number}")
        throttling._client("alice", "client-0")
    assert len(throttling._clients) == len(throttling._meters) == 100
    assert ("alice", "client-0") in throttling._clients, "heard of last"


@virtual_time
async def test_the_pages_show_who_is_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = middle(monkeypatch, producer_byte_rate=1_000)
    peer = made.connect()
    produce(peer, 1, 12_000)

    def shown() -> Mapping[str, str]:
        lines = (line for line in made.throttling.lines() if not line.startswith("#"))
        return dict(line.rsplit(" ", 1) for line in lines)  # type: ignore[arg-type, misc]

    label = '{quota="producer_byte_rate"}'
    assert shown()["tidelog_throttled_answers_total" + label] == "1"
    assert shown()["tidelog_throttled_seconds_total" + label] == "2.0"
    assert shown()["tidelog_throttled_clients" + label] == "1"
    await asyncio.sleep(2.1)
    assert shown()["tidelog_throttled_clients" + label] == "0"
