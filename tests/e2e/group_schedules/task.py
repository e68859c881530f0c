"""What a member process is told to be, and how each of its members notes what happens to it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.history.events import (
    Assigned,
    CommitEnded,
    CommitStarted,
    CommittedByItself,
    HistoryWriter,
    Joined,
    Left,
    Polled,
    Position,
    Record,
    Revoked,
)

# Answers to a commit after which it is sure that nothing was committed, as librdkafka and as the
# clients in Python name them.
REFUSALS: Final = frozenset(
    {
        "CommitFailedError",
        "FENCED_INSTANCE_ID",
        "FENCED_MEMBER_EPOCH",
        "ILLEGAL_GENERATION",
        "IllegalGenerationError",
        "REBALANCE_IN_PROGRESS",
        "RebalanceInProgressError",
        "STALE_MEMBER_EPOCH",
        "UNKNOWN_MEMBER_ID",
        "UnknownMemberIdError",
    }
)
GROUP: Final = "workers"
TOPIC: Final = "work"
POLL_RECORDS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class MemberTask:
    """One process: `members` are names, `instances` their static names if they have any."""

    servers: str
    history: str
    members: tuple[str, ...]
    instances: tuple[str, ...] = ()
    client: str = "confluent-kafka"
    protocol: str = "classic"
    assignor: str = "range"
    commit: str = "sync"
    commit_when_revoked: bool = True
    session_timeout_ms: int = 1_500
    work_ms: int = 5

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, argument: str) -> MemberTask:
        values = json.loads(argument)
        for name in ("members", "instances"):
            values[name] = tuple(values[name])
        return cls(**values)


def partition_name(partition: int) -> str:
    return f"{TOPIC}-{partition}"


def partition_number(name: str) -> int:
    return int(name.rpartition("-")[2])


class Stop:
    """Set by SIGTERM, or by the death of the process that started this one."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._asked = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._asked.set())

    def is_set(self) -> bool:
        return self._asked.is_set() or os.getppid() != self._parent

    def wait(self, seconds: float) -> None:
        self._asked.wait(seconds)


class Notes:
    """The history of one member."""

    def __init__(self, writer: HistoryWriter, task: MemberTask, index: int) -> None:
        self._writer = writer
        self.member = task.members[index]
        self.instance = task.instances[index] if task.instances else None
        self._commits = 0
        classic = task.protocol == "classic"
        automatic = task.commit == "auto"
        writer.write(Joined(time.monotonic_ns(), self.member, self.instance, classic, automatic))

    def assigned(self, generation: int | None, partitions: Iterable[int]) -> None:
        names = tuple(partition_name(each) for each in partitions)
        self._writer.write(Assigned(time.monotonic_ns(), self.member, generation, names))

    def revoked(
        self, generation: int | None, partitions: Iterable[int], lost: bool = False
    ) -> None:
        names = tuple(partition_name(each) for each in partitions)
        self._writer.write(Revoked(time.monotonic_ns(), self.member, generation, names, lost))

    def polled(self, generation: int | None, records: Iterable[Record]) -> None:
        self._writer.write(Polled(time.monotonic_ns(), self.member, generation, tuple(records)))

    def commit_started(self, generation: int | None, offsets: Mapping[int, int]) -> int:
        self._commits += 1
        self._writer.write(
            CommitStarted(
                time.monotonic_ns(), self.member, generation, self._commits, _positions(offsets)
            )
        )
        return self._commits

    def commit_ended(self, generation: int | None, number: int, error: str | None) -> None:
        self._writer.write(
            CommitEnded(
                time.monotonic_ns(), self.member, generation, number, error, error in REFUSALS
            )
        )

    def committed_by_itself(self, generation: int | None, offsets: Mapping[int, int]) -> None:
        self._writer.write(
            CommittedByItself(time.monotonic_ns(), self.member, generation, _positions(offsets))
        )

    def left(self, error: str | None = None) -> None:
        self._writer.write(Left(time.monotonic_ns(), self.member, error))


def _positions(offsets: Mapping[int, int]) -> tuple[Position, ...]:
    return tuple(Position(partition_name(each), offset) for each, offset in offsets.items())


def open_history(task: MemberTask) -> HistoryWriter:
    return HistoryWriter(Path(task.history))
