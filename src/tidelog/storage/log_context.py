"""What a log is given: what it belongs to, its settings, what it needs of its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidelog.config.topic_config import TopicConfig
from tidelog.host.clock import Clock
from tidelog.host.disk import Disk
from tidelog.host.random import Random
from tidelog.storage.file_cache import FileCache
from tidelog.storage.running_clock import RunningClock

if TYPE_CHECKING:
    from tidelog.storage.segment import Segment


class NewLog(NamedTuple):
    """What a partition's log belongs to, and the settings that it goes by."""

    topic_id: UUID
    config: TopicConfig


@dataclass(slots=True)
class LogContext:
    """What a log needs of its surroundings, the same for every log of a broker."""

    disk: Disk
    clock: Clock
    files: FileCache
    random: Random
    # Runs a function off the event loop after so many seconds: unlinking what was deleted.
    run_later: Callable[[float, Callable[[], None]], None]
    # Told once that a disk has failed under a log: the partition's path and the fault.
    on_offline: Callable[[str, OSError], None]
    # Takes the name of an emptied file of a deleted segment, to be unlinked once it is written
    # down where its log starts now: until then the name is the proof that it was deleted.
    unlink_once_written: Callable[[str], None] = lambda path: None
    # Told of a segment in which damage was found, on whichever thread found it.
    on_damage: Callable[[Segment], None] = lambda segment: None
    # By which things age that must not be forgotten because of a wrong wall clock.
    running_clock: RunningClock = field(init=False)

    def __post_init__(self) -> None:
        self.running_clock = RunningClock(self.clock)
