"""What clients saw, as a list of events: the input of the checker.

Every process writes its own file, one JSON line per event, each line with one `write`: a SIGKILL
loses at most what had not happened yet for the outside. So that a history never claims too little,
a writer notes what it is *about* to do (`Sent`, `CommitStarted`) before it does it, and what it was
*told* (`Polled`, `Acknowledged`, `CommitEnded`) before it acts on it.

Times are `time.monotonic_ns()`, which on Linux all processes of a machine share. A partition is a
text such as `orders-3`. A generation is the group's (classic protocol) or the member's epoch
(`group.protocol=consumer`); it is None where the client could not tell.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

BROKER: Final = "broker"


class Record(NamedTuple):
    partition: str
    offset: int
    value: int


class Position(NamedTuple):
    """The next offset to consume; None where none is committed."""

    partition: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer is about to send a value."""

    time_ns: int
    producer: str
    partition: str
    value: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A send succeeded. One that has no such event has an unknown outcome."""

    time_ns: int
    producer: str
    partition: str
    offset: int
    value: int


@dataclass(frozen=True, slots=True)
class AcknowledgedSomewhere:
    """A send succeeded, and nobody knows at which offset.

    So librdkafka tells of a batch whose answer it did not hear when a later one is answered.
    """

    time_ns: int
    producer: str
    partition: str
    value: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A member begins: `instance` is its static name, `commits_by_itself` is auto-commit."""

    time_ns: int
    member: str
    instance: str | None = None
    classic: bool = True
    commits_by_itself: bool = False


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that a member was given in addition to those it holds."""

    time_ns: int
    member: str
    generation: int | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """Partitions that a member gave up or, with `lost`, found to be no longer its own."""

    time_ns: int
    member: str
    generation: int | None
    partitions: tuple[str, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll gave a member."""

    time_ns: int
    member: str
    generation: int | None
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class CommitStarted:
    time_ns: int
    member: str
    generation: int | None
    number: int
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """`error` is None for success; only with `refused` is it sure that nothing was committed."""

    time_ns: int
    member: str
    generation: int | None
    number: int
    error: str | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class CommittedByItself:
    """The client of a member with auto-commit tells of a commit that succeeded."""

    time_ns: int
    member: str
    generation: int | None
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """The committed positions, as somebody was told who began to ask at `started_ns`."""

    time_ns: int
    started_ns: int
    reader: str
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class LogRead:
    """Records read from the log itself, not as a member of the group."""

    time_ns: int
    reader: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class EndRead:
    """Where a partition ends, as somebody was told who began to ask at `started_ns`."""

    time_ns: int
    started_ns: int
    reader: str
    partition: str
    offset: int


@dataclass(frozen=True, slots=True)
class Left:
    """A member ended in good order, or with the fatal error that it names."""

    time_ns: int
    member: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """What the schedule did, and to whom: `BROKER`, `broker 2` of several, or a process."""

    time_ns: int
    what: str
    target: str


Event: TypeAlias = (
    Sent | Acknowledged | AcknowledgedSomewhere | Joined | Assigned | Revoked | Polled
    | CommitStarted | CommitEnded | CommittedByItself | CommittedRead | LogRead | EndRead | Left
    | Fault
)  # fmt: skip

_KINDS: Final[dict[str, type[Event]]] = {kind.__name__: kind for kind in Event.__args__}
_NESTED: Final = {"records": Record, "positions": Position}


def to_line(event: Event) -> str:
    values = [getattr(event, field.name) for field in fields(event)]
    return json.dumps([type(event).__name__, *values], separators=(",", ":")) + "\n"


def from_line(line: str) -> Event:
    name, *values = json.loads(line)
    kind = _KINDS[name]
    for index, field in enumerate(fields(kind)):
        if field.name in _NESTED:
            values[index] = tuple(_NESTED[field.name](*each) for each in values[index])
        elif field.name == "partitions":
            values[index] = tuple(values[index])
    return kind(*values)


class HistoryWriter:
    """Appends events to a file, from any thread; the kernel has each when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        line = to_line(event).encode()
        with self._lock:
            os.write(self._descriptor, line)

    def close(self) -> None:
        os.close(self._descriptor)


class HistoryTail:
    """Reads what the writers of a directory have added since the last look."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._positions: dict[Path, int] = {}

    def new_events(self) -> Iterator[Event]:
        for path in sorted(self._directory.glob("*.jsonl")):
            position = self._positions.get(path, 0)
            with path.open("rb") as file:
                file.seek(position)
                data = file.read()
            # A last line without its end is still being written, or was when its writer died.
            whole = data[: data.rfind(b"\n") + 1]
            self._positions[path] = position + len(whole)
            for line in whole.splitlines():
                yield from_line(line.decode())


def in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.time_ns)


def read_history(directory: Path) -> list[Event]:
    """All events of a directory's files, in the order of their times."""
    return in_order(HistoryTail(directory).new_events())
