"""A clock that tests move: `VirtualClock.advance(days=7)`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from tidelog.errors import TidelogError
from tidelog.host.clock import SystemClock

# Clients date their records by the real time, which is not advanced.
CLOCK_DEFAULTS: Final = {"log.message.timestamp.type": "LogAppendTime"}


class BrokersClock(SystemClock):
    """The clocks of the machine, the wall clock set ahead: what brokers on one loop look at."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


# Lets so many milliseconds pass for some brokers, and returns when they have done what was due.
LetPass = Callable[[int], None]


class VirtualClock:
    """Runs with the real time, ahead of it by what it was advanced.

    >>> clock = VirtualClock()
    >>> with Broker(clock=clock) as broker:
    ...     clock.advance(days=7)

    The wall clock of the brokers is advanced, and with it the age of what they keep. Deadlines are
    not: connections, sessions and members of groups live by the real time. One clock may be given
    to several brokers.
    """

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._followers: dict[BrokersClock, LetPass] = {}

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let time pass; return when the brokers have done what became due."""
        passed = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        ms = passed // timedelta(milliseconds=1)
        if ms < 0:
            raise TidelogError("the clock can be advanced, but not set back")
        self._ahead_ms += ms
        for let_pass in tuple(self._followers.values()):
            let_pass(ms)

    def time(self) -> float:
        """The time that brokers see, in seconds since the Unix epoch."""
        return (SystemClock().wall_ms() + self._ahead_ms) / 1000

    def follow(self, let_pass: LetPass) -> BrokersClock:
        """A clock for brokers that are about to start, until `unfollow`."""
        clock = BrokersClock(self._ahead_ms)
        self._followers[clock] = let_pass
        return clock

    def unfollow(self, clock: BrokersClock) -> None:
        self._followers.pop(clock, None)
