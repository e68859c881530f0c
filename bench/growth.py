"""``python -m bench.growth``: how costs grow with the size of what a broker serves.

A real broker in this process, asked through connections that go nowhere (see `bench.handling`): the
figures are processor time of the event loop's thread, the least of several turns, and so repeat on
a busy machine. Each curve is fitted with a line through all its points but one, and the line is
held against that one. With the figures come docs/scale.svg and the tables of docs/scale.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import capacity, growth_page
from bench.group_wire import commit_frame, heartbeat_frame
from bench.handling import Answers, Client
from bench.measure import resident_mb
from bench.peers.tidelog import TidelogBroker
from bench.rows import ROWS
from bench.runner import Result, run_row
from bench.wire import (
    batch_of_size,
    fetch_frame,
    metadata_frame,
    produce_error,
    produce_frame,
    record_batch,
)
from tidelog.cluster.commands import CreateTopic
from tidelog.config import load
from tidelog.host.host import system_host
from tidelog.server.broker import Broker
from tidelog.server.collecting import collect_rarely
from tidelog.server.listener import ConnectionCounts, Listener, ListenerAddress
from tidelog.server.process import new_event_loop

RESULTS = Path(__file__).with_name("results") / "growth.json"
_TURNS = 12
_WHOLE_ROUNDS = 2
_REQUESTS_MIN = 600
_SENT_BYTES_MAX = 30_000_000
_TOPIC = "bench"
_FAR_FUTURE_MS = 10**15
_SMALL = record_batch([b"x" * 100])


@dataclass(frozen=True, slots=True)
class Curve:
    """What grows with what: `values` by `sizes`, and the size that the fit does not see."""

    key: str
    title: str
    of: str
    unit: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    held_out: int

    def fit(self) -> tuple[float, float]:
        """Intercept and slope by least squares of relative errors, without the point held out."""
        points = [
            (size, value)
            for size, value in zip(self.sizes, self.values, strict=True)
            if size != self.held_out and value > 0
        ]
        weights = [1 / (value * value) for _, value in points]
        total = sum(weights)
        mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
        mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
        above = sum(
            w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)
        )
        below = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
        slope = above / below
        return mean_y - slope * mean_x, slope

    def check(self) -> tuple[float, float]:
        """What the line says at the size held out, and what was measured there."""
        intercept, slope = self.fit()
        return intercept + slope * self.held_out, self.values[self.sizes.index(self.held_out)]


class World:
    """A broker, and clients of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        address = ListenerAddress("bench", "127.0.0.1", 0)
        self._listener = Listener(address, broker.parts.frontend, ConnectionCounts())
        self._answers = Answers()
        self.clients = [self._client()]

    def _client(self) -> Client:
        return Client(self._listener, self._answers)

    def connect(self, count: int) -> list[Client]:
        """So many clients in all."""
        self.clients += [self._client() for _ in range(count - len(self.clients))]
        return self.clients[:count]

    async def create(self, topic: str, partitions: int) -> None:
        await self.broker.parts.submitter.submit(CreateTopic(topic, partitions, 1))
        assert not produce_error(await self.clients[0].ask(produce_frame(topic, _SMALL)), topic)

    async def microseconds(self, clients: Sequence[Client], frames: Sequence[bytes]) -> float:
        """For each request, with every client asking once per turn; the least of all turns."""
        gc.collect()
        least = float("inf")
        turns = min(_REQUESTS_MIN // len(clients), _SENT_BYTES_MAX // sum(map(len, frames)))
        for _ in range(max(_TURNS, turns)):
            before = time.thread_time()
            answered = self._answers.expect(len(clients))
            for client, frame in zip(clients, frames, strict=True):
                client.send(frame)
            await answered.wait()
            await asyncio.sleep(0)
            least = min(least, (time.thread_time() - before) / len(clients) * 1e6)
        return least


@asynccontextmanager
async def world(directory: str) -> AsyncIterator[World]:
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": directory,
        "auto.create.topics.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
    }
    broker = Broker(load(overrides=overrides), system_host("broker", 4))
    await broker.start()
    try:
        yield World(broker)
    finally:
        await broker.stop()


async def connections(directory: str) -> list[Curve]:
    sizes = (1, 10, 100, 500, 1_000, 2_000, 5_000)
    values: dict[str, list[float]] = {"produce": [], "metadata": []}
    async with world(directory) as here:
        await here.create(_TOPIC, 1)
        for size in sizes:
            clients = here.connect(size)
            for kind, frame in (
                ("produce", produce_frame(_TOPIC, _SMALL, acks=1)),
                ("metadata", metadata_frame(_TOPIC)),
            ):
                values[kind].append(await here.microseconds(clients, [frame] * size))
    return [
        Curve(f"connections-{kind}", f"A {kind} of 100 B" if kind == "produce" else "A metadata",
              "connections that ask at once", "µs", sizes, tuple(taken), 2_000)
        for kind, taken in values.items()
    ]  # fmt: skip


async def groups(directory: str) -> list[Curve]:
    sizes = (10, 100, 300, 1_000, 2_000)
    values: dict[str, list[float]] = {"heartbeat": [], "commit": []}
    async with world(directory) as here:
        await here.create(_TOPIC, 1)
        members = []
        for size in sizes:
            clients = here.connect(size)
            for place, client in enumerate(clients[len(members) :], len(members)):
                members.append(await client.join(f"group-{place}"))
            beats = [heartbeat_frame(each) for each in members]
            values["heartbeat"].append(await here.microseconds(clients, beats))
            commits = [commit_frame(each, _TOPIC, {0: 1}) for each in members]
            values["commit"].append(await here.microseconds(clients, commits))
    return [
        Curve(f"groups-{kind}", f"A {kind}", "groups of one member that ask at once", "µs",
              sizes, tuple(taken), 1_000)
        for kind, taken in values.items()
    ]  # fmt: skip


async def partitions(directory: str) -> list[Curve]:
    sizes = (10, 100, 1_000, 3_000, 10_000)
    produce, memory = [], []
    async with world(directory) as here:
        await here.create("first", 10)
        before, held, topic = resident_mb(os.getpid()), 10, 0
        for size in sizes:
            while held < size:
                topic += 1
                await here.create(f"t{topic}", min(1_000, size - held))
                held += min(1_000, size - held)
            clients = here.connect(100)
            name, count = (f"t{topic}", min(size, 1_000)) if topic else ("first", 10)
            count = min(count, 900)
            frames = [
                produce_frame(name, _SMALL, acks=1, partition=each * 7 % count)
                for each in range(100)
            ]
            produce.append(await here.microseconds(clients, frames))
            memory.append(max(0.001, resident_mb(os.getpid()) - before))
    return [
        Curve("partitions-produce", "A produce of 100 B, to a hundred partitions in turn",
              "partitions of the broker", "µs", sizes, tuple(produce), 3_000),
        Curve("partitions-memory", "Resident memory", "partitions of the broker", "MB",
              sizes[1:], tuple(memory[1:]), 3_000),
    ]  # fmt: skip


async def record_sizes(directory: str) -> list[Curve]:
    sizes = (1_000, 4_000, 16_000, 64_000, 256_000, 900_000)
    produce, fetch = [], []
    async with world(directory) as here:
        clients = here.clients[:1]
        for size in sizes:
            topic = f"of-{size}"
            await here.create(topic, 1)
            batch, _ = batch_of_size(size, 500)
            frames = [produce_frame(topic, batch, acks=1)]
            produce.append(await here.microseconds(clients, frames))
            fetch.append(await here.microseconds(clients, [fetch_frame(topic, 1, size)]))
    return [
        Curve("bytes-produce", "A produce", "bytes of its batch", "µs", sizes, tuple(produce),
              256_000),
        Curve("bytes-fetch", "A fetch", "bytes that it gives", "µs", sizes, tuple(fetch), 256_000),
    ]  # fmt: skip


async def segments(directory: str) -> list[Curve]:
    sizes = (1, 10, 100, 300, 1_000)
    produce, fetch, start = [], [], []
    data = str(Path(directory) / "data")
    held = 1
    for size in sizes:
        async with world(data) as here:
            if size == 1:
                await here.create(_TOPIC, 1)
            log = here.broker.parts.replicas.find(_TOPIC, 0).log
            while held < size:
                await here.clients[0].ask(produce_frame(_TOPIC, _SMALL, acks=1))
                assert log.roll_if_due(_FAR_FUTURE_MS)
                held += 1
            one = here.clients[:1]
            produce.append(await here.microseconds(one, [produce_frame(_TOPIC, _SMALL, acks=1)]))
            middle = (log.log_start_offset + log.log_end_offset) // 2
            fetch.append(await here.microseconds(one, [fetch_frame(_TOPIC, middle, 100)]))
        began = time.process_time()
        async with world(data):
            start.append((time.process_time() - began) * 1e3)
    what = "segments of the log"
    return [
        Curve("segments-produce", "A produce of 100 B", what, "µs", sizes, tuple(produce), 300),
        Curve("segments-fetch", "A fetch in the middle", what, "µs", sizes, tuple(fetch), 300),
        Curve("segments-start", "A start after a clean stop", what, "ms of CPU", sizes,
              tuple(start), 300),
    ]  # fmt: skip


def whole_rows() -> dict[str, list[Result]]:
    """Rows that count all that a broker's process uses, taken with the curves of the model."""
    taken: dict[str, list[Result]] = {}
    with TidelogBroker(settings={"auto.create.topics.enable": "true"}) as broker:
        for row in (each for each in ROWS if each.key in capacity.ROWS):
            print(row.title, flush=True)
            rounds = run_row(row, [broker], _WHOLE_ROUNDS, False, print)["rounds"]
            taken[row.key] = rounds[broker.name]
    return taken


_CURVES = (connections, groups, partitions, record_sizes, segments)


def measure(only: str | None) -> list[Curve]:
    taken: list[Curve] = []
    for each in _CURVES:
        if only is not None and each.__name__ not in only.split(","):
            continue
        directory = tempfile.mkdtemp(prefix="growth-")
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                curves = runner.run(each(directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        for curve in curves:
            shown = "  ".join(
                f"{size:,}: {value:.3g}"
                for size, value in zip(curve.sizes, curve.values, strict=True)
            )
            said, found = curve.check()
            print(
                f"{curve.key:<22} {curve.unit}  {shown}\n{'':<22} at {curve.held_out:,} the line"
                f" says {said:.3g}, measured {found:.3g}",
                flush=True,
            )
        taken += curves
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    names = [each.__name__ for each in _CURVES]
    names.append("rows")
    parser.add_argument("--only", help=f"by comma, of {', '.join(names)}; the others are kept")
    parser.add_argument("--page-only", action="store_true", help="page and plot of the last run")
    options = parser.parse_args()
    collect_rarely()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"curves": {}}
    if not options.page_only:
        for curve in measure(options.only):
            kept["curves"][curve.key] = asdict(curve)
        if options.only is None or "rows" in options.only.split(","):
            kept["rows"] = whole_rows()
        kept["taken"] = time.strftime("%Y-%m-%d", time.gmtime())
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    curves = {
        key: Curve(**{**each, "sizes": tuple(each["sizes"]), "values": tuple(each["values"])})
        for key, each in kept["curves"].items()
    }
    growth_page.write(curves, kept["taken"], capacity.tables(curves, kept["rows"]))


if __name__ == "__main__":
    main()
