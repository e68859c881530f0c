"""Images, rules and running controllers for the tests of the cluster package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.store.helpers import open_store
from tidelog.cluster import layout
from tidelog.cluster.commands import Answer, Command
from tidelog.cluster.controller import Controller, ControllerLimits
from tidelog.cluster.image import BrokerRegistration, Endpoint, MetadataImage
from tidelog.cluster.office import Place
from tidelog.cluster.planner import PlannerRules, plan
from tidelog.cluster.registration import register_broker
from tidelog.config import BrokerConfig
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import Delete, Store
from tidelog.testing.virtual_loop import SeededRandom

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092),)


def make_rules(
    seed: int = 0, settings: Mapping[str, str] | None = None, **changes: int
) -> PlannerRules:
    return PlannerRules(SeededRandom(seed), BrokerConfig(settings), **changes)


def image_with(brokers: Sequence[int] = (0,), commands: Sequence[Command] = ()) -> MetadataImage:
    """An image with these brokers after these commands."""
    rules = make_rules()
    registrations = {
        n: BrokerRegistration(n, 100 + n, None, ENDPOINTS, metadata_version=layout.VALUE_VERSION)
        for n in brokers
    }
    image = MetadataImage(1, "cluster", brokers=registrations)
    for command in commands:
        image = image.apply_all(plan(image, command, rules).changes, image.version + 1)
    return image


@dataclass(slots=True)
class Running:
    """A controller with its store and one registered broker."""

    store: EmbeddedStore
    controller: Controller
    registration: BrokerRegistration

    async def submit(self, command: Command) -> Answer:
        return await self.controller.submit(command)


async def join(
    store: Store, controller: Controller, broker_id: int, rack: str | None = None
) -> BrokerRegistration:
    """Register a broker and return once the controller knows it."""
    entry = BrokerRegistration(
        broker_id, -1, rack, ENDPOINTS, metadata_version=layout.VALUE_VERSION
    )
    registration = await register_broker(store, entry)
    while True:
        image = controller.image
        known = image.brokers.get(broker_id)
        if known is not None and known.epoch == registration.epoch:
            return registration
        await controller.changes_after(image.version, 10.0, image.controller_epoch)


async def start_controller(
    store: Store, limits: ControllerLimits | None = None, seed: int | None = None
) -> Controller:
    """One that takes over from whoever has the office, as if that one's session had expired."""
    if await store.read(layout.CONTROLLER_OWNER) is not None:
        await store.multi([Delete(layout.CONTROLLER_OWNER)])
    controller = Controller(
        store, Place(0), make_rules(store.session if seed is None else seed), limits
    )
    await controller.start()
    return controller


@asynccontextmanager
async def running(
    directory: Path, limits: ControllerLimits | None = None
) -> AsyncIterator[Running]:
    store = await open_store(directory)
    try:
        controller = await start_controller(store, limits)
        try:
            registration = await join(store, controller, 0)
            yield Running(store, controller, registration)
        finally:
            await controller.close()
    finally:
        await store.close()
