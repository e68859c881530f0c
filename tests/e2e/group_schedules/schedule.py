"""A seed gives a schedule: who is in the group, and what happens to it in which order.

Steps come one after the other; unless a step is hasty the runner waits, before the next, until the
group is whole again and every partition that changed hands was consumed and committed by its new
owner. In the end an owner is killed, or all were restarted. So every schedule has takeovers, and
its length depends on the group and not on a clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

MEMBERS_MAX = 20
PARTITIONS_MAX = 60
PROCESS_MEMBERS_MAX = 4


class What(StrEnum):
    KILL = "kill"  # SIGKILL
    KILL_OWNER = "kill the owner"  # of whatever process owns most partitions
    STOP = "stop"  # SIGSTOP, until the others have taken over
    RESUME = "resume"  # SIGCONT
    ADD = "add"  # a process that was not there before
    RETURN = "return"  # a process in the place of one that is gone
    REMOVE = "remove"  # SIGTERM, and not started again
    RESTART = "restart"  # SIGTERM, and started again
    REPLACE = "replace"  # another process with the static names of one that is stopped
    KILL_BROKER = "kill broker"  # SIGKILL, and started again


@dataclass(frozen=True, slots=True)
class Step:
    what: What
    slot: int = -1
    hasty: bool = False

    def __str__(self) -> str:
        target = f" {self.slot}" if self.slot >= 0 else ""
        return f"{self.what}{target}{'!' if self.hasty else ''}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a process; those that are added later come behind the first ones."""

    members: int
    client: str


@dataclass(frozen=True, slots=True)
class Schedule:
    seed: int
    partitions: int
    slots: tuple[Slot, ...]
    started: int  # how many slots have a process from the beginning
    static: bool
    protocol: str
    assignor: str
    commit: str
    commit_when_revoked: bool
    session_timeout_ms: int
    work_ms: int  # per batch that a member polls
    records_per_second: int
    steps: tuple[Step, ...]

    @property
    def members(self) -> int:
        return sum(slot.members for slot in self.slots)

    @property
    def faults(self) -> str:
        return ", ".join(map(str, self.steps))


@dataclass(slots=True)
class _Plan:
    """The steps so far, and what the group looks like behind them."""

    chance: random.Random
    client: str
    slots: list[Slot] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def new_slot(self, members_max: int = PROCESS_MEMBERS_MAX) -> bool:
        room = min(members_max, MEMBERS_MAX - sum(slot.members for slot in self.slots))
        if room < 1:
            return False
        client = self.client
        if client == "mixed":
            client = self.chance.choice(["confluent-kafka", "aiokafka", "kafka-python"])
        self.slots.append(Slot(self.chance.randint(1, room), client))
        self.running.append(len(self.slots) - 1)
        return True

    def step(self, what: What, slot: int = -1, hasty: bool = False) -> None:
        self.steps.append(Step(what, slot, hasty))

    def come(self, hasty: bool = False) -> None:
        """One more process: in the place of one that is gone, or a new one."""
        if self.gone and self.chance.random() < 0.5:
            self._return(hasty)
        elif self.new_slot():
            self.step(What.ADD, self.running[-1], hasty)
        elif self.gone:
            self._return(hasty)

    def _return(self, hasty: bool) -> None:
        self.running.append(self.gone.pop())
        self.step(What.RETURN, self.running[-1], hasty)

    def victim(self) -> int:
        """A running process that is not the only one."""
        if len(self.running) < 2:
            self.come()
        assert len(self.running) >= 2
        return self.chance.choice(self.running)

    def go(self, what: What, hasty: bool = False) -> None:
        slot = self.victim()
        self.running.remove(slot)
        self.gone.append(slot)
        self.step(what, slot, hasty)

    # ---- themes -----------------------------------------------------------------------------

    def kill(self) -> None:
        self.go(What.KILL)
        if self.chance.random() < 0.6:
            self.come()

    def stop(self) -> None:
        """Past the session time-out; in the meantime the broker may be killed."""
        slot = self.victim()
        self.step(What.STOP, slot)
        if self.chance.random() < 0.3:
            self.step(What.KILL_BROKER)
        self.step(What.RESUME, slot)

    def kill_broker(self) -> None:
        if self.chance.random() < 0.5:
            self.go(What.KILL, hasty=True)
            self.step(What.KILL_BROKER)
        else:
            self.step(What.KILL_BROKER, hasty=True)
            self.go(What.KILL)

    def change(self) -> None:
        self.come()
        self.go(What.REMOVE)

    def roll(self) -> None:
        for slot in sorted(self.running):
            self.step(What.RESTART, slot)

    def replace(self) -> None:
        """The old incarnation wakes up when the new one is at work."""
        slot = self.chance.choice(self.running)
        self.step(What.STOP, slot, hasty=True)
        self.step(What.REPLACE, slot)
        self.step(What.RESUME, slot)

    def storm(self) -> None:
        """Everything at once: rebalances that overtake one another."""
        self.come(hasty=True)
        self.go(What.KILL, hasty=True)
        self.step(What.KILL_BROKER, hasty=True)
        self.come(hasty=True)
        self.go(What.KILL)


# What a schedule is about first of all, by its seed; further steps are drawn.
THEMES = (
    "kill", "stop", "kill_broker", "roll", "change", "storm", "replace", "stop", "kill", "storm",
)  # fmt: skip
FURTHER = ("kill", "stop", "kill_broker", "change")
STATIC_THEMES = ("roll", "replace")
CLIENTS = ("confluent-kafka",) * 5 + ("mixed", "aiokafka", "kafka-python")
COMMITS = ("sync", "async", "record", "auto")
CONSUMER_SEEDS_FROM = 60  # from here on `group.protocol=consumer`
STEPS_MIN = 3
MEMBERS_AT_START_MAX = 16


def _session_timeout_ms(static: bool, steps: list[Step]) -> int:
    """Longer than a restart takes, of a static member or of the broker under one.

    A static member whose client gives its session up while the broker is away joins anew, and so
    replaces itself: commits that it still had under way are then fenced, which is fatal to it.
    """
    if not static:
        return 1_500
    return 8_000 if any(step.what is What.KILL_BROKER for step in steps) else 3_000


def make_schedule(seed: int) -> Schedule:
    chance = random.Random(seed)
    theme = THEMES[seed % len(THEMES)]
    classic = seed < CONSUMER_SEEDS_FROM
    if theme == "replace" and not classic:
        theme = "stop"  # this protocol refuses a static name that is still in use
    static = theme in STATIC_THEMES or (classic and chance.random() < 0.15)
    client = "confluent-kafka"
    if classic and not static:
        client = CLIENTS[seed // 3 % len(CLIENTS)]
    confluent = client == "confluent-kafka"
    plan = _Plan(chance, client)
    members = chance.choice([1, 2, 3, 4, 6] + ([8, 12, MEMBERS_AT_START_MAX] if confluent else []))
    while (left := members - sum(slot.members for slot in plan.slots)) > 0:
        plan.new_slot(min(left, PROCESS_MEMBERS_MAX))
    started = len(plan.slots)
    getattr(plan, theme)()
    while len(plan.steps) < STEPS_MIN:
        getattr(plan, chance.choice(FURTHER))()
    if theme not in STATIC_THEMES:
        # Members that were idle or had just come owned nothing that could be taken over.
        plan.victim()
        plan.step(What.KILL_OWNER)
    if not confluent:
        assignor = "range"
    else:
        assignor = chance.choice(["range", "cooperative-sticky" if classic else "uniform"])
    commit = chance.choice(COMMITS) if confluent else "sync"
    each = commit == "record"  # slow, for every record waits for the disk
    partitions = chance.choice([1, 2, 5, 12] if each else [1, 4, 10, 20, 36, PARTITIONS_MAX])
    # Who is to wake up with records in hand must have some most of the time.
    work_ms = [50, 150] if theme in ("stop", "replace") else [5, 50, 150]
    return Schedule(
        seed=seed,
        partitions=partitions,
        slots=tuple(plan.slots),
        started=started,
        static=static,
        protocol="classic" if classic else "consumer",
        assignor=assignor,
        commit=commit,
        commit_when_revoked=chance.random() < 0.5,
        session_timeout_ms=_session_timeout_ms(static, plan.steps),
        work_ms=1 if each else chance.choice(work_ms),
        records_per_second=50 if each else max(200, 8 * partitions),
        steps=tuple(plan.steps),
    )
