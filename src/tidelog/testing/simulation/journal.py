"""What happened in a simulated world: the last of it in words, all of it counted by kind.

Whoever notes something names its kind. A schedule may wait for the n-th event of a kind and strike
right after it, which finds what chance alone would need a million runs for.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.testing.simulation.nodes import SimulatedLoop

_KEPT: Final = 400
# Happens all the time: of several in a row only the last is kept in words.
QUIET: Final = "committed"


class Entry(NamedTuple):
    """Something that happened, where and when."""

    time: float
    step: int
    kind: str
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.time:10.6f} #{self.step:<6} {self.who:<6} {self.kind}: {self.what}"


class Trigger(NamedTuple):
    """Something to do when an event of a kind has happened so many times more."""

    kind: str
    after: int
    strike: Callable[[Entry], None]


class Journal:
    """The events of one run."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._start = loop.now
        self.counts: Counter[str] = Counter()
        self.last: deque[Entry] = deque(maxlen=_KEPT)
        self._triggers: list[Trigger] = []

    def note(self, kind: str, who: str, what: str = "") -> None:
        loop = self._loop
        self.counts[kind] += 1
        entry = Entry(loop.now - self._start, loop.steps, kind, who, what)
        if self.last and self.last[-1].kind == kind == QUIET:
            self.last.pop()
        self.last.append(entry)
        loop.mark(f"{kind} {who} {what}")
        for trigger in [each for each in self._triggers if each.kind == kind]:
            self._triggers.remove(trigger)
            if trigger.after > 1:
                self._triggers.append(trigger._replace(after=trigger.after - 1))
            else:
                trigger.strike(entry)

    def when(self, kind: str, after: int, strike: Callable[[Entry], None]) -> None:
        """Strike right after the `after`-th event of a kind from now on."""
        self._triggers.append(Trigger(kind, after, strike))

    def forget_triggers(self) -> None:
        self._triggers.clear()

    def tell(self, count: int) -> str:
        """The last events, in lines."""
        return "\n".join(str(entry) for entry in list(self.last)[-count:])
