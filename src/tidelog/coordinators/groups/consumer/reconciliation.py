"""One step of a member towards its target (KIP-848).

A partition goes to its new owner only when the one before has given it back. So a member first
gives back what is no longer its own and stays in its epoch meanwhile (UNREVOKED_PARTITIONS); then
it moves to the epoch of the target with what is free, and waits for the rest
(UNRELEASED_PARTITIONS) or has all (STABLE). A partition counts as given back when a heartbeat that
names what the member owns does not name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from tidelog.coordinators.groups.consumer.assignors import Partitions
from tidelog.coordinators.groups.consumer.group import ConsumerMember, MemberState, Owned


@dataclass(slots=True)
class Goal:
    """Where a member is to go, and what is known of the way.

    `owned` is what the member says it owns, None where it did not say.
    """

    epoch: int
    target: Partitions
    subscribed: frozenset[UUID]
    is_free: Callable[[UUID, int], bool]
    owned: Mapping[UUID, frozenset[int]] | None
    has_subscription_changed: bool = False

    def still_owns(self, revoking: Owned) -> bool:
        if self.owned is None:
            return True
        return any(
            partition in revoking.get(topic_id, ())
            for topic_id, partitions in self.owned.items()
            for partition in partitions
        )


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The member after as much as can be done now; itself where that is nothing."""
    if member.state is MemberState.STABLE and member.epoch == goal.epoch:
        return _drop_unsubscribed(member, goal) if goal.has_subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and goal.still_owns(member.revoking):
        return _drop_unsubscribed(member, goal) if goal.has_subscription_changed else member
    return _advance(member, goal)


def _drop_unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Have the member give back what it is no longer subscribed to."""
    dropped = {
        each: parts for each, parts in member.assigned.items() if each not in goal.subscribed
    }
    if not dropped:
        return member
    kept = {each: parts for each, parts in member.assigned.items() if each in goal.subscribed}
    revoking = dict(member.revoking)
    for topic_id, partitions in dropped.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **partitions}
    if not goal.still_owns(revoking):
        return replace(member, previous_epoch=member.epoch, assigned=kept)
    return _giving_back(member, kept, revoking)


def _giving_back(member: ConsumerMember, kept: Owned, revoking: Owned) -> ConsumerMember:
    return replace(
        member,
        previous_epoch=member.epoch,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=kept,
        revoking=revoking,
    )


def _advance(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else ()
        for partition, epoch in partitions.items():
            side = kept if partition in target else revoking
            side.setdefault(topic_id, {})[partition] = epoch
    if revoking and goal.still_owns(revoking):
        return _giving_back(member, kept, revoking)
    is_waiting = False
    for topic_id, target in goal.target.items():
        if topic_id not in goal.subscribed:
            continue
        for partition in sorted(target - kept.get(topic_id, {}).keys()):
            if goal.is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = goal.epoch
            else:
                is_waiting = True
    return replace(
        member,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=kept,
        revoking={},
    )
