"""Random groups with members of both protocols, with restarts, refusals and processes that die.

Whatever happens: a partition has one owner in the eyes of those members that the coordinator knows;
a commit that was taken is what is fetched; what is loaded equals what was kept; and once everybody
takes part again all partitions are owned, in a group of the kind that its members call for.
"""

from __future__ import annotations

import os
from random import Random

from tests.model.group_schedule import GroupSchedule, run_all
from tests.unit.coordinators.groups.classic_consumer import ClassicConsumer
from tests.unit.coordinators.groups.consumer.helpers import Consumer
from tests.unit.coordinators.groups.helpers import REBALANCE_MS, SESSION_MS, World
from tidelog.coordinators.groups.classic.group import ClassicGroup
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.errors import ErrorCode, KafkaError

SCHEDULES = 1_000 if os.environ.get("TIDELOG_LONG") else 150
STEPS = 150
PARTITIONS = 6
EXPECTED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
Member = Consumer | ClassicConsumer


class Schedule(GroupSchedule[Member]):
    """One run by a seed."""

    expected = EXPECTED

    def __init__(self, seed: int) -> None:
        super().__init__(Random(seed))
        self.world = World(
            GroupSettings(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=SESSION_MS),
            seed,
        )
        self.world.set_topics(t=PARTITIONS)
        # A log tells one assignor of a classic group, so all have the same.
        self.is_cooperative = self.chance.random() < 0.5
        self.next_member = 0
        self.kinds: list[str] = []

    def run(self) -> None:
        steps = (
            [self.add] * 4 + [self.step] * 60 + [self.commit] * 6 + [self.sleep] * 3
            + [self.leave] * 2 + [self.replace] * 3 + [self.vanish, self.restart, self.refuse]
        )  # fmt: skip
        for _ in range(STEPS):
            self.attempt(self.chance.choice(steps))
            self.check()
            if self.chance.random() < 0.2:
                self.world.is_refusing = False
        self.come_to_rest()

    # Steps

    def new_member(self, instance_id: str | None) -> Member:
        self.next_member += 1
        if self.chance.random() < 0.5:
            return Consumer(self.world, f"m-{self.next_member}", ["t"], instance_id)
        return ClassicConsumer(self.world, instance_id, self.is_cooperative)

    def add(self) -> None:
        if len(self.members) < 5:
            instance_id = f"i-{self.next_member}" if self.chance.random() < 0.4 else None
            self.members.append(self.new_member(instance_id))

    def step(self) -> None:
        member = self.pick()
        if member is not None:
            self.act(member)

    def act(self, member: Member) -> None:
        """The next thing that a client does, with what it does after an error."""
        try:
            if isinstance(member, ClassicConsumer):
                member.step()
            elif member.epoch <= 0:
                member.join()
            else:
                member.step()
        except KafkaError as error:
            if error.code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
                self.members.remove(member)
            elif isinstance(member, Consumer) and error.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ):
                member.epoch, member.owned, member.target = 0, frozenset(), frozenset()
            raise

    def replace(self) -> None:
        """A static member's process is started anew, with whichever protocol."""
        static = [each for each in self.members if each.instance_id is not None]
        if not static:
            return
        old = self.chance.choice(static)
        if isinstance(old, Consumer) and old.epoch > 0:
            old.leave(-2)
        self.members.remove(old)
        self.members.append(self.new_member(old.instance_id))
        self.counts["replaced"] += 1

    def leave(self) -> None:
        member = self.pick()
        if member is None:
            return
        is_in = member.epoch > 0 if isinstance(member, Consumer) else member.generation >= 0
        self.members.remove(member)
        if is_in:
            member.leave()

    def commit(self) -> None:
        member = self.pick()
        if member is None:
            return
        owned = self.owned_by(member)
        if not owned:
            return
        partition, offset = self.chance.choice(sorted(owned)), self.next_offset
        self.next_offset += 1
        if member.commit(partition, offset) is ErrorCode.NONE:
            self.committed[partition] = offset
            self.counts["committed"] += 1

    def sleep(self) -> None:
        self.world.pass_time(self.chance.choice((10, 1_000, SESSION_MS // 3, SESSION_MS)))

    def restart(self) -> None:
        before = kept(self.group)
        if self.chance.random() < 0.5:
            self.world.compact()
        self.world.is_refusing = False
        self.world.restart()
        if before is not None:
            assert kept(self.group) == before
        self.counts["restarts"] += 1

    def refuse(self) -> None:
        self.world.is_refusing = True

    # What must hold

    @property
    def group(self) -> ClassicGroup | ConsumerGroup | None:
        return self.world.shard.table.find("g")

    def owned_by(self, member: Member) -> set[int]:
        """What a member owns, if the coordinator has it for one; who was fenced owns nothing."""
        group = self.group
        if group is None or member.member_id not in group.members:
            return set()
        if isinstance(member, Consumer):
            return member.partitions if member.epoch > 0 else set()
        if isinstance(group, ClassicGroup) and group.generation != member.generation:
            return set()
        return set(member.owned)

    def check(self) -> None:
        topic_id = self.world.image.topics["t"].topic_id
        for partition, offset in self.committed.items():
            assert self.world.committed(partition=partition, topic_id=topic_id) == offset
        holders: dict[int, Member] = {}
        for member in self.members:
            for partition in self.owned_by(member):
                assert holders.setdefault(partition, member) is member, partition
        group = self.group
        if group is not None and (not self.kinds or self.kinds[-1] != group.kind):
            self.kinds.append(group.kind)

    def come_to_rest(self) -> None:
        self.world.is_refusing = False
        self.world.pass_time(REBALANCE_MS + SESSION_MS)
        for _ in range(300):
            for member in list(self.members):
                self.attempt(lambda member=member: self.act(member))  # type: ignore[misc]
                self.check()
            self.world.pass_time(100)
        self.counts["changes of kind"] += max(0, len(self.kinds) - 1)
        if not self.members:
            return
        group = self.group
        assert group is not None and group.state == "Stable", group
        owned = [each for member in self.members for each in self.owned_by(member)]
        assert sorted(owned) == list(range(PARTITIONS)), owned
        is_newer = any(isinstance(each, Consumer) for each in self.members)
        assert isinstance(group, ConsumerGroup if is_newer else ClassicGroup)
        self.counts[f"came to rest as {group.kind}"] += 1


def kept(group: ClassicGroup | ConsumerGroup | None) -> object:
    """What a log tells of a consumer group; a classic group's rebalances are not in it."""
    if not isinstance(group, ConsumerGroup):
        return None
    return (
        group.epoch, group.target_epoch, group.members, dict(sorted(group.targets.items())),
        group.owners, group.classic_count, group.classic_protocols,
    )  # fmt: skip


def test_random_groups_of_both_protocols_keep_their_promises() -> None:
    counts = run_all(Schedule, SCHEDULES)
    assert counts["schedules"] == SCHEDULES >= 150
    assert counts["came to rest as consumer"] > 60, counts
    assert counts["came to rest as classic"] > 15, counts
    assert counts["changes of kind"] > 200 and counts["committed"] > 500, counts
    assert counts["restarts"] > 100 and counts["replaced"] > 50, counts
