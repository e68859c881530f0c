"""What the histories say so far, for the runner to wait on."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.history.events import (
    Acknowledged,
    Assigned,
    HistoryTail,
    Left,
    Polled,
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
        self.last_delivery: dict[str, tuple[str, int]] = {}  # partition: member, time

    def look(self) -> None:
        for event in self._tail.new_events():
            if isinstance(event, Acknowledged):
                self.acknowledged.add((event.partition, event.offset))
            elif isinstance(event, Assigned):
                self.held[event.member].update(event.partitions)
                self.heard.add(event.member)
            elif isinstance(event, Revoked):
                self.held[event.member].difference_update(event.partitions)
            elif isinstance(event, Left):
                self.held.pop(event.member, None)
                self.left[event.member] = event.error
            elif isinstance(event, Polled):
                for record in event.records:
                    self.delivered.add((record.partition, record.offset))
                    self.last_delivery[record.partition] = (event.member, event.time_ns)

    def shared_by(self, members: list[str], partitions: int) -> bool:
        """Each partition is held by one of them, and as many hold any as can."""
        held = [self.held[member] for member in members if self.held.get(member)]
        everything = set().union(*held)
        return len(everything) == sum(map(len, held)) == partitions and len(held) == min(
            len(members), partitions
        )

    def consumed_since(self, time_ns: int, partitions: set[str]) -> bool:
        """Each of these partitions was last consumed since then, by the member that holds it."""
        deliveries = {each: self.last_delivery.get(each, ("", 0)) for each in partitions}
        return all(
            when > time_ns and partition in self.held.get(member, ())
            for partition, (member, when) in deliveries.items()
        )

    def drained(self) -> bool:
        return self.acknowledged <= self.delivered
