"""One seed: a world, its clients, a schedule of faults, the healing, the verdict."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Final

from tests.history.checker import check
from tests.sim import liveness
from tests.sim.footprint import footprints, with_transactions
from tests.sim.ghost import Violation
from tests.sim.groups import SETTINGS as GROUP_SETTINGS
from tests.sim.groups import Groups
from tests.sim.observer import Observer
from tests.sim.peek import parts_of
from tests.sim.scenarios import SCENARIOS
from tests.sim.stage import Stage
from tests.sim.transaction_scripts import TRANSACTION_SCENARIOS
from tests.sim.transactions import Transactions
from tests.sim.workload import Workload
from tidelog.errors import TidelogError
from tidelog.security.scram import Mechanism
from tidelog.storage import reserve
from tidelog.testing.disk import PowerCut
from tidelog.testing.simulation.machines import World
from tidelog.testing.simulation.nodes import SimulatedLoop, current_node
from tidelog.testing.simulation.schedule import Schedule

_LIMIT_S: Final = 600.0
_STEPS_MAX: Final = 400_000
_EVENTS_TOLD: Final = 60
_SEEDS_PER_COLLECTION: Final = 8
# A script waits for followers to fall behind, not for long; and says itself what is synced.
SCRIPT_SETTINGS: Final = {
    "replica.lag.time.max.ms": "1000",
    "log.flush.scheduler.interval.ms": "60000",
}


@dataclass(slots=True, frozen=True)
class Plan:
    """What a run is made of; each seed draws what is left open."""

    brokers: int = 1
    profile: str = ""
    fault_seconds: float = 12.0
    # Replicas are moved and leaders elected while things go wrong.
    moves: bool = False
    # Producers write in transactions.
    transactions: bool = False
    # Groups have members that come and go.
    groups: bool = False
    # Played instead of a schedule: the name of a scenario.
    script: str = ""
    # Called when the world is there and nobody runs in it: a mutant, a fault at a chosen place.
    prepare: Callable[[World, Observer], None] | None = None


@dataclass(slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    trace: str = ""
    steps: int = 0
    profile: str = ""
    invariant: str = ""
    what: str = ""
    events: str = ""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        return bool(self.invariant)

    def __str__(self) -> str:
        if not self.failed:
            return f"seed {self.seed}: {self.steps} steps, {self.profile}, trace {self.trace}"
        return (
            f"seed {self.seed} ({self.profile}) broke {self.invariant} at step {self.steps}\n"
            f"  {self.what}\n  the last events:\n{self.events}"
        )


def run_seed(seed: int, plan: Plan | None = None) -> Outcome:
    """Run a seed; the same seed and plan give the same trace."""
    plan = plan or Plan()
    loop = SimulatedLoop(seed, _LIMIT_S)
    loop.steps_max = _STEPS_MAX
    asyncio.set_event_loop(loop)
    outcome = Outcome(seed)
    world = World(loop)
    logs = _Logs(world)
    # The collector runs when it pleases, and what it collects may do things.
    was_collecting = gc.isenabled()
    gc.disable()
    undo = _make_cheap()
    logging.getLogger("tidelog").addHandler(logs)
    logging.getLogger("asyncio").addHandler(logs)
    try:
        live = _play if plan.script else _live
        loop.run_until_complete(live(world, seed, plan, outcome))
        if logs.fault:
            raise Violation("E programming fault", logs.fault)
    except Violation as violation:
        outcome.invariant, outcome.what = violation.invariant, violation.what
    except Exception as error:
        outcome.invariant, outcome.what = f"E {type(error).__name__}", str(error)
    finally:
        logging.getLogger("tidelog").removeHandler(logs)
        logging.getLogger("asyncio").removeHandler(logs)
        outcome.trace, outcome.steps = loop.trace, loop.steps
        outcome.counts.update(world.journal.counts)
        outcome.events = world.journal.tell(_EVENTS_TOLD)
        loop.close()
        asyncio.set_event_loop(None)
        undo()
        if was_collecting:
            if seed % _SEEDS_PER_COLLECTION == 0:
                _clean_up()
            gc.enable()
    return outcome


@cache
def _salted(mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash, password, salt, iterations)


def _make_cheap() -> Callable[[], None]:
    """Leave out what costs time and tests nothing here: stretched keys, megabytes of reserve."""
    kept = Mechanism.salt_password, reserve.RESERVE_BYTES
    Mechanism.salt_password = _salted  # type: ignore[method-assign]
    reserve.RESERVE_BYTES = 0

    def undo() -> None:
        Mechanism.salt_password, reserve.RESERVE_BYTES = kept  # type: ignore[method-assign]

    return undo


def _clean_up() -> None:
    """Collect what the dead have left; whatever their `finally` blocks do, nobody is there."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook


async def _live(world: World, seed: int, plan: Plan, outcome: Outcome) -> None:
    chance = random.Random(f"{seed}/world")
    brokers = plan.brokers
    replication = min(3, brokers)
    min_isr = 2 if replication >= 3 else 1
    for broker_id in range(brokers):
        settings = _settings(chance, replication)
        machine = world.machine(broker_id, settings | (GROUP_SETTINGS if plan.groups else {}))
        machine.clock_rate = chance.uniform(0.98, 1.02)
        machine.clock_offset = chance.uniform(0, 1_000)
    observer = Observer(world, min_isr)
    if plan.prepare is not None:
        plan.prepare(world, observer)
    schedule = Schedule(world, seed, observer.may_lose, plan.profile)
    outcome.profile = schedule.profile
    for machine in world.machines.values():
        machine.boot_up()
    configs = {"min.insync.replicas": str(min_isr)}
    if replication == 1 or chance.random() < 0.2:
        configs["durability"] = "fsync"
    if chance.random() < 0.3:
        configs["segment.ms"] = "2000"
    workload = Workload(world, observer, seed, configs)
    await workload.prepare()
    before = footprints(world)
    workload.start()
    if plan.moves:
        workload.start_moves(seed)
    transactions = Transactions(world, seed, observer) if plan.transactions else None
    if transactions is not None:
        before = with_transactions(before)
        await transactions.start(configs)
    groups = Groups(world, observer, seed) if plan.groups else None
    if groups is not None:
        await groups.start(configs)
    await schedule.run(plan.fault_seconds * chance.choice((0.4, 0.7, 1.0)))
    schedule.heal()
    _restart_broken(world)
    workload.calm_down()
    if groups is not None:
        groups.calm_down()
    world.journal.note("healed", "world")
    await liveness.settle(world, observer)
    if transactions is not None:
        await transactions.finish()
        outcome.counts.update({f"transaction {k}": n for k, n in transactions.counts.items()})
    if groups is not None:
        await groups.finish()
        outcome.counts.update({f"group {k}": n for k, n in groups.counts.items()})
    await workload.stop(60.0)
    await workload.drain(60.0)
    await liveness.check_all(world, observer, before)
    observer.check()
    report = check(workload.history)
    for found in report.violations:
        raise Violation(str(found.rule), str(found))
    for name, count in asdict(workload.counts).items():
        outcome.counts[f"client {name}"] += count
    if workload.moves is not None:
        outcome.counts.update({f"operator {k}": n for k, n in workload.moves.counts.items()})


async def _play(world: World, seed: int, plan: Plan, outcome: Outcome) -> None:
    """A script instead of a schedule, with three brokers and one partition."""
    chance = random.Random(f"{seed}/world")
    for broker_id in range(3):
        machine = world.machine(broker_id, {**_settings(chance, 3), **SCRIPT_SETTINGS})
        machine.clock_rate = chance.uniform(0.99, 1.01)
    observer = Observer(world, min_isr=2)
    # What it does by itself is to start what has died; the script strikes.
    schedule = Schedule(world, seed, observer.may_lose, "mixed")
    outcome.profile = plan.script
    if plan.prepare is not None:
        plan.prepare(world, observer)
    stage = Stage(world, observer)
    await stage.begin()
    before = footprints(world)
    if plan.script in TRANSACTION_SCENARIOS:
        before = with_transactions(before)
    await (SCENARIOS | TRANSACTION_SCENARIOS)[plan.script](stage)
    observer.check()
    schedule.heal()
    world.journal.note("healed", "world")
    await liveness.settle(world, observer)
    await stage.finish()
    await liveness.check_all(world, observer, before)
    observer.check()


def _restart_broken(world: World) -> None:
    """As an operator does who has replaced a disk: what is offline stays so until a restart."""
    for machine in world.machines.values():
        parts = parts_of(machine.broker)
        if parts is not None and machine.is_steady and parts.replicas.offline:
            world.journal.note("restarted by hand", machine.name)
            machine.kill()


def _settings(chance: random.Random, replication: int) -> dict[str, str]:
    return {
        "default.replication.factor": str(replication),
        "offsets.topic.replication.factor": str(replication),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "replica.lag.time.max.ms": chance.choice(("1000", "4000")),
        "log.flush.scheduler.interval.ms": chance.choice(("200", "1000")),
    }


class _Logs(logging.Handler):
    """Puts what brokers log into the journal, with the machine that said it."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        # The first error that nobody foresaw.
        self.fault = ""

    def emit(self, record: logging.LogRecord) -> None:
        node = current_node()
        name = "world" if node is None else node.name
        text = record.getMessage()
        if text.startswith("configuration:"):
            return
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text += f" [{error!r}]"
            if not self.fault and not isinstance(error, TidelogError | OSError | PowerCut):
                self.fault = f"{name}: {text}"
        self._world.journal.note(f"log {record.levelname.lower()}", name, text)
