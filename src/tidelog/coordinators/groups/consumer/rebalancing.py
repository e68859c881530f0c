"""What a member's request comes to, whichever protocol it uses: epoch, target, and one step to it.

The member is brought up to date with what the request says; where that or the metadata changes what
the group consumes, the group's epoch rises and a target is computed for it; and the member is taken
one step towards its target (`reconciliation`). Nothing is changed here: the outcome is records.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.consumer.assignors import ASSIGNORS, Partitions
from tidelog.coordinators.groups.consumer.changes import (
    Records,
    current_record,
    group_record,
    member_record,
    member_tombstones,
    pattern_tombstone,
    target_epoch_record,
    target_record,
)
from tidelog.coordinators.groups.consumer.group import (
    JOIN_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    compute_target,
    hash_topics,
    preferred_assignor,
    subscribed_ids,
)
from tidelog.coordinators.groups.consumer.members import ConsumerMembers
from tidelog.coordinators.groups.consumer.patterns import Patterns, check_pattern
from tidelog.coordinators.groups.consumer.reconciliation import Goal, reconcile
from tidelog.coordinators.groups.settings import Caller, GroupSettings
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Step:
    """One request of a member in work.

    `owned` is what the member says it owns, None where it did not say; `replaced` is who had the
    instance id before, if anybody, and `displaced` whom the member's own id stood for until then.
    """

    group: ConsumerGroup
    image: MetadataImage
    caller: Caller
    now: Now
    owned: Mapping[UUID, frozenset[int]] | None = None
    replaced: ConsumerMember | None = None
    displaced: ConsumerMember | None = None
    records: Records = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Rebalancing:
    """Takes the members of one shard's groups towards their targets."""

    _groups: GroupTable
    _settings: GroupSettings
    members: ConsumerMembers
    _patterns: Patterns

    def begin(self, group: ConsumerGroup, caller: Caller, now: Now) -> Step:
        return Step(group, self.image(), caller, now)

    def image(self) -> MetadataImage:
        return self._patterns.image()

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        limit = self._settings.consumer_group_size_max
        is_known = member_id in group.members or instance_id in group.instances
        if len(group.members) >= limit and not is_known:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def replace_static(self, step: Step, held: ConsumerMember, member_id: str) -> ConsumerMember:
        """It takes over what its predecessor was and owned; nobody else is disturbed."""
        group_id = step.group.group_id
        member = replace(held, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        step.replaced = held
        if member_id != held.member_id:
            step.displaced = step.group.members.get(member_id)
        target = step.group.targets.get(held.member_id, {})
        step.records += member_tombstones(group_id, held.member_id)
        step.records.append(member_record(group_id, member))
        step.records.append(target_record(group_id, member_id, target))
        step.records.append(current_record(group_id, member))
        return member

    def advance(
        self, step: Step, before: ConsumerMember, described: ConsumerMember
    ) -> ConsumerMember:
        """The member after the request, with all that it changes in the step's records."""
        epoch = self.describe(step, before, described)
        target_epoch, target = self._target(step, described, epoch)
        return self.reconcile(step, before, described, (target_epoch, target))

    def describe(self, step: Step, before: ConsumerMember, described: ConsumerMember) -> int:
        """The member is this from now on; the epoch that the group then has."""
        if described is not before and described != before:
            step.records.append(member_record(step.group.group_id, described))
        return self._group_epoch(step, before, described)

    def reconcile(
        self,
        step: Step,
        before: ConsumerMember,
        described: ConsumerMember,
        aim: tuple[int, Partitions],
    ) -> ConsumerMember:
        target_epoch, target = aim
        has_changed = described.topics != before.topics or described.pattern != before.pattern
        if not has_changed and described.is_reconciled_to(target_epoch):
            return described
        goal = self._goal(step, described, target_epoch, target)
        goal.has_subscription_changed = has_changed
        after = reconcile(described, goal)
        if after != described:
            step.records.append(current_record(step.group.group_id, after))
        return after

    def appended(self, step: Step, described: ConsumerMember, after: ConsumerMember) -> None:
        """The step's records are written and replayed."""
        group_id = step.group.group_id
        # A group that this request made is there now, and another object.
        group = self._groups.consumer(group_id)
        assert group is not None, "its records were replayed"
        group.seen_image = step.image
        if group.pattern_subscribers:
            self._patterns.refresh(group, step.caller, step.now)
        self.members.renew_session(group_id, after, step.now)
        if after is not described and after != described:
            self.members.watch_revocation(group_id, after, step.now)

    # The group's epoch and target

    def _group_epoch(self, step: Step, before: ConsumerMember, described: ConsumerMember) -> int:
        """The epoch that the group has after this heartstep."""
        group = step.group
        has_changed = before.topics != described.topics
        released: list[str] = []
        if before.pattern != described.pattern:
            has_changed |= self._moves_members(group, before.pattern, described.pattern)
        if before.pattern != described.pattern or step.displaced is not None:
            has_changed |= step.displaced is not None
            released = self._release(step, before, described)
        if not has_changed and group.seen_image is step.image:
            return group.epoch
        topics = group.subscribers.copy()
        if before.member_id in group.members or step.replaced is not None:
            topics.subtract(before.topics)
        if step.displaced is not None:
            topics.subtract(step.displaced.topics)
        for pattern in released:
            topics.subtract(group.resolved[pattern].topics)
        topics.update(described.topics)
        metadata_hash = hash_topics((name for name in topics if topics[name] > 0), step.image)
        if not has_changed and metadata_hash == group.metadata_hash:
            if not group.target_epoch:
                step.records.append(group_record(group.group_id, group.epoch, metadata_hash))
            return group.epoch
        epoch = group.epoch + 1
        step.records.append(group_record(group.group_id, epoch, metadata_hash))
        _log.info(
            "rebalance begins group=%s epoch=%d member=%s reason=%s", group.group_id, epoch,
            described.member_id, "subscription" if has_changed else "metadata",
        )  # fmt: skip
        return epoch

    def _moves_members(self, group: ConsumerGroup, old: str, new: str) -> bool:
        """Whether a change of pattern tells at once what the member consumes from now on."""
        if not new:
            return bool(old)
        if new not in group.pattern_subscribers:
            check_pattern(new, group)
            return False
        return new in group.resolved

    def _release(self, step: Step, before: ConsumerMember, described: ConsumerMember) -> list[str]:
        """The resolved patterns that nobody names any more, now that this member does not."""
        group = step.group
        given_up = Counter((before.pattern, step.displaced.pattern if step.displaced else ""))
        released = [
            pattern
            for pattern, count in given_up.items()
            if pattern in group.resolved
            and pattern != described.pattern
            and group.pattern_subscribers[pattern] <= count
        ]
        step.records += [pattern_tombstone(group.group_id, each) for each in released]
        return released

    def _target(self, step: Step, described: ConsumerMember, epoch: int) -> tuple[int, Partitions]:
        """The epoch of the target, and this member's part of it."""
        group, member_id = step.group, described.member_id
        targets = group.targets
        if step.replaced is not None:
            targets = dict(targets)
            targets[member_id] = targets.pop(step.replaced.member_id, {})
        if epoch <= group.target_epoch:
            return group.target_epoch, targets.get(member_id, {})
        members = dict(group.members)
        if step.replaced is not None:
            del members[step.replaced.member_id]
        members[member_id] = described
        name = preferred_assignor(members.values()) or self._settings.consumer_assignors[0]
        computed = compute_target(members, targets, group.resolved, step.image, ASSIGNORS[name])
        for each, target in computed.items():
            if targets.get(each) != target:
                step.records.append(target_record(group.group_id, each, target))
        step.records.append(target_epoch_record(group.group_id, epoch, step.now.wall_ms))
        return epoch, computed[member_id]

    def _goal(self, step: Step, member: ConsumerMember, epoch: int, target: Partitions) -> Goal:
        own = {member.member_id}
        if step.replaced is not None:
            own.add(step.replaced.member_id)

        def is_free(topic_id: UUID, partition: int) -> bool:
            return step.group.is_free(topic_id, partition, own)

        return Goal(
            epoch,
            target,
            subscribed_ids(step.group.topics_of(member), step.image),
            is_free,
            step.owned,
        )
