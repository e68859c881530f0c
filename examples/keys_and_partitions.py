"""What becomes of keys when a topic gets more partitions: `python -m examples.keys_and_partitions`.

Twelve keys are written three times to a topic with 3 partitions, which then gets 5, and three times
again. Records stay where they are; the hash that picks a key's partition is taken modulo another
number from then on, so most keys go on elsewhere and their order is split in two.
"""

from __future__ import annotations

import sys
from collections import defaultdict

from tidelog.client.admin import NewTopic, add_partitions, create_topic
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_producer import Producer
from tidelog.client.offsets import Start, log_bounds
from tidelog.model import TopicPartition
from tidelog.testing import Broker

TOPIC = "orders"
KEYS = [f"customer-{number}" for number in range(12)]
ROUNDS = 3
BEFORE, AFTER = 3, 5

# Of each key, in the order of reading: the round in which it was written, and the partition.
Places = dict[str, list[tuple[int, int]]]


def write(servers: str, first_round: int) -> None:
    with Producer(servers) as producer:
        deliveries = [
            producer.send(ProducerRecord(TOPIC, str(number).encode(), key.encode()))
            for number in range(first_round, first_round + ROUNDS)
            for key in KEYS
        ]
        producer.flush()
        for delivery in deliveries:
            delivery.result()


def read(servers: str, partitions: int) -> Places:
    """Every record, partition after partition."""
    places: Places = defaultdict(list)
    chosen = [TopicPartition(TOPIC, number) for number in range(partitions)]
    with Consumer(servers) as consumer:
        bounds = consumer.run(log_bounds(consumer.cluster, chosen))
        left = sum(high - low for low, high in bounds.values())
        consumer.assign(dict.fromkeys(chosen, Start("start")))
        while left:
            for (_, partition), records in consumer.poll(1.0):
                left -= len(records)
                for record in records:
                    assert record.key is not None and record.value is not None
                    places[record.key.decode()].append((int(record.value), partition))
    return places


def report(places: Places) -> bool:
    """Print where each key lies; whether what is promised held."""
    print(f"{'key':<13} rounds 0-2 (3 partitions)  rounds 3-5 (5 partitions)")
    kept = moved = 0
    for key in KEYS:
        early = {partition for number, partition in places[key] if number < ROUNDS}
        late = {partition for number, partition in places[key] if number >= ROUNDS}
        rounds = [
            [number for number, where in places[key] if where == partition]
            for partition in early | late
        ]
        if len(early) != 1 or len(late) != 1 or any(each != sorted(each) for each in rounds):
            print(f"{key}: lies in {early} and {late}, or out of order within a partition")
            return False
        kept += early == late
        moved += early != late
        mark = "" if early == late else "  <- moved"
        print(f"{key:<13} partition {early.pop():<17} partition {late.pop()}{mark}")
    print(f"{kept} keys stayed, {moved} moved; no record was moved or lost")
    return kept + moved == len(KEYS) and all(len(each) == 2 * ROUNDS for each in places.values())


def main() -> int:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        with Producer(servers) as client:
            client.run(create_topic(client.cluster, NewTopic(TOPIC, partitions=BEFORE)))
        write(servers, 0)
        with Producer(servers) as client:
            client.run(add_partitions(client.cluster, TOPIC, AFTER))
        write(servers, ROUNDS)
        return 0 if report(read(servers, AFTER)) else 1


if __name__ == "__main__":
    sys.exit(main())
