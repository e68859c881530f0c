"""Four client libraries in one classic group: joining, leaving and dying one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.clients import CLIENTS
from tests.compat.wire_groups import GroupWire
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mixed_group import BrokenRule, MixedGroup, PartitionHistory

PARTITIONS = 8
SESSION_TIMEOUT_MS = 4_000
# kafkajs is not among them: what it calls its assignor, no other client has.
MEMBERS = ("confluent-kafka", "java-4.3", "kafka-python", "franz-go")
COMMANDS = {client.name: client.command for client in CLIENTS}
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MixedGroup]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        made = MixedGroup(broker.bootstrap_servers, "mixed", PARTITIONS)
        try:
            yield made
        finally:
            made.close()


def _join_one_after_another(group: MixedGroup) -> None:
    settings = {"assignor": "range", "session_timeout_ms": SESSION_TIMEOUT_MS}
    for count, client in enumerate(MEMBERS, 1):
        group.join(client, COMMANDS[client](), **settings)
        group.until_stable()
        least, more = divmod(PARTITIONS, count)
        assert group.shares() == [least + 1] * more + [least] * (count - more)


@pytest.mark.java
@pytest.mark.go
def test_clients_of_four_libraries_share_a_group_while_they_come_and_go(group: MixedGroup) -> None:
    _join_one_after_another(group)
    group.until_read()
    # The first to join is the leader, the one that the others got their partitions from.
    group.kill("confluent-kafka")
    group.until_stable()
    assert group.shares() == [3, 3, 2]
    group.leave("kafka-python")
    group.until_stable()
    assert group.shares() == [4, 4]
    group.leave("java-4.3")
    group.until_stable()
    assert group.shares() == [PARTITIONS]
    group.until_read()

    written = [value for history in group.partitions.values() for value in history.values]
    assert sorted(written) == list(range(len(written))) and len(written) == 8 * 3 * PARTITIONS
    committed = GroupWire(group.wire).committed(group.group)
    ends = {("mixed", n): len(history.values) for n, history in group.partitions.items()}
    assert {place: offset for place, (offset, _) in committed.items()} == ends
    repeated = sum(history.repeated for history in group.partitions.values())
    assert 0 < repeated <= group.uncommitted


@pytest.mark.parametrize(
    ("offset", "value", "rule"),
    [(3, 30, "skipped"), (1, 10, "committed"), (2, 21, "written")],
)
def test_the_rules_notice_what_breaks_them(offset: int, value: int, rule: str) -> None:
    history = PartitionHistory(values=[0, 10, 20, 30], read_to=2, committed=2)
    with pytest.raises(BrokenRule, match=rule):
        history.note_read(offset, value)


def test_the_rules_allow_the_uncommitted_tail_again() -> None:
    history = PartitionHistory(values=[0, 10, 20, 30], read_to=3, committed=1)
    for offset, value in enumerate([10, 20, 30], 1):
        history.note_read(offset, value)
    assert (history.repeated, history.read_to) == (2, 4)
