"""``python -m tests.chaos.bank``: transfers between accounts while brokers are killed (K16).

Each of eight partitions is an account. Six tellers transfer amounts: a transaction takes from one
account and gives to another, one in ten is aborted on purpose. Meanwhile brokers are killed, one
after another, and every broker that runs is asked for what is committed, as a follower or as the
leader. At every such snapshot

- no transfer that was aborted shows, in any account;
- a transfer that shows in one account shows in the other, so that the sum of all accounts is zero;
- nothing shows twice, and the transfers of a teller show in the order in which it made them;

and in the end every transfer that was acknowledged is in all replicas, which show the same. A
marker reaches one partition a moment before another, so a transfer of which half shows has until
the next look of that replica, or a time-out, to show the other half.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from confluent_kafka import KafkaException, Producer

from scripts.guardian import guard
from tests.compat.wire import Wire, WireError
from tests.compat.wire_transactions import committed_records
from tests.waiting import eventually
from tidelog.testing import Cluster

ACCOUNTS = 8
TELLERS = 6
BROKERS = 3
TOPIC = "accounts"
_SECONDS = 120.0
_CALL_S = 30.0
_ABORTED_SHARE = 0.1
_SETTINGS = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "1"}

# A replica that has just come back: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION,
# LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE.
_BEHIND = (1, 3, 5, 6, 78)

# Teller and the number of the transfer among its own.
Transfer = tuple[int, int]


class Teller(threading.Thread):
    """Transfers, one after another; knows of each how it ended."""

    def __init__(self, servers: str, number: int, seed: int) -> None:
        super().__init__(name=f"teller {number}")
        self.number = number
        self.acknowledged: set[Transfer] = set()
        self.aborted: set[Transfer] = set()
        self.failure: BaseException | None = None
        self.stopped = threading.Event()
        self._servers = servers
        self._chance = Random(f"{seed} {number}")
        self._made = 0

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self._work()
        except BaseException as error:
            self.failure = error

    def _work(self) -> None:
        """A life of the producer: until it is stopped, or its client gives up for good."""
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": f"teller-{self.number}",
                "transaction.timeout.ms": 20_000,
                "log_level": 0,
            }
        )
        try:
            _until_done(lambda: producer.init_transactions(_CALL_S))
            while not self.stopped.is_set():
                self._transfer(producer)
        except KafkaException as error:
            # Fenced by its own next life, or by a time-out: what was under way may be either way.
            if not error.args[0].fatal():
                raise

    def _transfer(self, producer: Producer) -> None:
        self._made += 1
        transfer = self.number, self._made
        taken, given = self._chance.sample(range(ACCOUNTS), 2)
        amount = self._chance.randrange(1, 100)
        producer.begin_transaction()
        try:
            for account, part in ((taken, -amount), (given, amount)):
                value = f"{self.number} {self._made} {part}"
                producer.produce(TOPIC, value, partition=account)
            if self._chance.random() < _ABORTED_SHARE:
                producer.flush(_CALL_S)
                _until_done(lambda: producer.abort_transaction(_CALL_S))
                self.aborted.add(transfer)
                return
            _until_done(lambda: producer.commit_transaction(_CALL_S))
            self.acknowledged.add(transfer)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _until_done(lambda: producer.abort_transaction(_CALL_S))
            self.aborted.add(transfer)


def _until_done(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or error.args[0].fatal():
                raise


@dataclass(slots=True)
class Ledger:
    """What one replica has shown so far of all accounts."""

    server: str
    parts: dict[Transfer, dict[int, int]] = field(default_factory=dict)
    _positions: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(ACCOUNTS), 0))
    _last: dict[tuple[int, int], int] = field(default_factory=dict)

    def read(self) -> None:
        """All that it has to show by now."""
        wire = Wire(self.server)
        try:
            wire.connect()
            for account in range(ACCOUNTS):
                while self._read_some(wire, account):
                    continue
        finally:
            wire.close()

    def _read_some(self, wire: Wire, account: int) -> bool:
        offset = self._positions[account]
        try:
            fetched = wire.fetch_here(TOPIC, account, offset)
        except WireError as error:
            assert error.code in _BEHIND, error
            return False
        end, values = committed_records(fetched)
        for value in values:
            self._take(account, *map(int, (value or b"").split()))
        self._positions[account] = max(offset, end)
        return end > offset

    def _take(self, account: int, teller: int, number: int, amount: int) -> None:
        parts = self.parts.setdefault((teller, number), {})
        assert account not in parts, f"{self.server} shows {teller, number} twice in {account}"
        before = self._last.get((account, teller), 0)
        assert number > before, f"{self.server} shows {teller, number} after {before} in {account}"
        self._last[account, teller] = number
        parts[account] = amount

    def is_whole(self, transfers: set[Transfer]) -> bool:
        """Whether of each of them both accounts show it."""
        return all(len(self.parts[transfer]) == 2 for transfer in transfers)


class Bank:
    """The tellers, a ledger for each replica, and the rules."""

    def __init__(self, servers: str, seed: int) -> None:
        wire = Wire(servers, BROKERS)
        wire.create_topic(TOPIC, ACCOUNTS, {"min.insync.replicas": "2"})
        wire.close()
        self.ledgers = [Ledger(server) for server in servers.split(",")]
        self.tellers = [Teller(servers, number, seed) for number in range(TELLERS)]
        self.snapshots = 0
        for teller in self.tellers:
            teller.start()

    def snapshot(self, brokers: Iterable[int]) -> None:
        """Hold what each of these brokers shows to the rules; others come meanwhile."""
        for broker in brokers:
            ledger = self.ledgers[broker]
            ledger.read()
            seen = set(ledger.parts)
            self._wait_whole(ledger, seen)
            total = sum(sum(ledger.parts[each].values()) for each in seen)
            assert total == 0, f"broker {broker}: the sum is {total}"
            shown = self._aborted() & ledger.parts.keys()
            assert not shown, f"broker {broker} shows what was aborted: {sorted(shown)[:5]}"
            self.snapshots += 1

    def _wait_whole(self, ledger: Ledger, transfers: set[Transfer]) -> None:
        def is_whole() -> bool:
            ledger.read()
            return ledger.is_whole(transfers)

        def halves() -> list[Transfer]:
            return [each for each in transfers if len(ledger.parts[each]) != 2]

        eventually(is_whole, lambda: f"{ledger.server} shows half of {halves()[:5]}", _SECONDS)

    def until(self, transfers: int) -> None:
        """Until so many are acknowledged."""
        eventually(lambda: self.acknowledged() >= transfers, self._told, _SECONDS)

    def acknowledged(self) -> int:
        for teller in self.tellers:
            if teller.failure is not None:
                raise teller.failure
        return sum(len(teller.acknowledged) for teller in self.tellers)

    def _told(self) -> str:
        return f"acknowledged: {[len(teller.acknowledged) for teller in self.tellers]}"

    def settle(self) -> None:
        """Once nobody transfers any more: all that was acknowledged is in every replica."""
        self.close()
        promised = set().union(*(teller.acknowledged for teller in self.tellers))

        def lacking(ledger: Ledger) -> set[Transfer]:
            ledger.read()
            return promised - ledger.parts.keys()

        for ledger in self.ledgers:
            eventually(
                lambda ledger=ledger: not lacking(ledger),  # type: ignore[misc]
                lambda ledger=ledger: f"{ledger.server} lacks {sorted(lacking(ledger))[:5]}",  # type: ignore[misc]
                _SECONDS,
            )
        self.snapshot(range(BROKERS))
        first, *others = (ledger.parts for ledger in self.ledgers)
        assert all(other == first for other in others), "the replicas differ"
        assert self.acknowledged() == len(promised)

    def _aborted(self) -> set[Transfer]:
        return set().union(*(teller.aborted.copy() for teller in self.tellers))

    def close(self) -> None:
        for teller in self.tellers:
            teller.stopped.set()
        for teller in self.tellers:
            teller.join()


def run(transfers: int, kills: int, seed: int = 1) -> tuple[int, int]:
    """Kill brokers while so many transfers are made; how many were, and how many snapshots."""
    chance = Random(seed)
    with Cluster(brokers=BROKERS, settings=_SETTINGS) as cluster:
        bank = Bank(cluster.bootstrap_servers, seed)
        try:
            for number in range(kills):
                bank.until(transfers * number // kills)
                killed = chance.randrange(BROKERS)
                cluster.kill(killed)
                bank.snapshot(each for each in range(BROKERS) if each != killed)
                time.sleep(chance.random())
                cluster.restart(killed)
                bank.snapshot(range(BROKERS))
            bank.until(transfers)
            bank.settle()
        finally:
            bank.close()
        return bank.acknowledged(), bank.snapshots


def main() -> None:
    guard()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.bank", description=__doc__)
    parser.add_argument("--transfers", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=30, help="of brokers")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    began = time.monotonic()
    acknowledged, snapshots = run(chosen.transfers, chosen.kills, chosen.seed)
    took = time.monotonic() - began
    sys.stdout.write(f"seed {chosen.seed}: {acknowledged:,} transfers, {chosen.kills} kills,")
    sys.stdout.write(f" the sum held at {snapshots} snapshots, after {took:.0f} s\n")


if __name__ == "__main__":
    main()
