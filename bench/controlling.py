"""``python -m bench.controlling``: what a controller takes for a cluster with many partitions.

Brokers register with a store, of which no process runs, and have topics of three replicas.
Measured are the creation of the topics; the death of a broker, until every partition has another
leader; the next controller's way into office, until it can decide; and its image on the way to all
brokers, which ask for it at the same time. `callback` is the longest time for which a step of any
of it held the event loop, in CPU time; `stored` what transactions brought to the store, as its
limit counts it; `memory` how much the process grew.

``python -m bench.controlling --brokers 350 --topics 8000 --partitions 140000`` is the largest
cluster that docs/scale.md speaks of.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from bench.measure import resident_mb
from tidelog.cluster import wire
from tidelog.cluster.changes import Update, changes_between
from tidelog.cluster.commands import CreateTopic
from tidelog.cluster.controller import Controller
from tidelog.cluster.encoded_updates import EncodedUpdates
from tidelog.cluster.image import BrokerRegistration, Endpoint
from tidelog.cluster.office import Place
from tidelog.cluster.planner import PlannerRules
from tidelog.cluster.registration import register_broker
from tidelog.host.clock import SystemClock
from tidelog.host.offload import ThreadOffload
from tidelog.host.random import SystemRandom
from tidelog.server.collecting import collect_rarely
from tidelog.store.port import Operation, Store, transaction_bytes
from tidelog.testing.memory_store import MemoryStore, MemoryTree

Connect = Callable[[], Awaitable[Store]]


@dataclass(slots=True)
class Stopwatch:
    """Keeps and prints what each part took."""

    longest_s: float = 0.0
    collecting_s: float = 0.0
    stored_bytes: int = 0
    parts: dict[str, dict[str, float]] = field(default_factory=dict)

    @contextmanager
    def callbacks(self) -> Iterator[None]:
        run, multi = asyncio.Handle._run, MemoryStore.multi

        def timed(handle: asyncio.Handle) -> None:
            self.collecting_s, began = 0.0, time.thread_time()
            run(handle)
            taken_s = time.thread_time() - began - self.collecting_s
            self.longest_s = max(self.longest_s, taken_s)

        async def counted(store: MemoryStore, operations: Sequence[Operation]) -> int:
            self.stored_bytes += transaction_bytes(operations)
            return await multi(store, operations)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        MemoryStore.multi = counted  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]
            MemoryStore.multi = multi  # type: ignore[method-assign]

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        began = time.thread_time()
        gc.collect()
        # It belongs to no part, though it is done in a callback of one.
        self.collecting_s = time.thread_time() - began
        self.longest_s, self.stored_bytes = 0.0, 0
        resident = resident_mb(os.getpid())
        began, cpu = time.monotonic(), time.process_time()
        yield
        taken = self.parts[title] = {
            "wall_s": time.monotonic() - began,
            "cpu_s": time.process_time() - cpu,
            "callback_ms": self.longest_s * 1000,
            "stored_mb": self.stored_bytes / 1e6,
            "memory_mb": resident_mb(os.getpid()) - resident,
        }
        print(
            f"{title:<24} {taken['wall_s']:7.2f} s   CPU {taken['cpu_s']:6.2f} s"
            f"   callback {taken['callback_ms']:4.0f} ms   stored {taken['stored_mb']:7.2f} MB"
            f"   memory {taken['memory_mb']:+6.1f} MB",
            flush=True,
        )


async def until(controller: Controller, condition: Callable[[], bool]) -> None:
    while not condition():
        image = controller.image
        await controller.changes_after(image.version, 60.0, image.controller_epoch)


async def control(store: Store, broker_id: int, offload: ThreadOffload) -> Controller:
    rules = PlannerRules(SystemRandom())
    controller = Controller(store, Place(broker_id), rules, offload=offload)
    await controller.start()
    return controller


@dataclass(slots=True, frozen=True)
class Size:
    """Of a cluster."""

    brokers: int
    topics: int
    partitions: int


async def measure(connect: Connect, size: Size) -> dict[str, dict[str, float]]:
    offload = ThreadOffload("bench", 2)
    watch = Stopwatch()
    brokers = [await connect() for _ in range(size.brokers)]
    first_session, second_session = await connect(), await connect()
    controller = await control(first_session, 0, offload)
    with watch.callbacks():
        with watch.part(f"{size.brokers} brokers register"):
            for broker_id, session in enumerate(brokers):
                endpoints = (Endpoint("PLAINTEXT", f"b{broker_id}", 9092),)
                await register_broker(session, BrokerRegistration(broker_id, -1, None, endpoints))
            await until(controller, lambda: len(controller.image.brokers) == size.brokers)
        with watch.part(f"create {size.topics} topics"):
            await create(controller, size)
        with watch.part("death of a broker"):
            await brokers[0].close()
            await until(controller, lambda: 0 not in controller.image.brokers)
        check_led(controller, 0)
        before = controller.image
        await controller.close()
        with watch.part("next controller"):
            controller = await control(second_session, 1, offload)
        with watch.part("death of a second"):
            await brokers[1].close()
            await until(controller, lambda: 1 not in controller.image.brokers)
        check_led(controller, 1)
        updates, epoch = EncodedUpdates(offload), controller.image.controller_epoch
        with watch.part("its image for all"):
            update = await controller.changes_after(0, 1.0)
            asked = (updates.encode(update, epoch) for _ in brokers)
            data, *_ = await asyncio.gather(*asked)
        with watch.part("a broker reads it"):
            read = await offload.run(wire.decode, Update, data)
        with watch.part("and takes it"):
            changes_between(before, read.image)
    print(f"the image has {len(data)} bytes")
    watch.parts["its image for all"]["image_mb"] = len(data) / 1e6
    await controller.close()
    for store in (*brokers, first_session, second_session):
        await store.close()
    offload.close()
    return watch.parts


def check_led(controller: Controller, gone: int) -> None:
    """Every partition has a leader, and not the broker that is gone."""
    for topic in controller.image.topics.values():
        for partition in topic.partitions:
            assert partition.leader not in (-1, gone), partition


async def create(controller: Controller, size: Size) -> None:
    """All topics, some with a partition more than others."""
    each, more = divmod(size.partitions, size.topics)
    for number in range(size.topics):
        await controller.submit(CreateTopic(f"topic-{number}", each + (number < more), 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with all figures as JSON")
    parser.add_argument(
        "--zookeeper", type=int, metavar="NODES", help="a real one of so many nodes"
    )
    args = parser.parse_args()
    with ExitStack() as stack:
        connect: Connect = MemoryTree().connect
        if args.zookeeper:
            from tidelog.store import zookeeper
            from tidelog.testing.zookeeper import ZooKeeper

            ensemble = stack.enter_context(ZooKeeper(nodes=args.zookeeper))

            async def connect() -> Store:
                address = zookeeper.Ensemble(ensemble.hosts)
                return await zookeeper.connect(
                    address, SystemClock(), ThreadOffload("zookeeper", 1)
                )

        collect_rarely()
        size = Size(args.brokers, args.topics, args.partitions)
        taken = asyncio.run(measure(connect, size))
    if args.json:
        print(json.dumps(taken))


if __name__ == "__main__":
    main()
