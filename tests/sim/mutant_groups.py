"""Rules of groups whose absence a world with groups notices: each mutant patches the product."""

from __future__ import annotations

from typing import Any, Final

from tests.sim.mutant import Mutant, Patch
from tidelog.coordinators.gathering import answer_all
from tidelog.coordinators.groups.classic.group import ClassicGroup
from tidelog.coordinators.groups.classic.members import Members
from tidelog.coordinators.groups.consumer import reconciliation
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.offsets import Offsets
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.runtime import CoordinatorRuntime

Runtime = CoordinatorRuntime[Any]


def anyone_commits() -> list[Patch]:
    """G1: a member that slept through a rebalance moves what others own now."""

    def whoever(self: Offsets, group_id: str, committer: Any, commits: Any, now: Any) -> None:
        """Whoever it is."""

    return [(Offsets, "check", whoever)]


def partitions_have_two_owners() -> list[Patch]:
    """G3: what a member has yet to give back goes to the next one."""
    return [(reconciliation.Goal, "still_owns", lambda self, revoking: False)]


def sessions_are_short() -> list[Patch]:
    """A member is given up before its session is over."""
    begin = GroupShard.__init__

    def in_a_hurry(self: GroupShard, settings: Any, *rest: Any) -> None:
        settings.consumer_session_timeout_ms //= 6
        begin(self, settings, *rest)

    return [(GroupShard, "__init__", in_a_hurry)]


def answers_before_they_are_committed() -> list[Patch]:
    """G11: what is answered need not be on the in-sync replicas."""

    def at_once(self: Runtime, slot: Any, answer: Any) -> None:
        answer.leave()

    def all_at_once(self: Runtime, slot: Any, handled: Any) -> None:
        answer_all(handled)

    return [
        (CoordinatorRuntime, "_leave_when_committed", at_once),
        (CoordinatorRuntime, "_leave_together", all_at_once),
    ]


def answers_before_it_is_loaded() -> list[Patch]:
    """G6: a coordinator knows nothing of what the one before has kept."""

    def load_nothing(self: Runtime, slot: Any, pause_seconds: float = 0.0) -> None:
        slot.last_offset = slot.partition.log.log_end_offset - 1
        self._work(slot, slot.shard.loaded(self.now()), "take up a shard")

    return [(CoordinatorRuntime, "_start_load", load_nothing)]


def generations_start_over() -> list[Patch]:
    """The next coordinator counts generations from the start."""
    loaded = Members.loaded

    def forget(self: Members, now: Any) -> Any:
        for group in self._groups.classic_groups():
            group.generation = 0
        return loaded(self, now)

    return [(Members, "loaded", forget)]


def offsets_expire_in_use() -> list[Patch]:
    """G8: offsets go by their age, whoever consumes the topic."""

    def unused(self: ClassicGroup | ConsumerGroup, topic: str) -> int:
        return -1

    def is_old(self: Offsets, group: Any, topic: str, value: Any, age_ms: Any) -> bool:
        return bool(age_ms(value.commit_timestamp) >= self._settings.offsets_retention_ms // 12)

    return [
        (ClassicGroup, "offsets_unused_since_ms", unused),
        (ConsumerGroup, "offsets_unused_since_ms", unused),
        (Offsets, "_is_expired", is_old),
    ]


def instances_are_not_fenced() -> list[Patch]:
    """G4: the process of before goes on under the name that another has taken over."""
    require = ClassicGroup.require

    def anyone(self: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
        if instance_id in self.instances:
            return self.members[self.instances[instance_id]]
        return require(self, member_id, None)

    return [(ClassicGroup, "require", anyone)]


def _mutant(name: str, rule: str, patches: Any) -> Mutant:
    return Mutant(name, rule, patches, groups=True)


GROUPS: Final = (
    _mutant("anyone commits", "G1, fenced commits", anyone_commits),
    _mutant("partitions have two owners", "G3, KIP-848", partitions_have_two_owners),
    _mutant("sessions are short", "a member's session", sessions_are_short),
    _mutant("instances are not fenced", "G4, static members", instances_are_not_fenced),
    _mutant("answers before commits", "G11", answers_before_they_are_committed),
    _mutant("answers before loading", "G6", answers_before_it_is_loaded),
    _mutant("generations start over", "generations rise", generations_start_over),
    _mutant("offsets expire in use", "G8", offsets_expire_in_use),
)
