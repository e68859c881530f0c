"""Random consumer groups on a virtual clock, with restarts, refusals and lost answers.

Whatever happens: a partition has one owner, counting who has yet to give it back, in the eyes of
the coordinator and of the members; epochs rise; what is loaded equals what was kept; a commit that
was taken is what is fetched; and once everybody beats again the group comes to rest with every
partition assigned evenly.
"""

from __future__ import annotations

import os
from copy import deepcopy
from random import Random

from tests.model.group_schedule import GroupSchedule, run_all
from tests.unit.coordinators.groups.consumer.helpers import Consumer, settle
from tests.unit.coordinators.groups.helpers import REBALANCE_MS, World
from tidelog.coordinators.groups.consumer.group import ConsumerGroup, MemberState
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.errors import ErrorCode, KafkaError

SCHEDULES = 3_000 if os.environ.get("TIDELOG_LONG") else 200
STEPS = 90
SESSION_MS = 10_000
EXPECTED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class Schedule(GroupSchedule[Consumer]):
    """One run by a seed."""

    expected = EXPECTED

    def __init__(self, seed: int, chance: Random | None = None) -> None:
        super().__init__(chance or Random(seed))
        size = self.chance.choice((4, 100))
        self.world = World(
            GroupSettings(
                consumer_session_timeout_ms=SESSION_MS,
                consumer_group_size_max=size,
                consumer_assignors=self.chance.choice((("uniform", "range"), ("range",))),
            ),
            seed,
        )
        self.topics = {"t": self.chance.randrange(1, 9), "u": self.chance.randrange(1, 5)}
        self.world.set_topics(**self.topics)
        self.is_mixed = self.chance.random() < 0.4
        self.next_member = 0
        self.epochs = (0, 0)

    @property
    def group(self) -> ConsumerGroup | None:
        return self.world.shard.table.consumer("g")

    def run(self) -> None:
        steps = (
            [self.add] * 3 + [self.move] * 40 + [self.commit] * 6 + [self.sleep] * 4
            + [self.lose_answer] * 4 + [self.subscribe, self.grow, self.replace_topic]
            + [self.leave, self.static_return, self.vanish, self.restart, self.refuse]
        )  # fmt: skip
        for _ in range(STEPS):
            self.attempt(self.chance.choice(steps))
            self.check()
            if self.chance.random() < 0.2:
                self.world.is_refusing = False
        self.come_to_rest()

    def guard(self, consumer: Consumer, act: object) -> None:
        """Act as a client does: fenced, it drops everything and joins again."""
        try:
            act()  # type: ignore[operator]
        except KafkaError as error:
            if error.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ):
                consumer.epoch, consumer.owned = 0, frozenset()
                consumer.target = frozenset()
            elif error.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.members.remove(consumer)
            raise

    # Steps

    def new_id(self) -> str:
        self.next_member += 1
        return f"m-{self.next_member}"

    def subscription(self) -> list[str]:
        return self.chance.choice((["t"], ["u"], ["t", "u"])) if self.is_mixed else ["t", "u"]

    def add(self) -> None:
        instance = f"i-{self.chance.randrange(3)}" if self.chance.random() < 0.3 else None
        consumer = Consumer(self.world, self.new_id(), self.subscription(), instance)
        self.members.append(consumer)
        self.guard(consumer, consumer.join)

    def move(self) -> None:
        consumer = self.pick()
        if consumer is None:
            return
        if consumer.epoch <= 0:
            self.guard(consumer, consumer.join)
            return
        if self.chance.random() < 0.7:
            self.counts["moves"] += consumer.reconcile()
        self.guard(consumer, consumer.beat)

    def lose_answer(self) -> None:
        """The coordinator has done its part, and the member does not hear of it."""
        consumer = self.pick()
        if consumer is not None and consumer.epoch > 0:
            self.guard(consumer, lambda: consumer.send(consumer.full_request()))
            consumer.has_news = True
            self.counts["lost answers"] += 1
            self.guard(consumer, lambda: consumer.take(consumer.send(consumer.full_request())))

    def subscribe(self) -> None:
        consumer = self.pick()
        if consumer is not None and consumer.epoch > 0:
            self.guard(consumer, lambda: consumer.subscribe(*self.subscription()))

    def grow(self) -> None:
        self.topics[self.chance.choice(("t", "u"))] += 1
        self.world.set_topics(**self.topics)

    def replace_topic(self) -> None:
        """The topic is deleted, and made anew under its name."""
        self.world.set_topics(t=self.topics["t"])
        try:
            self.move()
        finally:
            self.check()
            self.world.set_topics(**self.topics)

    def commit(self) -> None:
        consumer = self.pick()
        if consumer is None or consumer.epoch <= 0:
            return
        partition, offset = self.chance.randrange(self.topics["t"]), self.next_offset
        self.next_offset += 1
        epoch = max(0, consumer.epoch - self.chance.choice((0, 0, 1, 2)))
        code = consumer.commit(partition, offset, epoch=epoch)
        self.counts[f"commit {code.name}"] += 1
        if code is not ErrorCode.NONE:
            assert code is ErrorCode.STALE_MEMBER_EPOCH
            return
        self.committed[partition] = offset
        assert self.group is not None
        member = self.group.members[consumer.member_id]
        since = member.assignment_epoch(self.world.image.topics["t"].topic_id, partition)
        assert epoch == member.epoch or (since is not None and since <= epoch)

    def sleep(self) -> None:
        self.world.pass_time(self.chance.choice((10, 1_000, SESSION_MS // 3, REBALANCE_MS)))

    def leave(self) -> None:
        consumer = self.pick()
        if consumer is not None and consumer.epoch > 0:
            self.members.remove(consumer)
            consumer.leave()

    def static_return(self) -> None:
        static = [each for each in self.members if each.instance_id and each.epoch > 0]
        if not static:
            return
        consumer = self.chance.choice(static)
        self.guard(consumer, lambda: consumer.leave(-2))
        if self.chance.random() < 0.7:
            # A process that was started anew draws another id, one that went on keeps it.
            if self.chance.random() < 0.5:
                consumer.member_id = self.new_id()
            consumer.topics = self.subscription()
            self.guard(consumer, consumer.join)
            self.counts["static returns"] += 1
        else:
            self.members.remove(consumer)

    def restart(self) -> None:
        before = kept(self.group)
        if self.chance.random() < 0.5:
            self.world.compact()
        self.world.is_refusing = False
        self.world.restart()
        assert kept(self.group) == before
        self.counts["restarts"] += 1

    def refuse(self) -> None:
        """The log refuses, and takes again a few steps later."""
        self.world.is_refusing = True

    # What must hold

    def check(self) -> None:
        t_id = self.world.image.topics["t"].topic_id
        for partition, offset in self.committed.items():
            found = self.world.committed(partition=partition, topic_id=t_id)
            assert found == offset, (partition, found, offset)
        group = self.group
        if group is None:
            return
        assert (group.epoch, group.target_epoch) >= self.epochs
        assert group.target_epoch <= group.epoch
        self.epochs = (group.epoch, group.target_epoch)
        owners = {}
        for member in group.members.values():
            assert member.epoch <= group.target_epoch
            assert bool(member.revoking) <= (member.state is MemberState.UNREVOKED_PARTITIONS)
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        key = (topic_id, partition)
                        assert owners.setdefault(key, member.member_id) == member.member_id, key
        assert owners == {
            (topic_id, partition): owner
            for topic_id, partitions in group.owners.items()
            for partition, owner in partitions.items()
        }
        self.check_members(group)

    def check_members(self, group: ConsumerGroup) -> None:
        """The same as the members see it, those apart whom the coordinator has fenced."""
        holders: dict[object, str] = {}
        for consumer in self.members:
            member = group.members.get(consumer.member_id)
            if member is None or consumer.epoch <= 0:
                continue
            for each in consumer.owned:
                assert holders.setdefault(each, consumer.member_id) == consumer.member_id
                assert group.owners[each[0]][each[1]] == consumer.member_id

    def come_to_rest(self) -> None:
        self.world.is_refusing = False
        self.world.pass_time(max(SESSION_MS, REBALANCE_MS) + 1_000)
        if not self.members:
            assert self.group is None or not self.group.members
            return
        for consumer in list(self.members):
            try:
                consumer.join()
            except KafkaError as error:
                assert error.code in EXPECTED
                self.members.remove(consumer)
        settle(*self.members)
        self.check()
        assert self.group is not None and self.group.state == "Stable"
        wanted = {name for each in self.members for name in each.topics}
        owned = [each.owned for each in self.members]
        assert sum(map(len, owned)) == sum(self.topics[each] for each in wanted)
        if not self.is_mixed and self.world.settings.consumer_assignors[0] == "uniform":
            loads = list(map(len, owned))
            assert max(loads) - min(loads) <= 1, loads
        self.counts["came to rest"] += 1


def kept(group: ConsumerGroup | None) -> object:
    if group is None:
        return None
    found = deepcopy(group)
    found.seen_image = None
    found.targets = {name: found.targets[name] for name in sorted(found.targets)}
    return found


def test_random_consumer_groups_keep_their_promises() -> None:
    counts = run_all(Schedule, SCHEDULES)
    assert counts["schedules"] == SCHEDULES >= 200
    assert counts["came to rest"] > 120 and counts["moves"] > 1_000, counts
    assert counts["commit NONE"] > 200 and counts["commit STALE_MEMBER_EPOCH"] > 30, counts
    assert counts["restarts"] > 120 and counts["static returns"] > 20, counts
    for code in ("UNKNOWN_MEMBER_ID", "UNRELEASED_INSTANCE_ID", "COORDINATOR_NOT_AVAILABLE"):
        assert counts[code] > 10, counts
