"""What becomes of a partition when replicas come, go, fall behind or lose records: pure.

A committed record is on every member of the ISR. Where the ISR is smaller than the minimum, the
watermark stands still; so a member that leaves it then still has all that is committed. It becomes
an *eligible leader replica* (ELR, KIP-966) and may lead later, if it comes back with its records. A
replica whose restart may have lost records leaves both sets. When both are empty, what was
committed may be lost, and the last known leader is the best that there is.

The order of choice: the leader as it is, a member of the ISR, where that is empty one of the ELR,
where both are empty the last known leader, and any replica only where an unclean election was asked
for. Each but the first is a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tidelog.cluster.image import PartitionState
from tidelog.model import NO_LEADER


@dataclass(slots=True, frozen=True)
class Circumstances:
    """What an election depends on beside the partition itself."""

    # Brokers that may lead: alive, not fenced, not shutting down.
    can_lead: Collection[int]
    min_isr: int
    # Replicas whose last restart may have lost records.
    lossy: frozenset[int] = frozenset()
    unclean: bool = False
    # Give the office back to the first replica where it may have it.
    prefer_first: bool = False


@dataclass(slots=True)
class Decision:
    """The state that follows, and whether committed records may be gone with it."""

    state: PartitionState
    may_have_lost: bool = False
    # Replicas that a cautious operator should hear of.
    lost_by: tuple[int, ...] = field(default=())


def decide(
    state: PartitionState, circumstances: Circumstances, isr: Iterable[int] | None = None
) -> Decision | None:
    """The next state of a partition whose ISR is to be `isr`; None where nothing changes."""
    wanted = state.isr if isr is None else isr
    members = _in_order(state.replicas, set(wanted) - circumstances.lossy)
    elr, last_known = _eligible(state, members, circumstances)
    leader, unclean = _elect(state, members, elr, last_known, circumstances)
    if leader != NO_LEADER and leader not in members:
        # From the ELR, or with records missing: the others have to catch up with it.
        members = (leader,)
        elr = tuple(each for each in elr if each != leader)
    if len(members) >= circumstances.min_isr:
        elr, last_known = (), ()
    if leader != NO_LEADER and unclean:
        elr, last_known = (), ()
    decided = state._replace(leader=leader, isr=members, elr=elr, last_known_elr=last_known)
    if decided == state and not unclean:
        return None
    decided = decided._replace(partition_epoch=state.partition_epoch + 1)
    if leader != state.leader or unclean:
        decided = decided._replace(leader_epoch=state.leader_epoch + 1)
    assert leader == NO_LEADER or leader in decided.isr, "a leader is in its own ISR"
    assert not set(decided.isr) & set(decided.elr), "ISR and ELR have nothing in common"
    return Decision(decided, unclean, state.isr + state.elr if unclean else ())


def leaves(
    state: PartitionState, brokers: Collection[int], circumstances: Circumstances
) -> Decision | None:
    """The next state when brokers are gone: they leave the ISR, and lead no more."""
    return decide(state, circumstances, [each for each in state.isr if each not in brokers])


def _eligible(
    state: PartitionState, members: tuple[int, ...], circumstances: Circumstances
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ELR and what is remembered of the last ones who had everything."""
    if len(members) >= circumstances.min_isr:
        return (), ()
    had_all = {*state.isr, *state.elr}
    elr = _in_order(state.replicas, had_all - set(members) - circumstances.lossy)
    forgotten = [each for each in state.last_known_elr if each not in elr]
    # The leader first: its log is at least as long as any other's.
    lost = _in_order((state.leader, *state.replicas), had_all & circumstances.lossy)
    return elr, tuple(dict.fromkeys((*lost, *forgotten)))


def _elect(
    state: PartitionState,
    members: tuple[int, ...],
    elr: tuple[int, ...],
    last_known: tuple[int, ...],
    circumstances: Circumstances,
) -> tuple[int, bool]:
    """Who leads, and whether committed records may be missing there."""
    candidates = members or elr
    able = [
        each for each in state.replicas if each in candidates and each in circumstances.can_lead
    ]
    if circumstances.prefer_first and state.replicas[0] in able:
        return state.replicas[0], False
    if state.leader in able:
        return state.leader, False
    if able:
        return able[0], False
    if not members and not elr and last_known and last_known[0] in circumstances.can_lead:
        return last_known[0], True
    if circumstances.unclean:
        for replica in state.replicas:
            if replica in circumstances.can_lead:
                return replica, True
    return NO_LEADER, False


def _in_order(order: Iterable[int], chosen: Collection[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(each for each in order if each in chosen))
