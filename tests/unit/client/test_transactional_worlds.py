"""Whatever the network and the coordinator do: what a producer says of a transaction is so."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.client.transaction_model import OFFSETS
from tests.unit.client.transaction_shell import SETTINGS, VERSIONS, Shell
from tidelog.client.faults import NetworkError
from tidelog.client.transaction_faults import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionError,
    TransactionUncertainError,
)
from tidelog.client.transactions import init_transactional_id
from tidelog.errors import TidelogError


class Story:
    """Many transactions in one seeded world, and what the producer said of each."""

    def __init__(self, seed: int, level: int) -> None:
        self.shell = Shell(level, seed, faults=40)
        self.random = self.shell.network.random
        self.expected: dict[int, list[bytes]] = {}
        self.said = dict.fromkeys(("committed", "aborted", "failed", "timed out", "fenced"), 0)
        self.unknown = 0

    def persist(self, act: Callable[[], None]) -> None:
        """Ask again for as long as the answer is that nobody knows."""
        while True:
            try:
                return act()
            except (TransactionUncertainError, NetworkError):
                continue

    def run(self, transactions: int) -> None:
        shell = self.shell
        self.persist(shell.init)
        for number in range(transactions):
            if self.random.random() < 0.1:
                # A second producer takes the id; the first then takes it back.
                self.persist(lambda: shell.run(init_transactional_id(shell.cluster, SETTINGS)))
            if self.random.random() < 0.1:
                self.let_time_pass = self.random.randrange(1, 4)
            self.one(number)

    let_time_pass = 0

    def one(self, number: int) -> None:
        shell = self.shell
        written: dict[int, list[bytes]] = {}
        try:
            shell.core.begin()
            for index in range(self.random.randrange(5)):
                partition = self.random.randrange(2)
                value = b"%d-%d" % (number, index)
                shell.send(value, partition)
                written.setdefault(partition, []).append(value)
                if self.random.random() < 0.3:
                    shell.flush()
            if self.random.random() < 0.3:
                shell.offsets(number)
                written.setdefault(OFFSETS, []).append(b"%d" % number)
            if self.let_time_pass:
                self.let_time_pass -= 1
                shell.clock.now += 61
            if self.random.random() < 0.3:
                self.persist(shell.abort)
                self.said["aborted"] += 1
                return
            self.persist(shell.commit)
        except ProducerFencedError as error:
            self.said["fenced"] += 1
            if error.committed is None:
                self.judge(written)
            self.persist(shell.init)
        except TransactionError as error:
            kind = "timed out" if isinstance(error, TransactionAbortedError) else "failed"
            self.said[kind] += 1
            try:
                self.persist(shell.abort)
            except ProducerFencedError:
                self.persist(shell.init)
        else:
            self.said["committed"] += 1
            self.keep(written)

    def keep(self, written: dict[int, list[bytes]]) -> None:
        for partition, values in written.items():
            self.expected.setdefault(partition, []).extend(values)

    def judge(self, written: dict[int, list[bytes]]) -> None:
        """It cannot be told from outside, so it is looked up: all of it, or nothing."""
        self.unknown += 1
        self.shell.model.settle()
        stored = self.shell.model.stored
        there = {
            partition
            for partition, values in written.items()
            if stored.get(partition, [])[-len(values) :] == values
        }
        assert there in (set(), set(written)), written
        if there:
            self.keep(written)

    def check(self) -> None:
        for late in self.shell.network.late:
            late()
        self.shell.model.settle()
        stored = {part: values for part, values in self.shell.model.stored.items() if values}
        assert stored == self.expected


@VERSIONS
def test_whatever_the_network_does_a_transaction_is_what_its_producer_was_told(level: int) -> None:
    worlds, said, faults = 0, dict.fromkeys(("committed", "aborted", "timed out", "fenced"), 0), 0
    for seed in range(150):
        story = Story(seed, level)
        try:
            story.run(12)
            story.check()
        except (AssertionError, TidelogError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        worlds += 1
        for kind in said:
            said[kind] += story.said[kind]
        faults += sum(story.shell.network.counts.values())
    assert worlds == 150
    assert min(said.values()) > 30, said
    assert said["committed"] > 500
    assert faults > 2_000
