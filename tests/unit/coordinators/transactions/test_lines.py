"""What waits for other brokers goes out together, and a fault of one request loses no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from tidelog.cluster.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from tidelog.coordinators.transactions.lines import Lines
from tidelog.coordinators.transactions.markers import Marker, MarkerLinks, MarkerSender
from tidelog.coordinators.transactions.shard import Decision
from tidelog.coordinators.transactions.stats import TransactionStats
from tidelog.coordinators.transactions.transaction import Producer
from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.testing.virtual_loop import virtual_host, virtual_time


@virtual_time
async def test_what_comes_during_a_request_goes_with_the_next_one() -> None:
    sent: list[tuple[int, list[str]]] = []
    is_free = asyncio.Event()

    async def send(broker_id: int, items: list[str]) -> None:
        sent.append((broker_id, items))
        await is_free.wait()

    lines = Lines("things", 2, send)
    lines.put(1, "a")
    lines.put(2, "other")
    await asyncio.sleep(0)
    for item in "bcd":
        lines.put(1, item)
    await asyncio.sleep(0)
    assert sent == [(1, ["a"]), (2, ["other"])]
    is_free.set()
    await asyncio.sleep(1)
    assert sent[2:] == [(1, ["b", "c"]), (1, ["d"])]
    assert await lines.close() == []


@virtual_time
async def test_a_fault_of_one_request_does_not_lose_what_waits_behind_it() -> None:
    sent: list[list[str]] = []

    async def send(broker_id: int, items: list[str]) -> None:
        sent.append(items)
        if items == ["a"]:
            raise RuntimeError("nobody foresaw it")

    lines = Lines("things", 1, send)
    lines.put(1, "a")
    lines.put(1, "b")
    await asyncio.sleep(1)
    assert sent == [["a"], ["b"]]


@virtual_time
async def test_a_line_that_is_closed_gives_back_what_was_not_sent() -> None:
    async def send(broker_id: int, items: list[str]) -> None:
        await asyncio.Event().wait()

    lines = Lines("things", 1, send)
    for item in "ab":
        lines.put(1, item)
    await asyncio.sleep(0)
    assert await lines.close() == ["b"]


def sending(
    write: Callable[[int, Sequence[Marker]], Awaitable[list[ErrorCode]]], completed: list[Decision]
) -> tuple[MarkerSender, Decision]:
    """A sender to a broker that writes markers so, and a decision for it."""
    topic = TopicImage("orders", UUID(int=5), (PartitionState(0, 1, 1, (1,), (1,)),), {})
    broker = BrokerRegistration(1, 1, None, ())
    image = MetadataImage(topics={"orders": topic}, brokers={1: broker})
    random = virtual_host(1).random
    links = MarkerLinks(lambda: image, write, lambda each: True, completed.append, random)
    partitions = frozenset({TopicPartition("orders", 0)})
    decision = Decision("t", Producer(7, 1), True, partitions, 1, 2)
    return MarkerSender(links, TransactionStats()), decision


@virtual_time
async def test_kafka_19999_a_marker_that_is_refused_by_its_epoch_is_not_sent_for_ever() -> None:
    """The partition has seen a newer epoch of the producer: nothing of this one is open there."""
    tries: list[Sequence[Marker]] = []
    completed: list[Decision] = []

    async def write(broker_id: int, markers: Sequence[Marker]) -> list[ErrorCode]:
        tries.append(markers)
        return [ErrorCode.INVALID_PRODUCER_EPOCH for _ in markers]

    sender, decision = sending(write, completed)
    sender.send(decision)
    await asyncio.sleep(10)
    assert (len(tries), completed, len(sender)) == (1, [decision], 0)
    await sender.close()


@virtual_time
async def test_a_marker_is_sent_again_whatever_went_wrong() -> None:
    tries: list[Sequence[Marker]] = []
    completed: list[Decision] = []

    async def write(broker_id: int, markers: Sequence[Marker]) -> list[ErrorCode]:
        tries.append(markers)
        if len(tries) == 1:
            raise ValueError("an answer that makes no sense")
        return [ErrorCode.NONE for _ in markers]

    sender, decision = sending(write, completed)
    sender.send(decision)
    await asyncio.sleep(10)
    assert (len(tries), completed, len(sender)) == (2, [decision], 0)
    await sender.close()
