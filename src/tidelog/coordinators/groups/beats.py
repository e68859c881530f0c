"""A heartbeat that repeats the one before it: the member lives, and nothing else is new."""

from __future__ import annotations

from typing import NamedTuple


class Beat(NamedTuple):
    """Who lives, in which generation of which group; in a consumer group that is an epoch."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class ConsumerBeat(NamedTuple):
    """The same in a consumer group, with what else its answer rests on."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    client_id: str
    client_host: str
    # How often to beat, as the member was told.
    interval_ms: int
