"""A shard in its place: the partition that keeps it, and what it has written there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Generic

from tidelog.coordinators.gathering import Answer, Gathered
from tidelog.coordinators.kind import S
from tidelog.errors import KafkaError
from tidelog.replication.partition import Partition


@dataclass(slots=True, eq=False)
class Slot(Generic[S]):
    """A partition of the kind's topic that this broker leads."""

    partition: Partition
    leader_epoch: int
    shard: S
    last_offset: int = -1
    last_core_offset: int = -1
    error: KafkaError | None = None
    loading: asyncio.Task[None] | None = None
    # Replies that came while something was handled: they rest on what it appends too.
    answered: list[Answer] = field(default_factory=list)
    # Changes that are to be appended together.
    gathered: Gathered[S] = field(default_factory=Gathered)


@dataclass(slots=True)
class RuntimeStats:
    """Counters since the start."""

    timeouts: int = 0
    loads: int = 0
    load_seconds: float = 0.0
    load_seconds_max: float = 0.0
