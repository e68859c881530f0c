"""``python -m bench.handling``: what one small request costs the broker's own code.

Real connections of a real broker on a transport that goes nowhere, so neither the kernel's network
nor a client is in the figures, and they are the same on a busy machine and on a quiet one: the
processor time of the event loop's thread per request, with every connection asking once per turn.
On a busy machine the least of all turns tells more than their median.

With `--acls` every second turn goes by access-control lists and the others by none, in one broker:
what rules cost, with nothing else between the two.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import struct
import tempfile
import time

from bench import group_wire
from bench.group_wire import Membership
from bench.wire import fetch_frame, metadata_frame, produce_frame, record_batch
from tidelog.config import load
from tidelog.host.host import system_host
from tidelog.security.authorizer import OpenAuthorizer
from tidelog.server.broker import Broker
from tidelog.server.collecting import collect_rarely
from tidelog.server.connection import Connection
from tidelog.server.listener import ConnectionCounts, Listener, ListenerAddress
from tidelog.server.process import new_event_loop

_TOPIC = "bench"
_PREFIX = struct.Struct(">i")


class Answers:
    """Counts answers of all connections, and tells when there are enough."""

    def __init__(self) -> None:
        self._missing = 0
        self._enough = asyncio.Event()

    def expect(self, count: int) -> asyncio.Event:
        self._missing = count
        self._enough.clear()
        return self._enough

    def came(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._enough.set()


class Nowhere(asyncio.Transport):
    """Takes answers and keeps the last one; a long one comes in several writes."""

    def __init__(self, answers: Answers) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._answers = answers
        self.last = b""
        self._missing_bytes = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.last = bytes(data)
        if not self._missing_bytes:
            self._missing_bytes = _PREFIX.size + _PREFIX.unpack_from(data)[0]
        self._missing_bytes -= len(data)
        if not self._missing_bytes:
            self._answers.came()

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        raise ConnectionResetError("closed by the broker")

    abort = close


class Client:
    """One connection and the other end of it."""

    def __init__(self, listener: Listener, answers: Answers) -> None:
        self._answers = answers
        self._transport = Nowhere(answers)
        self._connection = Connection(listener)
        self._connection.connection_made(self._transport)

    def send(self, frame: bytes) -> None:
        left = memoryview(frame)
        while left:
            room = self._connection.get_buffer(-1)
            count = min(len(room), len(left))
            room[:count] = left[:count]
            self._connection.buffer_updated(count)
            left = left[count:]

    async def ask(self, frame: bytes) -> bytes:
        answered = self._answers.expect(1)
        self.send(frame)
        await answered.wait()
        return self._transport.last[4:]

    async def join(self, group: str) -> Membership:
        """Become the only member of a group."""
        await self.ask(group_wire.find_coordinator_frame(group))
        member_id, generation = "", -1
        while generation < 0:  # the first answer gives the member its id
            frame = group_wire.join_frame(group, member_id, _TOPIC)
            joined = group_wire.joined(await self.ask(frame))
            member_id, generation = joined.member_id, joined.generation
        who = Membership(group, generation, member_id)
        shares = group_wire.range_assignments([member_id], _TOPIC, 1)
        await self.ask(group_wire.sync_frame(who, {member_id: shares[member_id][1]}))
        return who


async def _frames(kind: str, clients: list[Client]) -> list[bytes]:
    """What each client asks, over and over."""
    if kind == "metadata":
        return [metadata_frame(_TOPIC)] * len(clients)
    if kind in ("produce-1", "produce-all"):
        acks = 1 if kind == "produce-1" else -1
        return [produce_frame(_TOPIC, record_batch([b"x" * 100]), acks=acks)] * len(clients)
    if kind == "fetch":
        # One small batch, which every client reads again and again.
        await clients[0].ask(produce_frame(_TOPIC, record_batch([b"x" * 100]), acks=1))
        return [fetch_frame(_TOPIC)] * len(clients)
    members = [await each.join(f"{kind}-{place}") for place, each in enumerate(clients)]
    if kind == "heartbeat":
        return [group_wire.heartbeat_frame(each) for each in members]
    return [group_wire.commit_frame(each, _TOPIC, {0: 1}) for each in members]


async def _turn(clients: list[Client], frames: list[bytes], answers: Answers) -> None:
    """Every client asks once and is answered."""
    answered = answers.expect(len(clients))
    for client, frame in zip(clients, frames, strict=True):
        client.send(frame)
    await answered.wait()
    await asyncio.sleep(0)  # what is left to do after an answer belongs to it


# Decisions on a super user are remembered like all others.
_WITH_ACLS = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}


async def _measure(
    kind: str, connections: int, seconds: float, acls: bool
) -> dict[str, list[float]]:
    """Processor time per request in microseconds, of turns within `seconds`, by authorizer."""
    with tempfile.TemporaryDirectory(prefix="handling-") as directory:
        overrides = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": directory,
            "auto.create.topics.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
            **(_WITH_ACLS if acls else {}),
        }
        broker = Broker(load(overrides=overrides), system_host("broker", 4))
        await broker.start()
        try:
            address = ListenerAddress("bench", "127.0.0.1", 0)
            listener = Listener(address, broker.parts.frontend, ConnectionCounts())
            answers = Answers()
            clients = [Client(listener, answers) for _ in range(connections)]
            await clients[0].ask(metadata_frame(_TOPIC, create=True))
            frames = await _frames(kind, clients)
            gc.collect()
            gc.freeze()
            shared = broker.parts.frontend.dispatcher._shared
            authorizers = {"open": OpenAuthorizer()} | ({"acls": shared.authorizer} if acls else {})
            taken: dict[str, list[float]] = {name: [] for name in authorizers}
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                # In another order each time: neither always follows the other.
                authorizers = dict(reversed(authorizers.items()))
                for name, authorizer in authorizers.items():
                    object.__setattr__(shared, "authorizer", authorizer)
                    before = time.thread_time()
                    await _turn(clients, frames, answers)
                    taken[name].append((time.thread_time() - before) / connections * 1e6)
            return taken
        finally:
            await broker.stop()


def main() -> None:
    kinds = ("produce-1", "produce-all", "fetch", "metadata", "heartbeat", "commit")
    parser = argparse.ArgumentParser(prog="python -m bench.handling", description=__doc__)
    parser.add_argument("--kinds", default=",".join(kinds), help=f"by comma, of {', '.join(kinds)}")
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--acls", action="store_true", help="what access-control lists cost")
    options = parser.parse_args()
    collect_rarely()
    for kind in options.kinds.split(","):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            measured = _measure(kind, options.connections, options.seconds, options.acls)
            taken = runner.run(measured)
        open_, middle = taken["open"], statistics.median(taken["open"])
        print(
            f"{kind}: {min(open_):.1f} µs (least), {middle:.1f} µs (median of {len(open_)} turns)"
        )
        if options.acls:
            pairs = zip(taken["acls"], open_, strict=True)
            more = statistics.median(ruled / without - 1 for ruled, without in pairs)
            print(f"{kind}, with rules: {more:+.1%} (median of all pairs of turns)")


if __name__ == "__main__":
    main()
