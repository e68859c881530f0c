"""What the histories say so far, for the runner to wait on."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.history.events import (
    Acknowledged,
    Assigned,
    CommitEnded,
    CommitStarted,
    CommittedByItself,
    HistoryTail,
    Joined,
    Left,
    Polled,
    Position,
    Revoked,
)


class View:
    """Who holds what, and what has been sent and consumed."""

    def __init__(self, directory: Path) -> None:
        self._tail = HistoryTail(directory)
        self.held: dict[str, set[str]] = defaultdict(set)
        self.heard: set[str] = set()  # members that were told their share, though it be nothing
        self.left: dict[str, str | None] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.delivered: set[tuple[str, int]] = set()
        # The latest of each partition: by whom, and when.
        self._deliveries: dict[str, tuple[str, int]] = defaultdict(lambda: ("", 0))
        self._commits: dict[str, tuple[str, int]] = defaultdict(lambda: ("", 0))
        self._started: dict[tuple[str, int], tuple[Position, ...]] = {}

    def look(self) -> None:
        for event in self._tail.new_events():
            if isinstance(event, Acknowledged):
                self.acknowledged.add((event.partition, event.offset))
            elif isinstance(event, Assigned):
                self.held[event.member].update(event.partitions)
                self.heard.add(event.member)
            elif isinstance(event, Joined) and not event.classic:
                self.heard.add(event.member)  # one without a share is told nothing
            elif isinstance(event, Revoked):
                self.held[event.member].difference_update(event.partitions)
            elif isinstance(event, Left):
                self.held.pop(event.member, None)
                self.left[event.member] = event.error
            elif isinstance(event, Polled):
                for record in event.records:
                    self.delivered.add((record.partition, record.offset))
                    self._deliveries[record.partition] = (event.member, event.time_ns)
            elif isinstance(event, CommitStarted):
                self._started[event.member, event.number] = event.positions
            elif isinstance(event, CommitEnded):
                positions = self._started.pop((event.member, event.number))
                if event.error is None:
                    self._committed(event.member, event.time_ns, positions)
            elif isinstance(event, CommittedByItself):
                self._committed(event.member, event.time_ns, event.positions)

    def _committed(self, member: str, time_ns: int, positions: tuple[Position, ...]) -> None:
        for partition, _ in positions:
            self._commits[partition] = (member, time_ns)

    def shared_by(self, members: list[str], partitions: int) -> bool:
        """Each partition is held by one of them, and as many hold any as can."""
        held = [self.held[member] for member in members if self.held.get(member)]
        everything = set().union(*held)
        return len(everything) == sum(map(len, held)) == partitions and len(held) == min(
            len(members), partitions
        )

    def worked_on_since(self, time_ns: int, partitions: set[str]) -> bool:
        """Each of these partitions was consumed and committed since then by whoever holds it."""
        return all(
            when > time_ns and partition in self.held.get(member, ())
            for latest in (self._deliveries, self._commits)
            for partition, (member, when) in ((each, latest[each]) for each in partitions)
        )

    def drained(self) -> bool:
        return self.acknowledged <= self.delivered
