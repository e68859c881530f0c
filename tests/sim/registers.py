"""Whether what was read of a register is what somebody may have written: I24, exactly.

Every value is written once, so that it is known which write a read saw (Gibbons and Korach). A
write and the reads of its value make a cluster. Between the first end and the last beginning of
its operations the register must have had that value, if the end comes first: a forward zone. Else
the value was there at one moment between the two, at least: a backward zone. The history has an
order that fits if no two forward zones overlap, and no backward zone lies within a forward one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf


@dataclass(slots=True)
class Write:
    """A write from its beginning to its end; one without an end may take effect at any time."""

    value: int
    began: float
    ended: float = inf
    # By beginning and end.
    reads: list[tuple[float, float]] = field(default_factory=list)

    @property
    def first_end(self) -> float:
        return min([self.ended, *(end for _, end in self.reads)])

    @property
    def last_beginning(self) -> float:
        return max([self.began, *(begin for begin, _ in self.reads)])


class Register:
    """One register, what was written to it and what was read. It begins with a value."""

    def __init__(self, initial: int) -> None:
        self._writes = {initial: Write(initial, -inf, -inf)}
        # Values that were refused for certain, and why.
        self.refused: dict[int, str] = {}

    def write(self, value: int, began: float) -> Write:
        assert value not in self._writes, f"{value} is written twice"
        made = self._writes[value] = Write(value, began)
        return made

    def refuse(self, value: int, why: str) -> None:
        del self._writes[value]
        self.refused[value] = why

    def read(self, value: int, began: float, ended: float) -> str:
        """What is wrong with a read by itself, if anything."""
        if value in self.refused:
            return f"{value} was read, which was refused with {self.refused[value]}"
        write = self._writes.get(value)
        if write is None:
            return f"{value} was read, which nobody wrote"
        if ended < write.began:
            return f"{value} was read before it was written"
        write.reads.append((began, ended))
        return ""

    def problem(self) -> str:
        """Why no order of all that happened fits; empty where one does."""
        zones = [
            (min(each.first_end, each.last_beginning), max(each.first_end, each.last_beginning),
             each.first_end < each.last_beginning, each.value)
            for each in self._writes.values()
            # What had no end and was never seen may not have happened.
            if each.reads or each.ended < inf
        ]  # fmt: skip
        forward = sorted(each for each in zones if each[2])
        for before, after in pairwise(forward):
            if after[0] < before[1]:
                return f"{before[3]} was seen before and after {after[3]}"
        for low, high, is_forward, value in zones:
            if is_forward:
                continue
            for begin, end, _, other in forward:
                if begin < low and high < end:
                    return f"{value} was written or seen while {other} was there all the time"
        return ""
