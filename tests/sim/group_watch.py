"""Looks at the coordinators of groups after every step of a broker: I23, I25 and I26."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.sim.ghost import Violation
from tests.sim.group_ledger import FASTEST, GroupLedger
from tests.sim.observer import Observer
from tests.sim.peek import group_slots
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.coordinators.groups.classic.group import GroupState
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.table import Group
from tidelog.protocol.consumer_protocol import decode_assignment
from tidelog.server.parts import Parts
from tidelog.testing.simulation.machines import Machine, World

RETENTION_S: Final = 60.0


class GroupWatch:
    """What coordinators hold, against what members were told."""

    def __init__(self, world: World, observer: Observer, ledgers: Sequence[GroupLedger]) -> None:
        self._world = world
        self._observer = observer
        self._ledgers = ledgers
        # By group: its protocol, and whether it had no members, at the last look.
        self._kinds: dict[str, tuple[str, bool]] = {}
        # By shard: how far its log was looked at, and the offsets of each group then.
        self._seen: dict[Any, tuple[int, dict[str, frozenset[tuple[str, int]]]]] = {}

    def stepped(self, machine: Machine, parts: Parts) -> None:
        for slot in group_slots(parts):
            if slot.error is not None:
                continue
            seen = self._seen.get(slot)
            if seen is None or seen[0] != slot.last_offset:
                before = {} if seen is None else seen[1]
                self._seen[slot] = slot.last_offset, dict(self._look(machine, slot, before))

    def _look(
        self, machine: Machine, slot: Any, before: dict[str, frozenset[tuple[str, int]]]
    ) -> Iterator[tuple[str, frozenset[tuple[str, int]]]]:
        for ledger in self._ledgers:
            group = slot.shard.table.find(ledger.name)
            if group is not None:
                i23_one_owner(group)
            if self._is_in_office(machine, slot):
                self._heed_restart(ledger, group)
                i25_generations_rise(ledger, group)
            kept = frozenset(
                (topic, partition)
                for topic, partitions in slot.shard.offsets.of_group(ledger.name).items()
                for partition in partitions
            )
            i26_expiry(ledger, before.get(ledger.name, frozenset()) - kept, self._world.loop.now)
            yield ledger.name, kept

    def _heed_restart(self, ledger: GroupLedger, group: Group | None) -> None:
        """An empty group may have become one of the other protocol."""
        kind, was_empty = self._kinds.get(ledger.name, ("", True))
        if group is None:
            return
        if group.kind != kind and was_empty:
            ledger.restarted()
        self._kinds[ledger.name] = group.kind, not group.members

    def _is_in_office(self, machine: Machine, slot: Any) -> bool:
        """Whether the store names the broker leader of the shard's partition, in this epoch."""
        topic = self._observer.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return False
        state = topic.partitions[slot.partition.topic_partition.partition]
        is_named = state.leader == machine.broker_id and state.leader_epoch == slot.leader_epoch
        return is_named and slot.partition.leads


def i23_one_owner(group: Group) -> None:
    """No partition belongs to two members of a generation."""
    owners: dict[tuple[Any, int], str] = {}
    for member_id, topic, partition in _owned(group):
        other = owners.setdefault((topic, partition), member_id)
        if other != member_id:
            raise Violation(
                "I23 one owner", f"{other} and {member_id} own {partition} of {group.group_id}"
            )


def _owned(group: Group) -> Iterator[tuple[str, Any, int]]:
    if isinstance(group, ConsumerGroup):
        for member_id, member in group.members.items():
            for topic_id, held in member.held().items():
                for partition in held:
                    yield member_id, topic_id, partition
    elif group.state is GroupState.STABLE:
        for member_id, classic in group.members.items():
            assigned = decode_assignment(classic.assignment) if classic.assignment else {}
            for topic, partitions in assigned.items():
                for partition in partitions:
                    yield member_id, topic, partition


def i25_generations_rise(ledger: GroupLedger, group: Group | None) -> None:
    """The coordinator in office knows the last generation that anybody was told of."""
    known = 0 if group is None else _generation(group)
    if known < ledger.generation:
        raise Violation(
            "I25 generations rise",
            f"{ledger.name} is in generation {known}, {ledger.generation} had been told",
        )


def _generation(group: Group) -> int:
    return group.epoch if isinstance(group, ConsumerGroup) else group.generation


def i26_expiry(ledger: GroupLedger, lost: frozenset[tuple[str, int]], now: float) -> None:
    """Offsets go when the group was empty for as long as they are kept, and not before."""
    empty_s = now - ledger.occupied_at
    if lost and empty_s < RETENTION_S / FASTEST:
        raise Violation(
            "I26 expiry",
            f"{sorted(lost)} of {ledger.name} are gone, which had a member {empty_s:.1f} s ago",
        )
