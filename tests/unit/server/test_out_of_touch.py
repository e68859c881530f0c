"""Brokers that do not reach the metadata store: what goes on, and what must not."""

from __future__ import annotations

import asyncio

from tests.unit.server.clusters import image, simulate, start_all, until
from tests.unit.server.test_membership_faults import session
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Client
from tidelog.client.group_admin import commit_offsets, committed_offsets
from tidelog.client.settings import ClientSettings
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.model import TopicPartition
from tidelog.testing.simulation.machines import PORT, SESSION_S, World

PARTITION = TopicPartition("t", 0)


def test_c9_a_quiet_group_goes_on_while_nobody_reaches_the_store() -> None:
    """Followers ask for an idle partition without naming it: that counts as asking."""

    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        settings = ClientSettings(request_timeout_ms=3_000, operation_timeout_ms=5_000)
        servers = ",".join(f"b{each}:{PORT}" for each in range(3))
        async with Client(servers, settings, world.client_host()) as client:
            await client.run(create_topic(client.cluster, NewTopic("t", 1, 3)))
            await client.run(commit_offsets(client.cluster, "g", {PARTITION: 1}))
            await until(lambda: OFFSETS_TOPIC in image(machines[0]).topics)
            await asyncio.sleep(20)
            for machine in machines:
                session(machine).suspend()
            await asyncio.sleep(SESSION_S + 5)
            for offset in range(2, 6):
                found = await client.run(committed_offsets(client.cluster, "g"))
                assert found[PARTITION] == offset - 1
                await client.run(commit_offsets(client.cluster, "g", {PARTITION: offset}))
                await asyncio.sleep(10)

    simulate(main)
