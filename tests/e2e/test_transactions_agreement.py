"""Transactions, request by request, against Apache Kafka 4.3: the same answers."""

from __future__ import annotations

import pytest

from tests.e2e.agreement import answers_of_kafka, assert_agrees
from tests.e2e.raw_client import RawClient
from tests.e2e.transaction_script import TransactionScript

pytestmark = pytest.mark.java

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.max.timeout.ms": "900000",
    "group.initial.rebalance.delay.ms": "0",
}
KAFKA_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
ANSWERS_MIN = 100


def play(script: TransactionScript) -> None:
    refuse_nonsense(script)
    first_version(script)
    second_version(script)
    fence(script)
    write_without_transaction(script)
    commit_offsets(script)
    write_markers(script)
    look(script)


def refuse_nonsense(script: TransactionScript) -> None:
    for version in (1, 3, 4, 5):
        script.init("", version=version)
        script.init("nonsense", timeout_ms=900_001, version=version)
        script.init("nonsense", timeout_ms=0, version=version)
        script.init("nonsense", timeout_ms=-1, version=version)
    script.init("nonsense", expected=(5, -1))
    script.init("nonsense", expected=(-1, 5))
    for version in (1, 2, 3):
        script.add("unknown", (7, 0), version=version)
        script.add("", (7, 0), version=version)
    for version in (1, 2, 4, 5):
        script.end("unknown", (7, 0), version=version)
        script.end("", (7, 0), version=version)
    script.add_offsets("unknown", (7, 0))
    script.add_offsets("", (7, 0))
    script.describe("unknown")
    script.describe("")


def first_version(script: TransactionScript) -> None:
    one = script.init("one")
    script.describe("one")
    # Nothing is open.
    script.end("one", one, committed=True, version=4)
    script.end("one", one, committed=False, version=4)
    script.produce("one", one, 0, version=11)
    script.produce("one", one, 0, version=10)
    script.add("one", one)
    script.add("one", one, partitions=(0, 99))
    script.add("one", one, topic="missing")
    script.add("one", one, topic="__consumer_offsets")
    script.describe("one")
    script.produce("one", one, 0, version=11)
    script.produce("one", one, 1, version=11)
    # Not in the transaction.
    script.produce("one", one, 0, partition=2, version=11)
    script.produce("one", one, 0, partition=2, version=9)
    script.offsets()
    script.end("one", one, committed=True, version=4)
    script.settle("one")
    script.describe("one")
    script.end("one", one, committed=True, version=4)
    script.end("one", one, committed=False, version=4)
    script.offsets()
    # The next transaction goes on in the same epoch and sequence.
    script.add("one", one)
    script.produce("one", one, 2, version=11)
    script.end("one", one, committed=False, version=3)
    script.settle("one")
    script.end("one", one, committed=False, version=4)
    script.end("one", one, committed=True, version=4)
    script.offsets()
    # Others.
    script.add("one", (one[0] + 1000, one[1]))
    script.add("one", (one[0], one[1] + 1))
    script.end("one", (one[0], one[1] + 1), version=4)
    script.end("one", (one[0], one[1] + 1), version=1)
    script.end("one", (one[0] + 1000, 0), version=4)


def second_version(script: TransactionScript) -> None:
    two = script.init("two")
    script.end("two", two, committed=True)
    # An abort of nothing raises the epoch.
    two = script.end("two", two, committed=False)
    script.settle("two")
    script.describe("two")
    script.produce("two", two, 0, version=12)
    script.describe("two")
    script.produce("two", two, 1, version=12)
    script.produce("two", two, 0, partition=1, version=12)
    before = two
    two = script.end("two", two, committed=True)
    script.settle("two")
    # The answer was lost.
    script.end("two", before, committed=True)
    script.end("two", before, committed=False)
    script.describe("two")
    script.offsets()
    # What is late.
    script.produce("two", before, 2, version=12)
    script.produce("two", two, 0, version=12)
    script.end("two", before, committed=True)
    before = two
    two = script.end("two", two, committed=False)
    script.settle("two")
    script.end("two", before, committed=False)
    script.end("two", before, committed=True)
    script.end("two", (two[0], two[1] + 1), committed=True)
    script.end("two", two, committed=True)
    two = script.end("two", two, committed=False)
    script.settle("two")
    script.describe("two")
    script.offsets()


def fence(script: TransactionScript) -> None:
    three = script.init("three")
    again = script.init("three", expected=three)
    # The answer was lost.
    script.init("three", expected=three)
    script.init("three", expected=(again[0], again[1] + 1))
    script.init("three", expected=(again[0] + 1000, again[1]))
    script.init("three", expected=(again[0], 0))
    newer = script.init("three", timeout_ms=20_000)
    script.describe("three")
    script.init("three", expected=again)
    script.init("three", expected=again, version=3)
    script.add("three", again)
    script.add("three", again, version=1)
    script.end("three", again, version=4)
    script.end("three", again, version=5)
    script.produce("three", again, 0, version=11)
    script.produce("three", again, 0, version=12)
    # Somebody comes while a transaction is open: it is aborted.
    script.produce("three", newer, 0, version=12)
    script.init_when_settled("three")
    script.describe("three")
    script.produce("three", newer, 1, version=12)
    script.end("three", newer, committed=True)
    script.offsets()


def write_without_transaction(script: TransactionScript) -> None:
    four = script.init("four")
    script.produce(None, four, 0, version=11)
    script.produce(None, four, 0, version=12)
    script.produce("foreign", four, 0, version=11)
    script.produce("foreign", four, 0, version=12)
    script.produce("one", four, 0, version=12)
    script.produce("four", (four[0] + 1000, 0), 0, version=12)
    script.produce("four", (four[0], four[1] + 1), 0, version=12)
    # A batch outside of a transaction, of a producer with an id.
    script.produce("four", four, 0, version=12, transactional=False)
    script.produce("four", four, 1, version=12)
    script.produce("four", four, 2, version=12, transactional=False)
    four = script.end("four", four, committed=True)
    script.settle("four")


def commit_offsets(script: TransactionScript) -> None:
    five = script.init("five")
    # The partition of the group is not in the transaction.
    for version in (0, 3, 4):
        script.commit_offsets("five", five, 5, version=version)
    script.add_offsets("five", five)
    script.describe("five")
    script.commit_offsets("five", five, 7, version=3)
    script.fetch_offsets()
    script.commit_offsets("five", five, 8, version=4, member="nobody", generation=3)
    script.commit_offsets("five", five, 8, version=4, partition=99)
    script.commit_offsets("five", five, 8, version=4, topic="missing")
    script.commit_offsets("five", (five[0], five[1] + 1), 8, version=4)
    script.commit_offsets("five", (five[0] + 1000, 0), 8, version=4)
    script.end("five", five, committed=True, version=4)
    script.settle("five")
    script.fetch_offsets()
    five = script.init("five")
    script.commit_offsets("five", five, 20, version=5)
    script.fetch_offsets()
    script.delete_group()
    five = script.end("five", five, committed=False)
    script.settle("five")
    script.fetch_offsets()
    script.commit_offsets("five", five, 30, version=5)
    script.commit_offsets("five", (five[0], five[1] - 1), 31, version=5)
    five = script.end("five", five, committed=True)
    script.settle("five")
    script.fetch_offsets()
    script.commit_offsets("five", five, 40, version=5)
    script.delete_group()
    five = script.end("five", five, committed=True)
    script.settle("five")
    script.fetch_offsets()


def write_markers(script: TransactionScript) -> None:
    script.init("six")
    six = script.init("six")
    script.produce("six", six, 0, partition=3, version=12)
    for version in (1, 2):
        script.mark((six[0], six[1] - 1), coordinator_epoch=100, version=version)
        script.mark((six[0], six[1]), partition=99, coordinator_epoch=100, version=version)
        script.mark((six[0], six[1]), topic="missing", coordinator_epoch=100, version=version)
    # In version 2 of the protocol the epoch must be greater.
    script.mark(six, coordinator_epoch=100, version=2)
    script.mark((six[0], six[1] + 1), coordinator_epoch=100, version=2)
    script.mark((six[0], six[1] + 1), coordinator_epoch=100, version=2)
    script.mark((six[0], six[1] + 2), coordinator_epoch=99, version=2)
    script.produce("six", six, 1, partition=3, version=12)
    script.describe_producers(partition=3)
    script.describe_producers(partition=99)
    script.describe_producers(topic="missing")


def look(script: TransactionScript) -> None:
    seven = script.init("seven")
    script.produce("seven", seven, 0, version=12)
    script.list_transactions()
    script.list_transactions(states=["Ongoing"])
    script.list_transactions(states=["Empty", "Nonsense"])
    script.list_transactions(states=["Dead", "PrepareEpochFence", "ongoing"])
    script.list_transactions(producers=[seven[0]])
    script.list_transactions(producers=[123_456])
    script.list_transactions(duration_ms=0)
    script.list_transactions(duration_ms=3_600_000)
    script.list_transactions(pattern="se.*")
    script.list_transactions(pattern="eve")
    script.list_transactions(pattern="[")
    script.list_transactions(pattern="")
    script.find_coordinator()


def ask(client: RawClient) -> list[object]:
    script = TransactionScript(client)
    play(script)
    return script.answers


@pytest.fixture(scope="module")
def expected() -> list[object]:
    return answers_of_kafka(ask, KAFKA_SETTINGS)


def test_every_answer_is_kafkas(expected: list[object]) -> None:
    assert_agrees(ask, SETTINGS, expected, ANSWERS_MIN)
