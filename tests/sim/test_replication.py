"""Three real brokers on simulated machines: a record on one of them is on all of them."""

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
        machines = [world.machine(each) for each in range(3)]
        for machine in machines:
            await machine.start()
        servers = ",".join(f"b{each}:{PORT}" for each in range(3))
        async with Client(servers, host=world.client_host()) as client:
            topic = NewTopic("t", partitions=1, replication_factor=3)
            await client.run(create_topic(client.cluster, topic))
        producer = Producer(servers, host=world.client_host())
        for n in range(50):
            delivery = await producer.send(ProducerRecord("t", b"%d" % n, None))
            assert await producer.wait(delivery) == n
        broker = machines[0].broker
        assert broker is not None
        state = broker.parts.metadata.image.partition("t", 0)
        assert state is not None and len(state.isr) == 3
        machines[state.leader].kill()
        for n in range(50, 100):
            delivery = await producer.send(ProducerRecord("t", b"%d" % n, None))
            assert await producer.wait(delivery) == n
        await producer.close()
        await machines[state.leader].start()
        consumer = Consumer(servers, host=world.client_host())
        await consumer.assign({TopicPartition("t", 0): Start("start")})
        seen: list[int] = []
        while len(seen) < 100:
            for _, records in await consumer.poll(5.0):
                seen += [int(record.value or b"") for record in records]
        assert seen == list(range(100))
        await consumer.close()
        for machine in machines:
            await machine.stop()

    try:
        loop.run_until_complete(main())
        return loop.trace, loop.steps
    finally:
        loop.close()


def test_records_outlive_their_leader() -> None:
    assert run(1) == run(1)
