"""One group of members that are different clients, and the rules that its reading has to keep.

Everything happens in one order, that of the calls here: a record is produced, handed out by a
member, committed by it. So what is known at each moment can be compared with what comes next.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.compat.driver import ClientError, Driver
from tests.compat.members import Member, Place, owners_are_unique
from tests.compat.wire import Record, Wire
from tests.compat.wire_groups import GroupWire

WAIT_SECONDS = 60.0
KILL_POLL_MS = 10_000
RECORDS_A_ROUND = 3


class BrokenRule(AssertionError):
    """The group has read something that it must not have, or has not read what it must."""


@dataclass
class PartitionHistory:
    """What was written to a partition, how far it was read, and how far that is committed."""

    values: list[int] = field(default_factory=list)
    read_to: int = 0
    committed: int = 0
    repeated: int = 0

    def note_read(self, offset: int, value: int) -> None:
        if offset > self.read_to:
            raise BrokenRule(f"skipped from {self.read_to} to {offset}")
        if offset < self.committed:
            raise BrokenRule(f"{offset} again, and {self.committed} was committed")
        if self.values[offset] != value:
            raise BrokenRule(f"{value} at {offset}, where {self.values[offset]} was written")
        self.repeated += offset < self.read_to
        self.read_to = max(self.read_to, offset + 1)


class MixedGroup:
    """Members of one group on one topic, polled in turn while records keep coming."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.group = f"{topic}-readers"
        self.wire = Wire(bootstrap_servers)
        self.members: dict[str, Member] = {}
        self.partitions = {number: PartitionHistory() for number in range(partitions)}
        # Records that were handed out and then not committed: as many may be repeated.
        self.uncommitted = 0
        self._drivers: dict[str, Driver] = {}
        self._values = itertools.count()
        self.wire.create_topic(topic, partitions)

    @property
    def places(self) -> set[Place]:
        return {(self.topic, number) for number in self.partitions}

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.close()
        self.wire.close()

    # ---- who is in it ----

    def join(self, client: str, command: list[str], **settings: object) -> None:
        driver = self._drivers[client] = Driver(command, self.bootstrap_servers)
        driver.start()
        self.members[client] = Member(driver, client, self.group).join([self.topic], **settings)

    def leave(self, client: str) -> None:
        self.members.pop(client).close()

    def kill(self, client: str) -> None:
        """End a member's process without a word to anybody, with records in hand."""
        member = self.members.pop(client)
        self.produce()
        records = member.poll(timeout_ms=KILL_POLL_MS)
        assert records, f"{client} was given nothing"
        self._note(records)
        self.uncommitted += len(records)
        self._drivers[client].kill()

    # ---- reading ----

    def produce(self) -> None:
        for number, history in self.partitions.items():
            values = list(itertools.islice(self._values, RECORDS_A_ROUND))
            history.values += values
            records = [Record(str(value).encode()) for value in values]
            self.wire.produce(self.topic, records, partition=number)

    def round(self) -> None:
        """Every member polls once and commits what it was given."""
        for member in self.members.values():
            before = member.rebalances
            records = member.poll()
            self._note(records)
            if member.rebalances == before:
                _check_order(records)
            self._commit(member, records)

    def _note(self, records: list[Record]) -> None:
        for record in records:
            assert record.partition is not None and record.value is not None
            self.partitions[record.partition].note_read(record.offset, int(record.value))

    def _commit(self, member: Member, records: list[Record]) -> None:
        ends = {(record.topic, record.partition or 0): record.offset + 1 for record in records}
        if not ends:
            return
        try:
            member.commit(ends)
        except ClientError:
            # A rebalance came between: whoever owns the partitions now reads these again.
            self.uncommitted += len(records)
            return
        for (_, number), end in ends.items():
            self.partitions[number].committed = end

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not holds():
            self.round()
            if time.monotonic() > deadline:
                owned = {name: sorted(m.assignment) for name, m in self.members.items()}
                raise AssertionError(f"{what}: not so after {WAIT_SECONDS:.0f} s: {owned}")

    def until_stable(self) -> None:
        """All who should be are in the group, and each partition has exactly one owner."""
        members = list(self.members.values())
        self.produce()
        self.until(lambda: owners_are_unique(members, self.places), "one owner each")
        self.until(self._coordinator_agrees, "the coordinator has these members")
        self.until(lambda: owners_are_unique(members, self.places), "one owner each")

    def _coordinator_agrees(self) -> bool:
        described = GroupWire(self.wire).describe(self.group)
        stable = described.state == "Stable" and described.protocol == "range"
        return stable and sorted(described.client_ids.values()) == sorted(self.members)

    def until_read(self) -> None:
        """Everything that was written is read, and committed too."""
        self.until(
            lambda: all(
                history.read_to == history.committed == len(history.values)
                for history in self.partitions.values()
            ),
            "everything read and committed",
        )

    def shares(self) -> list[int]:
        return sorted((len(member.assignment) for member in self.members.values()), reverse=True)


def _check_order(records: list[Record]) -> None:
    """Without a rebalance in between, each partition goes on record by record."""
    last: dict[int | None, int] = {}
    for record in records:
        if record.offset != last.get(record.partition, record.offset - 1) + 1:
            raise BrokenRule(f"{record.partition}: {record.offset} after {last[record.partition]}")
        last[record.partition] = record.offset
