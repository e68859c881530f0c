"""What becomes of a partition when replicas come, go, fall behind or lose records: pure.

A committed record is on every member of the ISR. Where the ISR is smaller than the minimum, the
watermark stands still; so a member that leaves it then still has all that is committed. It becomes
an *eligible leader replica* (ELR, KIP-966) and may lead later, if it comes back with its records. A
replica whose restart may have lost records leaves both sets. When both are empty, what was
committed may be lost, and the last known leader is the best that there is.

The order of choice: the leader as it is, a member of the ISR, where that is empty one of the ELR,
where both are empty the last known leader, and any replica only where an unclean election was asked
for. The last known leader is elected when the last of both sets goes, or when it returns: one that
runs and was not elected then has given its replica up, and cannot serve it before its next life.
Each but the first is a new leader epoch. Each decision is one step of the partition epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from tidelog.cluster.image import PartitionState
from tidelog.model import NO_LEADER


@dataclass(slots=True)
class Circumstances:
    """What an election depends on beside the partition itself."""

    # Brokers that may be elected: alive, not fenced, not shutting down.
    can_lead: Collection[int]
    min_isr: int
    # Replicas whose last restart may have lost records, and those of them that lost all.
    lossy: frozenset[int] = frozenset()
    emptied: frozenset[int] = frozenset()
    unclean: bool = False
    # Give the office back to the first replica where it may have it.
    prefer_first: bool = False
    # Brokers that may go on leading while nobody else can: those that are shutting down.
    may_stay: Collection[int] = ()
    # The broker that begins a new life.
    returning: int | None = None


@dataclass(slots=True)
class Decision:
    """The state that follows, and whether committed records may be gone with it."""

    state: PartitionState
    may_have_lost: bool = False
    # Replicas that had all that was committed, as far as it is known.
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
    if leader != NO_LEADER:
        last_known = ()
    if len(members) >= circumstances.min_isr or (leader != NO_LEADER and unclean):
        elr = ()
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


def returns(state: PartitionState, broker: int, circumstances: Circumstances) -> Decision | None:
    """The next state when a broker begins a new life: it was gone and is back, in one step.

    What it led in its last life it leads in a new epoch, if at all.
    """
    if broker not in state.replicas:
        return None
    gone = None
    if broker in state.isr:
        meanwhile = replace(
            circumstances,
            can_lead=[each for each in circumstances.can_lead if each != broker],
            may_stay=[each for each in circumstances.may_stay if each != broker],
            lossy=frozenset(),
            unclean=False,
        )
        gone = leaves(state, {broker}, meanwhile)
    between = state if gone is None else gone.state
    back = decide(between, replace(circumstances, returning=broker))
    decided = Decision(between) if back is None else back
    after = decided.state
    led_before = state.leader == broker
    new_epoch = led_before or after.leader != state.leader or decided.may_have_lost
    after = after._replace(
        partition_epoch=state.partition_epoch, leader_epoch=state.leader_epoch + new_epoch
    )
    if after == state:
        return None
    decided.state = after._replace(partition_epoch=state.partition_epoch + 1)
    if decided.may_have_lost:
        decided.lost_by = state.isr + state.elr
    return decided


def _eligible(
    state: PartitionState, members: tuple[int, ...], circumstances: Circumstances
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ELR, and the last ones who had everything, the one that led last before others.

    The log of the last leader is at least as long as any other's. One that lost all would make the
    others lose it, too.
    """
    had_all = {*state.isr, *state.elr}
    lost = _in_order((state.leader, *state.replicas), had_all & circumstances.lossy)
    led = (state.leader,) if state.has_leader else state.last_known_elr
    last_known = tuple(dict.fromkeys((*led, *lost)))
    if len(state.replicas) > 1:
        last_known = tuple(each for each in last_known if each not in circumstances.emptied)
    if len(members) >= circumstances.min_isr:
        return (), last_known
    return _in_order(state.replicas, had_all - set(members) - circumstances.lossy), last_known


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
    if state.leader in members and state.leader in circumstances.may_stay:
        return state.leader, False
    if not members and not elr and last_known and last_known[0] in circumstances.can_lead:
        best = last_known[0]
        if best == circumstances.returning or state.isr or state.elr:
            return best, True
    if circumstances.unclean:
        for replica in state.replicas:
            if replica in circumstances.can_lead:
                return replica, True
    return NO_LEADER, False


def _in_order(order: Iterable[int], chosen: Collection[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(each for each in order if each in chosen))
