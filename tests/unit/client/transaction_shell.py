"""A transactional producer's core, driven as the shells do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.helpers import drive, known_cluster
from tests.unit.client.producing import FixedRandom
from tests.unit.client.transaction_model import ModelCoordinator, Network
from tidelog.client.batching import Delivery, ProducerRecord
from tidelog.client.settings import ProducerSettings, TransactionSettings
from tidelog.client.transactional import TransactionalCore
from tidelog.client.transactions import GroupMetadata
from tidelog.model import TopicPartition

SETTINGS = TransactionSettings("x", 60_000)
VERSIONS = pytest.mark.parametrize("level", [1, 2])


class Shell:
    """Drives a core as the shells do, with the model as all the brokers there are."""

    def __init__(self, level: int, seed: int = 0, faults: int = 0) -> None:
        self.cluster, self.clock = known_cluster({0: 1, 1: 2})
        self.model = ModelCoordinator(level, self.clock)
        self.network = Network(seed, self.model, faults)
        self.core = self.new_core()

    def new_core(self) -> TransactionalCore:
        return TransactionalCore(SETTINGS, ProducerSettings(), self.cluster, FixedRandom())

    def run(self, operation: Any) -> Any:
        return drive(operation, self.network, self.clock)

    def send(self, value: bytes, partition: int = 0) -> Delivery:
        record = ProducerRecord("orders", value, partition=partition)
        return self.core.append(record, self.clock.now)

    def flush(self) -> None:
        self.core.flushing = True
        for _ in range(10_000):
            if self.core.idle:
                self.core.flushing = False
                return
            self.run(self.core.prepare())
            for produce in self.core.calls(self.clock.now):
                outcome = self.network(produce.call)
                self.core.finish(produce, outcome, self.clock.now)
            self.clock.now += 0.05
        raise AssertionError("the producer does not come to an end")

    def init(self) -> None:
        self.flush()
        self.run(self.core.init())

    def commit(self) -> None:
        self.flush()
        self.run(self.core.commit())

    def abort(self) -> None:
        self.core.give_up()
        self.flush()
        self.run(self.core.abort())

    def offsets(self, offset: int) -> None:
        wanted = {TopicPartition("orders", 0): offset}
        self.run(self.core.send_offsets(wanted, GroupMetadata("g", "m", 3)))
