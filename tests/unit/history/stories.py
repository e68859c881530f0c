"""Histories told by hand, an event a line."""

from __future__ import annotations

from tests.history.events import (
    BROKER,
    Acknowledged,
    AcknowledgedSomewhere,
    Assigned,
    CommitEnded,
    CommitStarted,
    CommittedByItself,
    CommittedRead,
    EndRead,
    Event,
    Fault,
    Joined,
    Left,
    LogRead,
    Polled,
    Position,
    Record,
    Revoked,
    Sent,
)

P, Q = "p", "q"


class Story:
    """Each event is one tick later than the last. The value at an offset is 100 + offset in the
    partition P, and 200 + offset in Q, unless it is said otherwise."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._commits = 0

    def now(self) -> int:
        return len(self.events) + 1

    @staticmethod
    def value(partition: str, offset: int) -> int:
        return (100 if partition == P else 200) + offset

    def send(self, *offsets: int, to: str = P, values: tuple[int, ...] = ()) -> Story:
        for index, offset in enumerate(offsets):
            value = values[index] if values else self.value(to, offset)
            self.events.append(Sent(self.now(), "producer", to, value))
            self.events.append(Acknowledged(self.now(), "producer", to, offset, value))
        return self

    def send_unknown(self, value: int, to: str = P) -> Story:
        self.events.append(Sent(self.now(), "producer", to, value))
        return self

    def acknowledge(self, offset: int, value: int, of: str = P) -> Story:
        self.events.append(Acknowledged(self.now(), "producer", of, offset, value))
        return self

    def acknowledge_somewhere(self, value: int, of: str = P) -> Story:
        self.events.append(AcknowledgedSomewhere(self.now(), "producer", of, value))
        return self

    def join(self, member: str, instance: str | None = None, **flags: bool) -> Story:
        self.events.append(Joined(self.now(), member, instance, **flags))
        return self

    def assign(self, member: str, generation: int | None, *partitions: str) -> Story:
        self.events.append(Assigned(self.now(), member, generation, partitions or (P,)))
        return self

    def revoke(self, member: str, *partitions: str, lost: bool = False) -> Story:
        self.events.append(Revoked(self.now(), member, None, partitions or (P,), lost))
        return self

    def poll(self, member: str, generation: int | None, *offsets: int, of: str = P) -> Story:
        return self.poll_records(
            member, generation, *(Record(of, each, self.value(of, each)) for each in offsets)
        )

    def poll_records(self, member: str, generation: int | None, *records: Record) -> Story:
        self.events.append(Polled(self.now(), member, generation, records))
        return self

    def begin_commit(self, member: str, generation: int | None, offset: int, of: str = P) -> int:
        self._commits += 1
        position = (Position(of, offset),)
        self.events.append(CommitStarted(self.now(), member, generation, self._commits, position))
        return self._commits

    def end_commit(
        self,
        member: str,
        generation: int | None,
        number: int,
        error: str | None = None,
        refused: bool = False,
    ) -> Story:
        self.events.append(CommitEnded(self.now(), member, generation, number, error, refused))
        return self

    def commit(self, member: str, generation: int, offset: int, of: str = P) -> Story:
        number = self.begin_commit(member, generation, offset, of)
        return self.end_commit(member, generation, number)

    def commit_refused(self, member: str, generation: int, offset: int) -> Story:
        number = self.begin_commit(member, generation, offset)
        return self.end_commit(member, generation, number, "ILLEGAL_GENERATION", refused=True)

    def commit_unknown(self, member: str, generation: int, offset: int) -> Story:
        self.begin_commit(member, generation, offset)
        return self

    def committed_by_itself(self, member: str, offset: int) -> Story:
        self.events.append(CommittedByItself(self.now(), member, None, (Position(P, offset),)))
        return self

    def read_committed(self, offset: int | None) -> Story:
        started = self.now()
        self.events.append(Fault(started, "nothing", "nobody"))
        self.events.append(CommittedRead(self.now(), started, "reader", (Position(P, offset),)))
        return self

    def read_log(self, *offsets: int, of: str = P) -> Story:
        records = tuple(Record(of, each, self.value(of, each)) for each in offsets)
        self.events.append(LogRead(self.now(), "reader", records))
        return self

    def read_end(self, offset: int, late_ns: int = 0, of: str = P) -> Story:
        """Told of an end by somebody who began to ask so much later."""
        started = self.now() + late_ns
        self.events.append(EndRead(started + 1, started, "reader", of, offset))
        return self

    def kill_broker(self) -> Story:
        self.events.append(Fault(self.now(), "kill", BROKER))
        return self

    def kill(self, process: str) -> Story:
        self.events.append(Fault(self.now(), "kill", process))
        return self

    def leave(self, member: str, error: str | None = None) -> Story:
        self.events.append(Left(self.now(), member, error))
        return self
