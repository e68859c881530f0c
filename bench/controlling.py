"""``python -m bench.controlling``: what a controller takes for a cluster with many partitions.

Three brokers register with a store, of which no process runs, and have topics of three replicas.
Measured are the death of a broker, until every partition has another leader; the next controller's
way into office, until it can decide; and the whole image on its way to a broker. `callback` is the
longest time for which a step of any of it held the event loop, in CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tidelog.cluster import wire
from tidelog.cluster.changes import Update
from tidelog.cluster.commands import CreateTopic
from tidelog.cluster.controller import Controller
from tidelog.cluster.image import BrokerRegistration, Endpoint
from tidelog.cluster.office import Place
from tidelog.cluster.planner import PlannerRules
from tidelog.cluster.registration import register_broker
from tidelog.host.clock import SystemClock
from tidelog.host.offload import ThreadOffload
from tidelog.host.random import SystemRandom
from tidelog.store.port import Store
from tidelog.testing.memory_store import MemoryTree

Connect = Callable[[], Awaitable[Store]]


@dataclass(slots=True)
class Stopwatch:
    """Prints how long each part took, and its longest callback."""

    longest_s: float = 0.0

    @contextmanager
    def callbacks(self) -> Iterator[None]:
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.longest_s = max(self.longest_s, time.thread_time() - began)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        self.longest_s = 0.0
        began, cpu = time.monotonic(), time.process_time()
        yield
        wall_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
        print(
            f"{title:<24} {wall_s:6.2f} s   CPU {cpu_s:5.2f} s"
            f"   callback {self.longest_s * 1000:4.0f} ms"
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


async def measure(connect: Connect, partitions: int, topics: int) -> None:
    offload = ThreadOffload("bench", 2)
    watch = Stopwatch()
    brokers = [await connect() for _ in range(3)]
    first_session, second_session = await connect(), await connect()
    controller = await control(first_session, 0, offload)
    for broker_id, session in enumerate(brokers):
        endpoints = (Endpoint("PLAINTEXT", f"b{broker_id}", 9092),)
        await register_broker(session, BrokerRegistration(broker_id, -1, None, endpoints))
    await until(controller, lambda: len(controller.image.brokers) == 3)
    with watch.callbacks():
        with watch.part(f"create {partitions} partitions"):
            for number in range(topics):
                await controller.submit(CreateTopic(f"topic-{number}", partitions // topics, 3))
        with watch.part("death of a broker"):
            await brokers[0].close()
            await until(controller, lambda: 0 not in controller.image.brokers)
        await controller.close()
        with watch.part("next controller"):
            controller = await control(second_session, 1, offload)
        with watch.part("death of a second"):
            await brokers[1].close()
            await until(controller, lambda: 1 not in controller.image.brokers)
        with watch.part("an image to a broker"):
            data = await offload.run(wire.encode, Update(image=controller.image))
            await offload.run(wire.decode, Update, data)
    print(f"the image has {len(data)} bytes")
    await controller.close()
    for store in (*brokers, first_session, second_session):
        await store.close()
    offload.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
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

        asyncio.run(measure(connect, args.partitions, args.topics))


if __name__ == "__main__":
    main()
