"""The product with one rule taken out, to show that the simulator notices.

Each mutant patches functions of the product for the length of a run, in the tests and nowhere else.
Where a second defence hides the loss of the first, a mutant takes out both and is called a pair.

    python -m tests.sim.mutants [--seeds 200] [--only NAME]

searches for each mutant the first seed that fails and prints the table. `mutants.toml` keeps one
failing seed for each; the tests run those again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.sim.run import Outcome, Plan, run_seed
from tidelog.cluster import elections, failover, planner
from tidelog.cluster.image_feed import ImageFeed
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication import following
from tidelog.replication.following import Following
from tidelog.replication.in_sync import UNKNOWN, InSyncReplicas
from tidelog.replication.leading import Leading
from tidelog.replication.partition import Partition

SAVED: Final = Path(__file__).parent / "mutants.toml"
Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule, and the product without it."""

    name: str
    rule: str
    patches: Callable[[], list[Patch]]
    profile: str = ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = []
        for owner, name, value in self.patches():
            before.append((owner, name, owner.__dict__[name]))
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, name, value in reversed(before):
                setattr(owner, name, value)

    @property
    def plan(self) -> Plan:
        return Plan(brokers=3, profile=self.profile)

    def run(self, seed: int) -> Outcome:
        with self.applied():
            return run_seed(seed, self.plan)


# -- the twelve rules of RELIABILITY 4.1 ---------------------------------------------------------


def truncate_to_the_watermark() -> list[Patch]:
    begin = Following.begin
    cuts: list[asyncio.Future[None]] = []

    def cut_first(self: Following, leader_id: int, leader_epoch: int) -> None:
        begin(self, leader_id, leader_epoch)
        if self._watermark.offset < self.log.log_end_offset and not self.is_cutting:
            cuts.append(asyncio.ensure_future(self._cut(self._watermark.offset)))

    return [(Following, "begin", cut_first)]


def no_minimum_for_the_watermark() -> list[Patch]:
    advance = InSyncReplicas.advance

    def whatever(self: InSyncReplicas, own_end: int, min_isr: int, look: Any) -> bool:
        # Eligible leaders say that the controller's minimum is not reached either.
        state = self._state
        self._state = state._replace(elr=())
        try:
            return advance(self, own_end, 1, look)
        finally:
            self._state = state

    return [(InSyncReplicas, "advance", whatever)]


def commands_of_earlier_lives() -> list[Patch]:
    def anyone(image: Any, broker_id: int, broker_epoch: int) -> None:
        """KIP-380: whoever it was."""

    return [
        (failover, "check_broker_epoch", anyone),
        (failover, "_ineligible", lambda image, broker_id, broker_epoch: None),
        *fetches_of_earlier_lives(),
    ]


def fetches_of_earlier_lives() -> list[Patch]:
    def may_join(self: InSyncReplicas, replica: int, follower: Any, look: Any) -> bool:
        end = follower.end
        return bool(end >= self._high_watermark and end >= self._epoch_start and end != UNKNOWN)

    def fetched(
        self: InSyncReplicas, follower_id: int, epoch: int, offset: int, end: int, now: float
    ) -> bool:
        follower = self.followers.get(follower_id)
        if follower is None:
            return False
        follower.broker_epoch = epoch
        follower.fetched(epoch, max(offset, follower.end), end, now)
        return True

    return [
        (InSyncReplicas, "_may_join", may_join),
        (InSyncReplicas, "fetched", fetched),
        (failover, "_ineligible", lambda image, broker_id, broker_epoch: None),
    ]


def isr_changes_of_anyone() -> list[Patch]:
    def proposed_for(image: Any, command: Any) -> Any:
        topic = image.topics[image.topic_names[command.topic_id]]
        return topic, topic.partitions[command.partition]

    def members(image: Any, command: Any, state: Any) -> None:
        """Whoever they are."""

    def decide_anyway(image: Any, command: Any, config: Any) -> Any:
        _, state = proposed_for(image, command)
        proposal = command.proposal._replace(partition_epoch=state.partition_epoch)
        return alter(image, replace(command, proposal=proposal), config)

    alter = failover.alter_partition

    return [
        (failover, "_proposed_for", proposed_for),
        (failover, "_check_members", members),
        (planner, "alter_partition", decide_anyway),
    ]


def no_eligible_leaders() -> list[Patch]:
    """Before KIP-966 the last member stayed in the ISR, and led again whatever it had lost."""
    decide = elections.decide

    def keep_the_last(state: Any, circumstances: Any, isr: Any = None) -> Any:
        blind = replace(circumstances, lossy=frozenset(), emptied=frozenset())
        wanted = tuple(state.isr if isr is None else isr)
        return decide(state, blind, wanted or state.isr[:1])

    return [
        (elections, "_eligible", lambda state, members, circumstances: ((), ())),
        (elections, "decide", keep_the_last),
        (failover, "decide", keep_the_last),
    ]


def one_look_at_epochs() -> list[Patch]:
    def at_once(log: Any, diverging: Any) -> int:
        return min(max(diverging.end_offset, log.log_start_offset), log.log_end_offset)

    return [(following, "diverging_offset", at_once)]


def no_maximal_isr() -> list[Patch]:
    def current(self: InSyncReplicas) -> frozenset[int]:
        return frozenset(self._state.isr)

    def advance(self: InSyncReplicas, own_end: int, min_isr: int, look: Any) -> bool:
        if len(self._state.isr) < min_isr:
            return False
        ends = [each.end for replica, each in self.followers.items() if replica in self._state.isr]
        end = min([own_end, *ends])
        moved = end > self._high_watermark
        self._high_watermark = max(end, self._high_watermark)
        return moved

    return [
        (InSyncReplicas, "maximal_isr", property(current)),
        (InSyncReplicas, "advance", advance),
    ]


def no_start_of_the_epoch() -> list[Patch]:
    def may_join(self: InSyncReplicas, replica: int, follower: Any, look: Any) -> bool:
        epoch = look.eligible.get(replica)
        return bool(
            follower.end >= self._high_watermark
            and follower.end != UNKNOWN
            and epoch == follower.broker_epoch
        )

    return [(InSyncReplicas, "_may_join", may_join)]


def any_answer_is_taken() -> list[Patch]:
    def stands(self: Following, asked: Any) -> bool:
        return self.is_active

    return [(Following, "_stands_at", stands)]


def any_epoch_may_fetch() -> list[Patch]:
    check = Partition.check_leader

    def whoever(self: Partition, known_epoch: int = -1) -> None:
        check(self)

    return [(Partition, "check_leader", whoever), *any_answer_is_taken()]


def any_answer_of_the_controller_is_taken() -> list[Patch]:
    def answered(self: InSyncReplicas, proposal: Any, decided: Any, now: float) -> None:
        if decided is not None and decided.leader_epoch == self._state.leader_epoch:
            self.updated(decided, now)
        self._pending = None

    return [(InSyncReplicas, "answered", answered), (Leading, "awaits", lambda self, each: True)]


# -- traps of CLUSTER 5 --------------------------------------------------------------------------


def leading_commits_the_end() -> list[Patch]:
    begin = Leading.begin

    def commit(self: Leading, state: Any) -> None:
        self._watermark.raise_to(self._log.log_end_offset)
        begin(self, state)

    return [(Leading, "begin", commit)]


def no_look_at_losses() -> list[Patch]:
    return [(failover, "may_have_lost_records", lambda before, now: False)]


def consumers_and_followers_alike() -> list[Patch]:
    def check(self: Partition, offset: int) -> None:
        if not self.log.log_start_offset <= offset <= self.watermark.offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    return [(Partition, "check_offset", check)]


def any_image_is_newer() -> list[Patch]:
    return [(ImageFeed, "_check", lambda self, update: None)]


MUTANTS: Final = (
    Mutant("truncate to the watermark", "KIP-101", truncate_to_the_watermark, "crashes"),
    Mutant("no min ISR for the watermark", "min-ISR gate", no_minimum_for_the_watermark, "network"),
    Mutant("commands of earlier lives", "KIP-380 (pair with KIP-903)", commands_of_earlier_lives),
    Mutant("fetches of earlier lives", "KIP-903", fetches_of_earlier_lives, "crashes"),
    Mutant("ISR changes of anyone", "ISR change without CAS", isr_changes_of_anyone, "proposals"),
    Mutant("no ELR", "KIP-966", no_eligible_leaders, "crashes"),
    Mutant("one look at epochs", "KIP-279", one_look_at_epochs, "crashes"),
    Mutant("no maximal ISR", "KIP-497", no_maximal_isr, "proposals"),
    Mutant("no start of the epoch", "KAFKA-7128", no_start_of_the_epoch, "crashes"),
    Mutant("any answer to a fetch", "fetch matching", any_answer_is_taken, "held"),
    Mutant("any epoch may fetch", "KIP-320 (pair with matching)", any_epoch_may_fetch, "held"),
    Mutant(
        "any answer to a proposal",
        "stale AlterPartition answer",
        any_answer_of_the_controller_is_taken,
        "proposals",
    ),
    Mutant("leading commits the end", "trap 1", leading_commits_the_end, "crashes"),
    Mutant("no look at losses", "trap 3", no_look_at_losses, "crashes"),
    Mutant("any image is newer", "trap 5", any_image_is_newer, "held"),
    Mutant("followers read as consumers", "trap 7", consumers_and_followers_alike, "network"),
)


def saved_seeds() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in tomllib.loads(SAVED.read_text()).get("mutant", [])}


def search(mutant: Mutant, first: int, seeds: int) -> Outcome | None:
    """The first seed from `first` on that fails, and does not without the mutant; None where none
    of so many does."""
    for seed in range(first, first + seeds):
        outcome = mutant.run(seed)
        if outcome.failed and not run_seed(seed, mutant.plan).failed:
            return outcome
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many to try for each")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first of them")
    parser.add_argument("--only", default="", help="mutants whose name has this in it")
    options = parser.parse_args(arguments)
    missed = 0
    for mutant in MUTANTS:
        if options.only not in mutant.name:
            continue
        found = search(mutant, options.first, options.seeds)
        missed += found is None
        if found is None:
            fired, needed = "NOTHING", f">{options.seeds}"
        else:
            fired, needed = found.invariant, str(found.seed - options.first + 1)
        sys.stdout.write(
            f"{mutant.name:32} {mutant.rule:30} {fired:30} {needed:>5}"
            f" {'' if found is None else found.seed}\n"
        )
        sys.stdout.flush()
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
