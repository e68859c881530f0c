"""Three brokers, request by request, against three of Apache Kafka 4.3: the same answers.

As in `test_answers_agreement`, for what one broker alone cannot show.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from bench.peers.clusters import KafkaCluster
from tests.e2e.cluster_answers_script import ANSWERS_MIN, play
from tidelog.testing import Cluster

# Three Kafka brokers take half a minute to start and to miss one of them.
pytestmark = [pytest.mark.java, pytest.mark.long]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "1",
    "auto.leader.rebalance.enable": "false",
    "broker.rack": "a",
}
_AWAY = "a move to a broker that is away is refused: nobody would see when it ends"
DIFFERENCES = {
    "AlterPartitionReassignments 1: one lost, to who is lost": _AWAY,
    "ListPartitionReassignments 0: one lost, to who is lost, all": _AWAY,
    "AlterPartitionReassignments 1: one lost, stopped": _AWAY,
    "AlterPartitionReassignments 1: one lost, of what nobody leads, stopped": "Kafka does not stop"
    " the move of a partition that nobody leads; it waits for its replica either way",
}


class Kafka(KafkaCluster):
    """Three brokers of which one can be killed."""

    @property
    def servers(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports]

    def wait_until_serving(self, timeout_s: float = 240.0) -> None:
        super().wait_until_serving(timeout_s)

    def lose(self, broker: int) -> None:
        for child in psutil.Process(self.pid).children():
            if child.cmdline()[-1].endswith(f"server-{broker}.properties"):
                child.kill()


@pytest.fixture(scope="module")
def expected() -> Iterator[dict[str, object]]:
    with Kafka(settings=SETTINGS) as running:
        yield play(running.servers, running.lose)


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, object]]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        yield play(running.bootstrap_servers.split(","), running.kill)


def test_every_answer_is_kafkas(expected: dict[str, object], answers: dict[str, object]) -> None:
    assert answers.keys() == expected.keys()
    assert len(answers) >= ANSWERS_MIN
    differing = {
        label: (answers[label], expected[label])
        for label in expected
        if answers[label] != expected[label]
    }
    assert differing.keys() >= DIFFERENCES.keys(), "these are the same by now"
    assert {label: pair for label, pair in differing.items() if label not in DIFFERENCES} == {}
