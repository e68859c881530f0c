"""``python -m tests.chaos.commit_failover``: how long nobody can commit when a coordinator goes.

Three brokers around one ZooKeeper, each a process, and a producer that commits one transaction
after another. The broker that coordinates it is killed (SIGKILL), again and again; measured is the
time from the kill to the next commit that is answered, whatever else that broker led. The bar is
the session of a broker and two seconds more, at p99.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer

from bench.measure import percentile
from scripts.guardian import guard
from tests.chaos.brokers import Brokers
from tests.compat.wire import Wire
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.testing import ZooKeeper

_BROKERS: Final = 3
_TOPIC: Final = "written"
_ID: Final = "committer"
_SECONDS: Final = 60.0
_OVER_SESSION_S: Final = 2.0


class Committer:
    """A producer that goes on, whatever its client makes of a broker that died."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": _ID,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(_SECONDS)

    def commit(self) -> None:
        """A transaction of one record; returns once it is committed."""
        self._producer.begin_transaction()
        try:
            self._producer.produce(_TOPIC, "x", partition=0)
            self._until_done(commits=True)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._until_done(commits=False)
            self.commit()

    def _until_done(self, *, commits: bool) -> None:
        end = self._producer.commit_transaction if commits else self._producer.abort_transaction
        while True:
            try:
                end(_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


class Failover:
    """The cluster whose coordinators die."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        with closing(Wire(brokers.server(0), _BROKERS)) as wire:
            wire.create_topic(_TOPIC, 1, {"min.insync.replicas": "2"})
        self.committer = Committer(brokers.bootstrap_servers)

    def coordinator(self) -> int:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[_ID])
        with RawClient(self.brokers.server(0)) as client:
            (found,) = client.call("FindCoordinator", 4, request).coordinators
        assert found.error_code == 0, f"error {found.error_code}"
        return int(found.node_id)

    def measure_s(self) -> float:
        """Kill the coordinator between two commits; how long until the next one is answered."""
        self.committer.commit()
        killed = self.coordinator()
        self.brokers.kill(killed)
        began = time.monotonic()
        self.committer.commit()
        took = time.monotonic() - began
        self.brokers.restart(killed)
        eventually(self._is_whole, seconds=_SECONDS)
        return took

    def _is_whole(self) -> bool:
        # Connections to a broker that was killed are of no use any more.
        with closing(Wire(self.brokers.server(0))) as wire:
            return all(
                len(layout.in_sync) == _BROKERS
                for topic in (_TOPIC, "__transaction_state")
                for layout in wire.layout(topic).values()
            )


def run(kills: int, session_s: float) -> list[float]:
    settings = {
        "zookeeper.session.timeout.ms": str(int(session_s * 1_000)),
        "transaction.state.log.num.partitions": "3",
        "auto.create.topics.enable": "false",
    }
    with ExitStack() as cleanup:
        data = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="failover-")))
        zookeeper = ZooKeeper()
        cleanup.callback(zookeeper.stop)
        zookeeper.start()
        brokers = Brokers(_BROKERS, data, settings, zookeeper.address)
        cleanup.callback(
            lambda: [brokers.kill(each) for each in brokers.ids if brokers.is_running(each)]
        )
        brokers.start()
        failover = Failover(brokers)
        return [failover.measure_s() for _ in range(kills)]


def main() -> None:
    guard()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.commit_failover")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--session", type=float, default=3.0, help="seconds of a broker's session")
    chosen = parser.parse_args()
    took = run(chosen.kills, chosen.session)
    bar = chosen.session + _OVER_SESSION_S
    sys.stdout.write(
        f"{len(took)} kills: p50 {percentile(took, 0.5):.2f} s, p99 {percentile(took, 0.99):.2f} s,"
        f" worst {max(took):.2f} s; the bar is {bar:.1f} s\n"
    )


if __name__ == "__main__":
    main()
