"""The twelve rules of replication whose absence loses records: each mutant patches the product.

Where a second defence hides the loss of the first, a mutant takes out both.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from tests.sim.mutant import Mutant, Patch
from tidelog.cluster import elections, failover, leadership, planner
from tidelog.cluster.commands import PartitionDecided
from tidelog.replication import following
from tidelog.replication.fetch_core import LeaderSession
from tidelog.replication.following import FetchFrom, Following
from tidelog.replication.in_sync import UNKNOWN, Follower, InSyncReplicas, Look
from tidelog.replication.isr_changes import IsrChanges
from tidelog.replication.partition import Partition
from tidelog.server import broker
from tidelog.server.handlers.fetch import FetchAttempt

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


def metadata_of_an_earlier_life() -> list[Patch]:
    """KIP-380: a broker serves by metadata that does not know of its new life."""
    return [(broker, "_is_in", lambda image, broker_id, broker_epoch: True)]


def commands_of_earlier_lives() -> list[Patch]:
    """KIP-380: a command counts, whichever life of a broker it comes from."""

    def anyone(image: Any, broker_id: int, broker_epoch: int) -> None:
        """Whoever it was."""

    owners = (failover, leadership, planner)
    return [(owner, "check_broker_epoch", anyone) for owner in owners]


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
        return alter(image, command._replace(proposal=proposal), config)

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
    """The end of the leader's epoch is taken for this log's, and nothing is compared after it."""
    next_fetch, truncate = Following.next_fetch, Following.truncate_to
    looked: dict[Following, int] = {}

    def at_once(log: Any, diverging: Any) -> int:
        return int(min(max(diverging.end_offset, log.log_start_offset), log.log_end_offset))

    async def look_once(self: Following, asked: Any, diverging: Any) -> bool:
        looked[self] = self.leader_epoch
        return await truncate(self, asked, diverging)

    def ask_for_more(self: Following) -> FetchFrom | None:
        place = next_fetch(self)
        if place is not None and looked.get(self) == self.leader_epoch:
            return place._replace(last_epoch=-1)
        return place

    def stands_at(self: Following, asked: FetchFrom) -> bool:
        is_there = asked.offset == self.log.log_end_offset
        return self.is_active and is_there and asked.leader_epoch == self.leader_epoch

    return [
        (following, "diverging_offset", at_once),
        (Following, "truncate_to", look_once),
        (Following, "next_fetch", ask_for_more),
        (Following, "_stands_at", stands_at),
    ]


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
    """Who has reached the watermark may join, though the leader's log began further up.

    The second defence: who has not caught up in this epoch counts as one that lags.
    """
    hear = Follower.fetched

    def may_join(self: InSyncReplicas, replica: int, follower: Follower, look: Look) -> bool:
        is_there = self._high_watermark <= follower.end != UNKNOWN
        return is_there and look.eligible.get(replica) == follower.broker_epoch

    def fetched(
        self: Follower, broker_epoch: int, offset: int, leader_end: int, now: float
    ) -> None:
        caught_up_at = self.caught_up_at
        hear(self, broker_epoch, offset, leader_end, now)
        self.caught_up_at = max(caught_up_at, self.caught_up_at)

    return [(InSyncReplicas, "_may_join", may_join), (Follower, "fetched", fetched)]


def any_answer_is_taken() -> list[Patch]:
    """An answer counts though the replica stands elsewhere by now, and follows another leader."""

    def stands(self: Following, asked: Any) -> bool:
        return self.is_active

    def stay(self: LeaderSession, partition: Any) -> None:
        """What is still answered of it counts."""

    return [(Following, "_stands_at", stands), (LeaderSession, "leave", stay)]


def any_epoch_may_fetch() -> list[Patch]:
    """A fetch counts in whichever leader epoch it was sent, and is not compared by epochs."""

    def never_mind(self: Partition, known_epoch: int) -> None:
        """The first defence: the epoch that the follower knows."""

    def agree(self: FetchAttempt, partition: Partition, target: Any) -> None:
        """The second defence: a log that diverges."""

    return [(Partition, "_refuse_epoch", never_mind), (FetchAttempt, "_check_divergence", agree)]


def any_answer_of_the_controller_is_taken() -> list[Patch]:
    """Several proposals are under way, and an answer to one of them is one to all."""
    asking: list[asyncio.Task[None]] = []

    def answered(self: InSyncReplicas, proposal: Any, decided: Any, now: float) -> None:
        if decided is not None and decided.leader_epoch == self._state.leader_epoch:
            self.updated(decided, now)
        self._pending = None

    async def ask(self: IsrChanges, partition: Partition, proposal: Any) -> None:
        (answer,) = await self._submit_all([self._command(partition, proposal)])
        decided = answer.state if isinstance(answer, PartitionDecided) else None
        partition.leading.decided(proposal, decided)

    def reconsider(self: IsrChanges, partition: Partition) -> None:
        proposal = partition.leading.propose()
        if proposal is not None:
            asking.append(asyncio.create_task(ask(self, partition, proposal)))

    def take_over(self: IsrChanges, standing: Any, submit_all: Any) -> None:
        begin(self, standing, submit_all)
        standing.reconsider = self.reconsider

    begin = IsrChanges.__init__
    return [
        (InSyncReplicas, "answered", answered),
        (IsrChanges, "reconsider", reconsider),
        (IsrChanges, "__init__", take_over),
    ]


RULES: Final = (
    Mutant(
        "truncate to the watermark",
        "KIP-101",
        truncate_to_the_watermark,
        script="watermarks that lag",
    ),
    Mutant(
        "no min ISR for the watermark",
        "min-ISR gate",
        no_minimum_for_the_watermark,
        script="last replica standing",
    ),
    Mutant(
        "metadata of an earlier life",
        "KIP-380",
        metadata_of_an_earlier_life,
        script="image of the life before",
    ),
    Mutant(
        "commands of earlier lives",
        "KIP-380",
        commands_of_earlier_lives,
        script="shutdown of the life before",
    ),
    Mutant(
        "fetches of earlier lives",
        "KIP-903",
        fetches_of_earlier_lives,
        script="fetch of the life before",
    ),
    Mutant(
        "ISR changes of anyone",
        "ISR change without CAS",
        isr_changes_of_anyone,
        script="proposal of a deposed leader",
    ),
    Mutant("no ELR", "KIP-966", no_eligible_leaders, script="last replica standing"),
    Mutant("one look at epochs", "KIP-279", one_look_at_epochs, script="double failover"),
    Mutant("no maximal ISR", "KIP-497", no_maximal_isr, script="admission unheard"),
    Mutant(
        "no start of the epoch",
        "KAFKA-7128 (pair with lag)",
        no_start_of_the_epoch,
        script="stale watermark",
    ),
    Mutant(
        "any answer to a fetch",
        "fetch matching (pair with leaving)",
        any_answer_is_taken,
        script="late divergence",
    ),
    Mutant(
        "any epoch may fetch",
        "KIP-320 (pair with divergence)",
        any_epoch_may_fetch,
        script="fetch of the epoch before",
    ),
    Mutant(
        "any answer to a proposal",
        "stale AlterPartition answer (pair)",
        any_answer_of_the_controller_is_taken,
        script="answer to an older proposal",
    ),
)
