"""The real broker on a simulated machine."""

from __future__ import annotations

from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Client, Consumer, Producer
from tidelog.client.batching import ProducerRecord
from tidelog.client.offsets import Start
from tidelog.model import TopicPartition
from tidelog.testing.simulation.machines import PORT, World
from tidelog.testing.simulation.nodes import SimulatedLoop


def run(seed: int) -> tuple[str, int]:
    loop = SimulatedLoop(seed, limit_seconds=3_600)

    async def main() -> None:
        world = World(loop)
        machine = world.machine(0)
        await machine.start()
        servers = f"b0:{PORT}"
        async with Client(servers, host=world.client_host()) as client:
            await client.run(create_topic(client.cluster, NewTopic("t", partitions=1)))
        producer = Producer(servers, host=world.client_host())
        deliveries = [await producer.send(ProducerRecord("t", b"%d" % n, None)) for n in range(100)]
        assert [await producer.wait(each) for each in deliveries] == list(range(100))
        await producer.close()
        machine.kill()
        await machine.start()
        consumer = Consumer(servers, host=world.client_host())
        await consumer.assign({TopicPartition("t", 0): Start("start")})
        seen: list[int] = []
        while len(seen) < 100:
            for _, records in await consumer.poll(5.0):
                seen += [record.offset for record in records]
        assert seen == list(range(100))
        await consumer.close()
        await machine.stop()

    try:
        loop.run_until_complete(main())
        return loop.trace, loop.steps
    finally:
        loop.close()


def test_a_broker_serves_is_killed_and_serves_again() -> None:
    assert run(1) == run(1)
