"""Members of groups, each a consumer that some driver holds open.

A driver carries out one request at a time, so members advance only while they are polled: those of
one group are polled in turn, in short steps, until what is waited for has come (`until`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.compat.driver import Driver, record_from_json
from tests.compat.wire import Record

Place = tuple[str, int]
STEP_MS = 40
QUIET_ROUNDS = 5
# For a lone member that rejoins by itself: kafka-python loses an assignment that comes between two
# polls then. Records end the poll early.
LONG_STEP_MS = 3_000
SETTLE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class MemberSettings:
    """What a member is configured with; None is the plain choice of the driver.

    The times are short so that rebalances are, except for the session: nothing here may depend on
    how fast the machine is.
    """

    assignor: str | None = None
    instance_id: str | None = None
    protocol: str = "classic"
    reset: str = "earliest"
    auto_commit: bool = False
    session_timeout_ms: int = 20_000
    heartbeat_interval_ms: int = 100
    metadata_max_age_ms: int = 60_000
    # Of the producer that will commit its offsets, where a client makes the two as one.
    transactional_id: str | None = None


@dataclass(frozen=True)
class Committed:
    offset: int
    metadata: str


class Member:
    """One member; what it has read, and what it owned when it was last polled."""

    def __init__(self, driver: Driver, name: str, group: str) -> None:
        self.name = name
        self.group = group
        self.records: list[Record] = []
        self.assignment: set[Place] = set()
        # Assignments that it was given, and the partitions that were taken from it, in order.
        self.rebalances = 0
        self.revoked: list[Place] = []
        self.is_open = False
        self._driver = driver

    def join(
        self, topics: Sequence[str] = (), pattern: str | None = None, **settings: object
    ) -> Member:
        """Subscribe; the group is joined while the member is polled."""
        asked = asdict(MemberSettings(**settings))  # type: ignore[arg-type]
        subscription = {"topics": list(topics), "pattern": pattern}
        self.is_open = True
        self._driver.call(
            "member_join", member=self.name, group=self.group, **subscription, settings=asked
        )
        return self

    def poll(self, count: int = 1, timeout_ms: int = STEP_MS) -> list[Record]:
        """What has come when `count` records or more have, or when the time is over."""
        shown = self._driver.call(
            "member_poll", member=self.name, count=count, timeout_ms=timeout_ms
        )
        self.assignment = {(topic, partition) for topic, partition in shown["assignment"]}
        self.rebalances = shown["rebalances"]
        self.revoked = [(topic, partition) for topic, partition in shown["revoked"]]
        records = [record_from_json(record) for record in shown["records"]]
        self.records += records
        return records

    def commit(
        self, offsets: Mapping[Place, int], metadata: str = "", *, asynchronous: bool = False
    ) -> None:
        places = [[topic, partition, offset] for (topic, partition), offset in offsets.items()]
        self._driver.call(
            "member_commit",
            member=self.name,
            offsets=places,
            metadata=metadata,
            asynchronous=asynchronous,
        )

    def commit_read(self) -> None:
        """Commit all that was read."""
        self.commit({(r.topic, r.partition or 0): r.offset + 1 for r in self.records})

    def committed(self, place: Place) -> Committed | None:
        shown = self._on("member_committed", place)
        return None if shown is None else Committed(shown["offset"], shown["metadata"])

    def seek(self, place: Place, offset: int) -> None:
        self._on("member_seek", place, offset=offset)

    def pause(self, place: Place) -> None:
        self._on("member_pause", place)

    def resume(self, place: Place) -> None:
        self._on("member_resume", place)

    def _on(self, operation: str, place: Place, **arguments: object) -> dict[str, object] | None:
        topic, partition = place
        return self._driver.call(
            operation, member=self.name, topic=topic, partition=partition, **arguments
        )

    def close(self) -> None:
        """Leave as the client does when it is closed: a static member keeps its place."""
        if self.is_open:
            self.is_open = False
            self._driver.call("member_close", member=self.name)

    def partitions(self, topic: str) -> set[int]:
        return {partition for owned, partition in self.assignment if owned == topic}

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


def until(
    members: Sequence[Member],
    holds: Callable[[], bool],
    step_ms: int = STEP_MS,
) -> None:
    """Poll the members in turn until `holds`; a poll is over when records come or after a step."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while not holds():
        for member in members:
            member.poll(timeout_ms=step_ms)
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {SETTLE_TIMEOUT_S:.0f} s: {_told(members)}")


def _told(members: Sequence[Member]) -> str:
    return "; ".join(
        f"{member.name} owns {sorted(member.assignment)} after {member.rebalances} rebalances"
        f" and has read {len(member.records)} records"
        for member in members
    )


def until_shared(members: Sequence[Member], places: set[Place]) -> None:
    """Poll until all are in the group and every one of `places` has exactly one owner."""
    until(
        members,
        lambda: all(m.rebalances for m in members) and owners_are_unique(members, places),
    )


def until_quiet(members: Sequence[Member]) -> None:
    """Poll until no rebalance came for a few heartbeats: a client may ask for one too many."""
    seen: list[list[int]] = []

    def nothing_new() -> bool:
        seen.append([member.rebalances for member in members])
        return len(seen) > QUIET_ROUNDS and seen[-QUIET_ROUNDS - 1] == seen[-1]

    until(members, nothing_new)


def owners_are_unique(members: Sequence[Member], places: set[Place]) -> bool:
    owned = [place for member in members for place in member.assignment]
    return len(owned) == len(places) and set(owned) == places
