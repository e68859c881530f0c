"""``python -m tests.chaos.copying``: a topic is copied exactly once while all are killed (K14).

Three brokers and two copiers, each a process (`tests/e2e/transaction_copier.py`), which are killed
one after another as the copy goes on and come back at once. In the end the copy must have every
record of every partition once, in its order.

A copier whose call does not return ends itself. The one call that may do so is the one with
librdkafka's known fault (`tests/chaos/lost_coordinator.py`), and only after a broker was away: any
other fails the trial.
"""

from __future__ import annotations

import argparse
import linecache
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from tempfile import TemporaryFile
from typing import IO

from confluent_kafka import Consumer, Producer, TopicPartition

from scripts.guardian import guard
from tests.compat.wire import Wire
from tests.compat.wire_transactions import TransactionWire
from tests.e2e import transaction_copier
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.testing import Cluster

PARTITIONS = 4
COPIERS = 2
BROKERS = 3
_SECONDS = 180.0
# Where a copier was when its watchdog ended it, as `faulthandler` writes that.
_ENDED = "Timeout ("
_PLACE = re.compile(r'transaction_copier\.py", line (\d+) in <lambda>')
_CALL = re.compile(r"self\.producer\.(\w+)\(")
_MAY_HANG = "send_offsets_to_transaction"
_SETTINGS = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """How much is copied, in transactions of up to `batch`, and how often each kind is killed."""

    records: int
    batch: int
    broker_kills: int
    copier_kills: int
    # Copiers share the partitions as members of a group; else each has its own (before KIP-447).
    is_group: bool = True
    seed: int = 1


class Copying:
    """The copiers, which come back when they are gone, and what they have done so far."""

    def __init__(self, servers: str, wishes: Wishes, said: IO[bytes]) -> None:
        self.servers = servers
        self.wishes = wishes
        # What copiers say at their ends; and the calls without an end in which some of them ended.
        self._said = said
        self.stuck: list[str] = []
        self.found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
        self._copiers: dict[int, subprocess.Popen[bytes]] = {}
        wire = Wire(servers, BROKERS)
        for topic in ("in", "out"):
            wire.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2"})
        wire.close()
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for number in range(wishes.records):
            while True:
                try:
                    producer.produce("in", str(number), partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(_SECONDS) == 0
        self._reader = _reader(servers)

    def keep_up(self) -> None:
        for number in range(COPIERS):
            copier = self._copiers.get(number)
            if copier is None or copier.poll() is not None:
                self._copiers[number] = self._start(number)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        mine = [] if self.wishes.is_group else range(number, PARTITIONS, COPIERS)
        return subprocess.Popen(
            [
                sys.executable, "-m", "tests.e2e.transaction_copier",
                self.servers, f"copier-{number}", "in", "out", str(self.wishes.batch),
                *map(str, mine),
            ],
            stderr=self._said,
        )  # fmt: skip

    def kill(self, number: int) -> None:
        self._copiers[number].kill()
        self._copiers[number].wait()

    def look(self) -> int:
        """How many copies are committed by now."""
        self.keep_up()
        for message in self._reader.consume(5_000, 0.5):
            if not message.error():
                self.found[message.partition()].append(int(message.value()))
        return sum(map(len, self.found.values()))

    def until(self, count: int) -> None:
        eventually(lambda: self.look() >= count, self._told, _SECONDS)

    def _told(self) -> str:
        """How far each partition is, what its readers wait for, and what is open."""
        wire = Wire(self.servers)
        views = {each: TransactionWire(wire).view("out", each) for each in range(PARTITIONS)}
        wire.close()
        ends = {each: (view.stable_offset, view.high_watermark) for each, view in views.items()}
        copied = {each: len(some) for each, some in self.found.items()}
        return "; ".join([f"copied {copied}, ends {ends}", *self._open_transactions()])

    def _open_transactions(self) -> Iterator[str]:
        for server in self.servers.split(","):
            with RawClient(server) as client:
                listed = client.call("ListTransactions", 1, ListTransactionsRequest())
                for each in listed.transaction_states:
                    request = DescribeTransactionsRequest([each.transactional_id])
                    yield str(client.call("DescribeTransactions", 0, request).transaction_states)

    def close(self) -> None:
        for copier in self._copiers.values():
            copier.kill()
            copier.wait()
        self._reader.close()
        self._said.seek(0)
        self.stuck = stuck_calls(self._said.read().decode(errors="replace"))


def _reader(servers: str) -> Consumer:
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([TopicPartition("out", each, 0) for each in range(PARTITIONS)])
    return reader


@contextmanager
def _copying(wishes: Wishes) -> Iterator[tuple[Cluster, Copying]]:
    with Cluster(brokers=BROKERS, settings=_SETTINGS) as cluster, TemporaryFile() as said:
        copying = Copying(cluster.bootstrap_servers, wishes, said)
        try:
            yield cluster, copying
        finally:
            copying.close()


def run(wishes: Wishes) -> Counter[str]:
    """Copy under kills, and hold the copy to what it was made of; who was killed, and how many
    copiers ended because a call of their client did not return."""
    chance = Random(wishes.seed)
    faults = ["broker"] * wishes.broker_kills + ["copier"] * wishes.copier_kills
    chance.shuffle(faults)
    killed: Counter[str] = Counter()
    with _copying(wishes) as (cluster, copying):
        for number, fault in enumerate(faults):
            copying.until(wishes.records * number // (len(faults) + 1))
            killed[fault] += 1
            if fault == "copier":
                copying.kill(chance.randrange(COPIERS))
                continue
            broker = chance.randrange(BROKERS)
            cluster.kill(broker)
            time.sleep(chance.random())
            cluster.restart(broker)
        copying.until(wishes.records)
        copying.look()
        judge(copying.found, wishes.records)
    assert killed == Counter(faults)
    check_stuck(copying.stuck, wishes.broker_kills)
    return killed + Counter(stuck=len(copying.stuck))


def stuck_calls(said: str) -> list[str]:
    """The calls in which watchdogs ended their copiers; "?" for one that cannot be told."""
    calls = []
    for place in _PLACE.finditer(said):
        line = linecache.getline(transaction_copier.__file__, int(place[1]))
        call = _CALL.search(line)
        calls.append("?" if call is None else call[1])
    return calls + ["?"] * (said.count(_ENDED) - len(calls))


def check_stuck(calls: list[str], broker_kills: int) -> None:
    """A call hangs by the known fault of librdkafka, or something else is wrong."""
    others = [each for each in calls if each != _MAY_HANG]
    assert not others, f"copiers were ended in calls that must return: {others}"
    most = COPIERS * broker_kills
    assert len(calls) <= most, f"{len(calls)} copiers hung after {broker_kills} brokers were away"


def judge(found: dict[int, list[int]], records: int) -> None:
    """Input equals output, nothing twice, order kept."""
    for partition, copies in found.items():
        twice = [each for each, count in Counter(copies).items() if count > 1]
        assert not twice, f"partition {partition} has {twice[:5]} more than once"
        assert copies == list(range(partition, records, PARTITIONS)), f"partition {partition}"


def main() -> None:
    guard()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.copying", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=750)
    parser.add_argument("--kills", type=int, default=30, help="of brokers, and as many of copiers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--assigned", action="store_true", help="without a group's metadata")
    chosen = parser.parse_args()
    began = time.monotonic()
    wishes = Wishes(
        chosen.records, chosen.batch, chosen.kills, chosen.kills, not chosen.assigned, chosen.seed
    )
    killed = run(wishes)
    took = time.monotonic() - began
    sys.stdout.write(
        f"seed {chosen.seed}: {chosen.records:,} records, {killed['broker']} brokers and"
        f" {killed['copier']} copiers killed, {killed['stuck']} copiers stuck in their client:"
        f" each once, in order, after {took:.0f} s\n"
    )


if __name__ == "__main__":
    main()
