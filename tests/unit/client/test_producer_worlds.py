"""Whatever the network and the leaders do: nothing is stored twice, lost or out of order."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.unit.client.helpers import known_cluster, metadata_response
from tests.unit.client.producing import new_core, response
from tidelog.client.batching import Delivery, Identity, ProducerRecord
from tidelog.client.faults import ConnectError, NetworkError
from tidelog.client.producer import ProduceCall
from tidelog.errors import ErrorCode
from tidelog.protocol.batches import decode_records, read_header


@dataclass
class ModelPartition:
    """A partition as Kafka's leader keeps it: a window of five batches per producer.

    From a producer that it does not know it takes any sequence as the first.
    """

    log: list[bytes] = field(default_factory=list)
    producers: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)

    def append(self, batch: Any) -> tuple[int, int]:
        header = read_header(batch)
        window = self.producers.get(header.producer_id)
        for first, last, offset in window or ():
            if (first, last) == (header.base_sequence, header.last_sequence):
                return 0, offset
        if window and header.base_sequence != window[-1][1] + 1:
            return int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        values = [record.value for record in decode_records(batch)]
        if b"poison" in values:
            return int(ErrorCode.INVALID_RECORD), -1
        offset = len(self.log)
        self.log += [value or b"" for value in values]
        if window is None:
            window = self.producers[header.producer_id] = deque(maxlen=5)
        window.append((header.base_sequence, header.last_sequence, offset))
        return 0, offset


class World:
    """Three brokers that share their partitions, and a network that fails as it likes."""

    def __init__(self, seed: int, restarts: bool = False) -> None:
        self.random = random.Random(seed)
        self.restarts = restarts
        self.cluster, self.clock = known_cluster({0: 1, 1: 2})
        self.core = new_core(self.cluster, batch_bytes=150, linger_ms=1)
        self.partitions = {0: ModelPartition(), 1: ModelPartition()}
        self.queues: dict[int, deque[ProduceCall]] = {1: deque(), 2: deque(), 3: deque()}
        self.leaders = {0: 1, 1: 2}
        self.epoch = 0
        self.identities = 7
        self.faults = 0

    def pump(self) -> None:
        if self.core.needs_identity:
            self.identities += 1
            self.core.identity = Identity(self.identities, 0)
        if self.core.take_stale_topics():
            self.cluster.apply(metadata_response(leaders=self.leaders, epoch=self.epoch))
        for call in self.core.calls(self.clock.now):
            self.queues[call.call.node].append(call)

    def serve(self, node: int) -> None:
        """Answer the oldest request of a broker, maybe with an error that passes."""
        if not self.queues[node]:
            return
        call = self.queues[node].popleft()
        results = self.store(call, node)
        self.core.finish(call, response(results), self.clock.now)

    def store(self, call: ProduceCall, node: int) -> dict[int, tuple[int, int]]:
        results = {}
        for part in call.call.message.topic_data[0].partition_data:  # type: ignore[attr-defined]
            if self.leaders[part.index] != node:
                results[part.index] = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)
            elif self.random.random() < 0.1:
                self.faults += 1
                results[part.index] = (int(ErrorCode.NOT_ENOUGH_REPLICAS), -1)
            else:
                results[part.index] = self.partitions[part.index].append(part.records)
        return results

    def disconnect(self, node: int) -> None:
        """Some requests were served, none is answered."""
        queue = self.queues[node]
        if not queue:
            return
        self.faults += 1
        served = self.random.randrange(len(queue) + 1)
        for index, call in enumerate(queue):
            if index < served:
                self.store(call, node)
            error = NetworkError("b", "reset") if index < served else ConnectError("b", "refused")
            self.core.finish(call, error, self.clock.now)
        queue.clear()

    def restart(self) -> None:
        """Of each producer's batches a snapshot keeps the last one."""
        for part in self.partitions.values():
            for window in part.producers.values():
                while len(window) > 1:
                    window.popleft()

    def move_leader(self) -> None:
        self.epoch += 1
        self.leaders[self.random.randrange(2)] = self.random.choice([1, 2, 3])

    def step(self) -> None:
        self.pump()
        choice = self.random.random()
        node = self.random.choice([1, 2, 3])
        if choice < 0.75:
            self.serve(node)
        elif choice < 0.85:
            self.disconnect(node)
        elif choice < 0.88:
            self.move_leader()
        elif choice < 0.94 and self.restarts:
            self.disconnect(node)
            self.restart()
        self.clock.now += self.random.random() * 0.02

    def settle(self) -> None:
        self.core.flushing = True
        for _ in range(20_000):
            if self.core.idle:
                return
            self.pump()
            for node in self.queues:
                self.serve(node)
            self.clock.now += 0.05
        raise AssertionError("the producer does not come to an end")


def run_world(
    seed: int, poison: float, restarts: bool = False
) -> tuple[World, list[tuple[bytes, Delivery]]]:
    world = World(seed, restarts)
    sent: list[tuple[bytes, Delivery]] = []
    for number in range(60):
        value = b"poison" if world.random.random() < poison else b"%d" % number
        record = ProducerRecord("orders", value, partition=world.random.randrange(2))
        sent.append((value, world.core.append(record, world.clock.now)))
        for _ in range(world.random.randrange(4)):
            world.step()
    world.settle()
    return world, sent


def check_world(world: World, sent: list[tuple[bytes, Delivery]]) -> int:
    """Each record that was acknowledged is there once, in order, at its offset."""
    failed = 0
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    for value, delivery in sent:
        assert delivery.done
        if delivery.error is not None:
            failed += 1
            continue
        log = world.partitions[delivery.partition.partition].log
        assert log[delivery.offset] == value
        expected[delivery.partition.partition].append(value)
    assert {number: part.log for number, part in world.partitions.items()} == expected
    return failed


def test_whatever_the_network_does_each_record_is_stored_once_and_in_order() -> None:
    faults = worlds = 0
    for seed in range(150):
        world, sent = run_world(seed, poison=0.0)
        assert check_world(world, sent) == 0
        faults += world.faults
        worlds += 1
    assert worlds == 150
    assert faults > 1000


def test_a_leader_that_forgot_older_batches_does_not_make_the_producer_store_them_twice() -> None:
    failed = worlds = 0
    for seed in range(150):
        world, sent = run_world(seed, poison=0.0, restarts=True)
        for part in world.partitions.values():
            assert len(set(part.log)) == len(part.log)
        for value, delivery in sent:
            assert delivery.done
            if delivery.error is None:
                log = world.partitions[delivery.partition.partition].log
                assert log[delivery.offset] == value
            failed += delivery.error is not None
        worlds += 1
    assert worlds == 150
    assert failed > 10


def test_a_refused_batch_takes_none_of_its_successors_with_it() -> None:
    failed = worlds = 0
    for seed in range(100):
        world, sent = run_world(seed, poison=0.05)
        failed += check_world(world, sent)
        worlds += 1
    assert worlds == 100
    assert failed > 100
