"""What tests of our own client's transactions write, and how they look at it."""

from __future__ import annotations

from tests.waiting import eventually
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_transactions import TransactionalProducer
from tidelog.client.offsets import Start, list_offsets
from tidelog.client.settings import ConsumerSettings
from tidelog.model import Isolation, ListedOffset, TopicPartition

PARTITIONS = 3


def write(producer: TransactionalProducer, topic: str, *values: str) -> None:
    for number, value in enumerate(values):
        producer.send(ProducerRecord(topic, value.encode(), partition=number % PARTITIONS))


def committed(servers: str, topic: str) -> list[str]:
    """What a reader of committed records finds up to the end, where no transaction may be open."""
    found = []
    with Consumer(servers, ConsumerSettings(isolation=Isolation.READ_COMMITTED)) as reader:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = reader.run(
            list_offsets(reader.cluster, dict.fromkeys(partitions, ListedOffset.LATEST))
        )

        def stable() -> bool:
            isolation = Isolation.READ_COMMITTED
            wanted = dict.fromkeys(partitions, ListedOffset.LATEST)
            found = reader.run(list_offsets(reader.cluster, wanted, isolation))
            return all(found[tp].offset >= ends[tp].offset for tp in partitions)

        eventually(stable)
        reader.assign(dict.fromkeys(partitions, Start("start")))
        while any(state.position < ends[tp].offset for tp, state in reader.core.positions.items()):
            for _, records in reader.poll(1.0):
                found += [(record.value or b"").decode() for record in records]
    return sorted(found)
