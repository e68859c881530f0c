"""What the members of one group were told, and what may be told to them: I23 to I25.

The ledger knows all members, living and dead, and the order of everything. A member holds a
partition from when it is told so until it gives it back. It may be taken from it without its
knowledge, where it was not heard of for as long as a session lasts, or where another process has
come in its name: before that nobody else may be told to own it, and after it nothing that it
commits may be taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.sim.ghost import Violation
from tests.sim.registers import Register, Write
from tidelog.errors import ErrorCode
from tidelog.testing.simulation.nodes import SimulatedLoop

SESSION_S: Final = 6.0
# Brokers' clocks go up to this much faster than the world's.
FASTEST: Final = 1.03
NOTHING: Final = -1
# A commit that is refused with one of these was refused before anything of it was written.
_FENCED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


@dataclass(slots=True, eq=False)
class Holder:
    """A member in one life of its process."""

    name: str
    instance_id: str | None
    is_classic: bool
    # What it was told to own and has not given back, by when it was told.
    held: dict[int, int] = field(default_factory=dict)
    # When it last sent a request that was answered as one of a member's.
    heard_of_at: float = -1e9
    is_alive: bool = True
    # Whether another process has come in its name, or has asked to.
    is_replaced: bool = False
    may_be_replaced: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Asked:
    """A commit under way: who began it when, and since when it holds what it commits."""

    holder: Holder
    generation: int
    order: int
    since: dict[int, int]
    writes: dict[int, Write]

    @property
    def offsets(self) -> dict[int, int]:
        return {partition: write.value for partition, write in self.writes.items()}


class Taken(NamedTuple):
    """Somebody was told to own a partition: when it asked, and when it was told."""

    asked: int
    told: int
    holder: Holder


class GroupLedger:
    """One group."""

    def __init__(self, name: str, partitions: int, loop: SimulatedLoop) -> None:
        self.name = name
        self._loop = loop
        self.partitions = range(partitions)
        self.registers = {each: Register(NOTHING) for each in self.partitions}
        self.holders: list[Holder] = []
        # Whether only members of the classic protocol have been in it.
        self.is_classic = True
        self._order = 0
        self._value = 0
        # The highest generation of which a member was told what it owns, and when that was.
        self.generation = 0
        self._generation_order = 0
        # When generations began anew: an empty group went from one protocol to the other.
        self._restarted = 0
        # Of a classic group, by generation: which process owns a partition, and under which name.
        self._owners: dict[int, dict[int, Holder]] = {}
        # Who was told to own a partition, and when, in order.
        self._taken: dict[int, list[Taken]] = {each: [] for each in self.partitions}
        self.counts: Counter[str] = Counter()
        # When somebody was last known to be in the group.
        self.occupied_at = -1e9

    def order(self) -> int:
        """Of all that happens: what is later is higher."""
        self._order += 1
        return self._order

    def enter(self, name: str, instance_id: str | None, *, is_classic: bool) -> Holder:
        holder = Holder(name, instance_id, is_classic)
        self.holders.append(holder)
        self._takes_its_name(holder)
        self.is_classic = self.is_classic and is_classic
        return holder

    # -- what members own -------------------------------------------------------------------------

    def heard(self, holder: Holder, sent_at: float) -> None:
        """A request that was sent then was answered as one of a member."""
        holder.heard_of_at = max(holder.heard_of_at, sent_at)
        self.occupied_at = self._loop.now

    def counted(self, holder: Holder, generation: int, asked: int) -> None:
        """I23: a request of a generation was taken; it was sent then."""
        is_old = generation < self.generation and self._generation_order < asked
        if is_old and self.is_classic:
            raise Violation(
                "I23 fenced members",
                f"{holder} counts in generation {generation} of {self.name}, though"
                f" {self.generation} had been told before it asked",
            )

    def told(self, holder: Holder, generation: int, owned: Iterable[int], asked: int) -> None:
        """A member that asked then is told all that it owns; what is not among it, it gives back
        when it has done with it."""
        now = self.order()
        if generation > self.generation and asked > self._restarted:
            self.generation, self._generation_order = generation, now
        wanted = set(owned)
        self._takes_its_name(holder)
        for partition in sorted(wanted - holder.held.keys()):
            self._check_free(holder, partition, asked)
            holder.held[partition] = now
            self._taken[partition].append(Taken(asked, now, holder))
        if self.is_classic:
            self._check_generation_owners(holder, generation, wanted)

    def asks_to_join(self, holder: Holder) -> int:
        """A member sends its request; the order of that."""
        for other in self.holders:
            if other is not holder and _is_same(other, holder):
                other.may_be_replaced = True
        return self.order()

    def joined(self, holder: Holder, generation: int, asked: int) -> None:
        """I25: a member that asked then to join is in a generation now."""
        if generation < self.generation and self._generation_order < asked:
            raise Violation(
                "I25 generations rise",
                f"{holder} joins {self.name} in generation {generation}, {self.generation} had been"
                " told before it asked",
            )

    def restarted(self) -> None:
        """The group was empty and has another protocol: as in Kafka, its generations begin anew."""
        self.generation, self._restarted = 0, self.order()

    def released(self, holder: Holder, kept: Collection[int] = ()) -> None:
        """A member gives all back but this: before it says so, or when it hears that it has to."""
        for partition in [each for each in holder.held if each not in kept]:
            del holder.held[partition]

    def _takes_its_name(self, holder: Holder) -> None:
        """From others that have it: what they hold may be taken from them at any moment."""
        holder.may_be_replaced = False
        for other in self.holders:
            if other is not holder and _is_same(other, holder):
                other.is_replaced = True

    def _check_free(self, holder: Holder, partition: int, asked: int) -> None:
        for other in self.holders:
            if other is holder or other.is_replaced or other.may_be_replaced:
                continue
            if other.held.get(partition, asked) >= asked:
                # Which of the two was decided first is not known.
                continue
            silent_s = self._loop.now - other.heard_of_at
            if silent_s < SESSION_S / FASTEST:
                raise Violation(
                    "I23 one owner",
                    f"{holder} is told to own {self.name}/{partition}, which {other} holds, who was"
                    f" heard of {silent_s:.3f} s ago",
                )

    def _check_generation_owners(
        self, holder: Holder, generation: int, owned: Iterable[int]
    ) -> None:
        owners = self._owners.setdefault(generation, {})
        for partition in sorted(owned):
            owner = owners.setdefault(partition, holder)
            if owner is not holder and not _is_same(owner, holder):
                raise Violation(
                    "I23 one owner",
                    f"{holder} and {owner} own {self.name}/{partition} in generation {generation}",
                )

    def unstable(self) -> str:
        """L5: why the living members do not share all partitions; empty where they do."""
        owners: dict[int, Holder] = {}
        living = [each for each in self.holders if each.is_alive]
        for holder in living:
            for partition in holder.held:
                other = owners.setdefault(partition, holder)
                if other is not holder:
                    return f"{self.name}/{partition} is held by {other} and {holder}"
        missing = sorted(set(self.partitions) - owners.keys())
        if living and missing:
            return f"nobody of {[str(each) for each in living]} holds {missing} of {self.name}"
        return ""

    # -- offsets ----------------------------------------------------------------------------------

    def commits(self, holder: Holder, generation: int, partitions: Iterable[int]) -> Asked:
        """A member asks to commit new offsets of partitions."""
        order, since, writes = self.order(), {}, {}
        for partition in partitions:
            self._value += 1
            since[partition] = holder.held.get(partition, order)
            writes[partition] = self.registers[partition].write(self._value, order)
        return Asked(holder, generation, order, since, writes)

    def committed(self, asked: Asked, code: ErrorCode | None) -> bool:
        """What came of it; None where nobody answered. Whether it was taken."""
        self.counts["commit" if code is ErrorCode.NONE else "commit not taken"] += 1
        if code in _FENCED:
            for partition, write in asked.writes.items():
                self.registers[partition].refuse(write.value, code.name)
        if code is not ErrorCode.NONE:
            return False
        now = self.order()
        for partition, write in asked.writes.items():
            write.ended = now
            for taken in self._taken[partition]:
                is_later = asked.since[partition] < taken.asked
                if is_later and taken.told < asked.order and taken.holder is not asked.holder:
                    raise Violation(
                        "I23 fenced members",
                        f"{asked.holder} committed {self.name}/{partition} after {taken.holder}"
                        " had been told to own it",
                    )
        if asked.generation >= 0:
            self.counted(asked.holder, asked.generation, asked.order)
        return True

    def read(self, partition: int, offset: int, asked: int) -> None:
        """I24: somebody who asked then is told the committed offset."""
        self.counts["read"] += 1
        problem = self.registers[partition].read(offset, asked, self.order())
        if problem:
            raise Violation("I24 committed offsets", f"{self.name}/{partition}: {problem}")

    def check(self) -> None:
        """I24: what was committed and read fits a register that does one thing at a time."""
        for partition, register in self.registers.items():
            problem = register.problem()
            if problem:
                raise Violation("I24 committed offsets", f"{self.name}/{partition}: {problem}")


def _is_same(one: Holder, other: Holder) -> bool:
    """Whether they have one name, which the last of them to join has."""
    return one.instance_id is not None and one.instance_id == other.instance_id
