"""Nodes and the network between them do as their seed says, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from tidelog.testing.simulation.network import Hold, SimulatedNetwork
from tidelog.testing.simulation.nodes import Node, SimulatedLoop, current_node
from tidelog.testing.virtual_loop import VirtualClock

T = TypeVar("T")


def simulate(main: Callable[[SimulatedLoop], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    loop = SimulatedLoop(seed, limit_seconds=3_600)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


async def count(into: list[str], times: int) -> None:
    node = current_node()
    assert node is not None
    for _ in range(times):
        into.append(node.name)
        await asyncio.sleep(0)


def interleaved(seed: int) -> tuple[list[str], str]:
    async def main(loop: SimulatedLoop) -> tuple[list[str], str]:
        seen: list[str] = []
        tasks = [loop.add(name).start(count(seen, 20)) for name in "abc"]
        await asyncio.gather(*tasks)
        return seen, loop.trace

    return simulate(main, seed)


def test_one_seed_gives_one_run_and_others_another() -> None:
    assert interleaved(1) == interleaved(1)
    assert len({interleaved(seed)[1] for seed in range(20)}) == 20
    assert sorted(interleaved(1)[0]) == ["a"] * 20 + ["b"] * 20 + ["c"] * 20


def test_within_a_node_callbacks_run_in_their_order() -> None:
    async def main(loop: SimulatedLoop) -> dict[str, list[int]]:
        seen: dict[str, list[int]] = {"a": [], "b": []}
        for name in seen:
            node = loop.add(name)
            for number in range(30):
                node.run(loop.call_soon, seen[name].append, number)
        await asyncio.sleep(1)
        return seen

    for seed in range(10):
        assert simulate(main, seed) == {"a": list(range(30)), "b": list(range(30))}


def test_a_crash_drops_callbacks_timers_and_tasks_and_runs_no_finally() -> None:
    async def main(loop: SimulatedLoop) -> list[str]:
        seen: list[str] = []

        async def work() -> None:
            try:
                seen.append("began")
                await asyncio.sleep(10)
                seen.append("went on")
            finally:
                seen.append("finally")

        node = loop.add("a")
        node.start(work())
        node.run(loop.call_later, 5, seen.append, "timer")
        await asyncio.sleep(1)
        node.crash()
        await asyncio.sleep(60)
        return list(seen)

    assert simulate(main) == ["began"]


def test_a_paused_node_does_later_what_came_meanwhile() -> None:
    async def main(loop: SimulatedLoop) -> list[float]:
        times: list[float] = []
        node = loop.add("a")
        start = loop.time()

        async def work() -> None:
            await asyncio.sleep(1)
            times.append(loop.time() - start)

        node.start(work())
        await asyncio.sleep(0.5)
        node.is_paused = True
        await asyncio.sleep(30)
        node.is_paused = False
        await asyncio.sleep(1)
        return times

    (time,) = simulate(main)
    assert 30.4 < time < 30.6


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Caller(asyncio.Protocol):
    """Keeps what it gets and how it ended."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Everyone:
    """A gate that lets everyone in."""

    def refusal(self, host: str) -> str | None:
        return None

    def opened(self, host: str) -> asyncio.BaseProtocol:
        return Echo()

    def forget(self, connection: asyncio.BaseProtocol) -> None:
        pass


async def serving(loop: SimulatedLoop, network: SimulatedNetwork) -> tuple[Node, int]:
    node = loop.add("b")
    acceptor = node.run(network.acceptor, "b", Everyone(), VirtualClock(loop))
    await acceptor.bind("b", 0)
    acceptor.serve(10)
    return node, acceptor.port


async def called(loop: SimulatedLoop, network: SimulatedNetwork, port: int) -> Caller:
    node = loop.add("a")
    return await node.start(network.connect(Caller, "b", port))


def test_bytes_arrive_whole_and_in_order_also_beyond_the_window() -> None:
    async def main(loop: SimulatedLoop) -> None:
        network = SimulatedNetwork(loop)
        _, port = await serving(loop, network)
        caller = await called(loop, network, port)
        sent = b"".join(number.to_bytes(4, "big") for number in range(100_000))
        for start in range(0, len(sent), 1_000):
            caller.transport.write(sent[start : start + 1_000])
        await asyncio.sleep(60)
        assert caller.data == sent
        caller.transport.close()
        await asyncio.sleep(1)
        assert caller.lost == [None]

    simulate(main)


def test_a_cut_holds_bytes_back_and_healing_delivers_them_late() -> None:
    async def main(loop: SimulatedLoop) -> None:
        network = SimulatedNetwork(loop)
        _, port = await serving(loop, network)
        caller = await called(loop, network, port)
        network.cut("b", "a")
        caller.transport.write(b"question")
        await asyncio.sleep(600)
        assert (caller.data, caller.lost) == (b"", [])
        network.heal("b", "a")
        await asyncio.sleep(1)
        assert caller.data == b"question"

    simulate(main)


def test_a_crash_resets_connections_and_behind_a_cut_only_when_it_heals() -> None:
    async def main(loop: SimulatedLoop) -> None:
        network = SimulatedNetwork(loop)
        node, port = await serving(loop, network)
        caller = await called(loop, network, port)
        network.cut("b", "a")
        node.crash()
        network.crash("b")
        await asyncio.sleep(60)
        assert caller.lost == []
        network.heal("b", "a")
        await asyncio.sleep(1)
        assert [type(error) for error in caller.lost] == [ConnectionResetError]
        with pytest.raises(ConnectionRefusedError):
            await called(loop, network, port)

    simulate(main)


def test_connecting_through_a_cut_times_out() -> None:
    async def main(loop: SimulatedLoop) -> None:
        network = SimulatedNetwork(loop)
        _, port = await serving(loop, network)
        network.cut("a", "b")
        with pytest.raises(OSError, match="timed out"):
            await called(loop, network, port)

    simulate(main)


def test_a_machine_without_power_answers_nothing_until_it_is_back() -> None:
    async def main(loop: SimulatedLoop) -> None:
        network = SimulatedNetwork(loop)
        node, port = await serving(loop, network)
        caller = await called(loop, network, port)
        node.crash()
        network.crash("b", silent=True)
        caller.transport.write(b"question")
        with pytest.raises(OSError, match="timed out"):
            await called(loop, network, port)
        assert caller.lost == []
        network.light("b")
        await asyncio.sleep(1)
        assert [type(error) for error in caller.lost] == [ConnectionResetError]

    simulate(main)


def test_a_held_message_and_all_behind_it_come_when_it_is_released() -> None:
    async def main(loop: SimulatedLoop) -> None:
        network = SimulatedNetwork(loop)
        _, port = await serving(loop, network)
        caller = await called(loop, network, port)
        frames = [request(api=1, number=1), request(api=3, number=2), request(api=1, number=3)]
        hold = network.hold(Hold(api=3, is_answer=False))
        for frame in frames:
            caller.transport.write(frame[:7])
            caller.transport.write(frame[7:])
        await asyncio.sleep(10)
        # The chunk in which the message's header was complete is kept, with all behind it.
        assert caller.data == frames[0] + frames[1][:7]
        network.release(hold)
        await asyncio.sleep(10)
        assert caller.data == b"".join(frames)

    simulate(main)


def request(api: int, number: int) -> bytes:
    body = api.to_bytes(2, "big") + bytes(2) + number.to_bytes(4, "big") + b"rest of it"
    return len(body).to_bytes(4, "big") + body


def test_clocks_of_nodes_go_at_their_own_rates() -> None:
    async def main(loop: SimulatedLoop) -> None:
        node = loop.add("a")
        node.clock_rate, node.clock_offset = 1.25, 50.0
        started = loop.now

        async def wait() -> float:
            before = loop.time()
            await asyncio.sleep(10)
            return loop.time() - before

        assert await node.start(wait()) == pytest.approx(10)
        assert loop.now - started == pytest.approx(8, abs=0.01)

    simulate(main)
