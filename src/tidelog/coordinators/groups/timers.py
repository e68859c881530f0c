"""What groups have deadlines for. What happens then is in the table of `shard`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from tidelog.coordinators.timers import TimerQueue

# When a change that no request asked for could not be written.
RETRY_MS: Final = 1_000


class TimerKind(StrEnum):
    """Why a shard wants to be woken."""

    CLASSIC_JOIN = "classic-join"
    CLASSIC_SYNC = "classic-sync"
    CLASSIC_SESSION = "classic-session"
    CONSUMER_SESSION = "consumer-session"
    CONSUMER_REVOCATION = "consumer-revocation"
    # Of members of the classic protocol in a consumer group.
    CONSUMER_REJOIN = "consumer-rejoin"
    CONSUMER_SYNC = "consumer-sync"
    CONSUMER_PATTERNS = "consumer-patterns"
    OFFSETS_EXPIRY = "offsets-expiry"


class Timer(NamedTuple):
    """One deadline of a shard, of a group or of one of its members."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


Timers = TimerQueue[Timer]
