"""Random groups on a virtual clock: members come, go, sleep and commit, the shard fails over.

Held against a small model: what was acknowledged as committed is what a fetch gives back, whatever
happens; nobody outside the current generation can commit; in one generation there is one leader and
each member owns something else; whatever is loaded equals what was kept; nobody waits for ever.
"""

from __future__ import annotations

from random import Random

from tests.model.group_schedule import GroupSchedule, run_all
from tests.unit.coordinators.groups.helpers import REBALANCE_MS, SESSION_MS, Client, World
from tidelog.coordinators.groups.classic.group import GroupState
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.sync_group import SyncGroupResponse

SCHEDULES = 300
STEPS = 200
EXPECTED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}


class Schedule(GroupSchedule[Client]):
    """One run by a seed."""

    expected = EXPECTED

    def __init__(self, seed: int, chance: Random | None = None) -> None:
        super().__init__(chance or Random(seed))
        delay = self.chance.choice((0, 0, 500))
        size = self.chance.choice((3, 100))
        self.world = World(GroupSettings(delay, group_size_max=size), seed)
        # What members were told: by generation its leader, and who owns what.
        self.leaders: dict[tuple[str, int], str] = {}
        self.owners: dict[tuple[str, int, bytes], str] = {}
        self.epoch = 0

    def run(self) -> None:
        steps = (
            [self.add] * 2 + [self.advance] * 30 + [self.commit] * 4 + [self.beat] * 6
            + [self.sleep] * 2 + [self.leave, self.vanish, self.restart, self.refuse]
        )  # fmt: skip
        for _ in range(STEPS):
            self.attempt(self.chance.choice(steps))
            self.check()
        self.settle()

    # Steps

    def add(self) -> None:
        instance = f"i-{self.chance.randrange(3)}" if self.chance.random() < 0.3 else None
        version = self.chance.choice((3, 5, 9))
        client = Client(self.world, instance_id=None if version < 5 else instance, version=version)
        self.members.append(client)
        self.guard(client, client.join)

    def guard(self, client: Client, act: object) -> bool:
        """Act as a client does: an error about membership makes it start anew."""
        try:
            return bool(act())  # type: ignore[operator]
        except KafkaError as error:
            client.waiting = None
            if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                client.member_id, client.generation, client.assignment = "", -1, None
            elif error.code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
                self.members.remove(client)
            elif error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                client.assignment = None
            raise

    def advance(self) -> None:
        client = self.pick()
        if client is None:
            return
        if client.waiting is not None:
            if not client.waiting.is_done:
                return
            syncing = isinstance(client.waiting.value, SyncGroupResponse)
            done = client.synced if syncing else client.joined
            if self.guard(client, done) and syncing:
                self.note_assignment(client)
            return
        group = self.world.shard.table.classic("g")
        member = None if group is None else group.members.get(client.member_id)
        current = group is not None and group.generation == client.generation
        if member is None or not current or self.chance.random() < 0.05:
            client.assignment = None
            self.guard(client, client.join)
        elif client.assignment is None and self.guard(client, client.sync):
            self.note_assignment(client)

    def note_assignment(self, client: Client) -> None:
        assert client.assignment is not None
        if not client.assignment:
            return
        owner = client.instance_id or client.member_id
        key = (str(self.epoch), client.generation, client.assignment)
        assert self.owners.setdefault(key, owner) == owner, "two owners in one generation"
        self.counts["assignments"] += 1

    def commit(self) -> None:
        client = self.pick()
        if client is None:
            return
        group = self.world.shard.table.classic("g")
        partition, offset = self.chance.randrange(4), self.next_offset
        self.next_offset += 1
        codes = self.world.commit(offset, client.committer, partition=partition)
        assert codes == [ErrorCode.NONE]
        self.committed[partition] = offset
        self.counts["commits"] += 1
        if client.generation >= 0:
            assert group is not None
            assert client.member_id in group.members and group.generation == client.generation

    def beat(self) -> None:
        client = self.pick()
        if client is not None and client.waiting is None and client.generation >= 0:
            code = client.heartbeat()
            assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
            if code:
                self.guard(client, client.join)

    def sleep(self) -> None:
        self.world.pass_time(self.chance.choice((10, 400, 3_000, SESSION_MS, REBALANCE_MS)))

    def leave(self) -> None:
        client = self.pick()
        if client is not None:
            self.members.remove(client)
            group = self.world.shard.table.classic("g")
            if group is not None and client.member_id in group.members:
                client.leave()

    def restart(self) -> None:
        before = self.kept()
        if self.chance.random() < 0.5:
            self.world.compact()
        self.world.is_refusing = False
        self.world.restart()
        stable, offsets = self.kept()
        assert offsets == before[1]
        if before[0] is not None:
            assert stable == before[0]
        # A generation that was not written down may be numbered again.
        self.epoch += 1
        self.counts["restarts"] += 1

    def refuse(self) -> None:
        self.world.is_refusing = not self.world.is_refusing

    # What must hold

    def kept(self) -> tuple[object, dict[int, int | None]]:
        group = self.world.shard.table.classic("g")
        stable = None
        if group is not None and group.state is GroupState.STABLE:
            stable = (
                group.generation,
                group.leader_id,
                {each.member_id: each.assignment for each in group.members.values()},
            )
        return stable, {each: self.world.committed(partition=each) for each in range(4)}

    def check(self) -> None:
        for partition in range(4):
            assert self.world.committed(partition=partition) == self.committed.get(partition)
        group = self.world.shard.table.classic("g")
        if group is None:
            return
        members = group.members.values()
        assert group.joining_count == sum(each.join_reply is not None for each in members)
        assert group.instances == {
            each.instance_id: each.member_id for each in members if each.instance_id
        }
        if group.members:
            assert group.leader_id in group.members
        if group.state is GroupState.STABLE:
            held = [each.assignment for each in members if each.assignment]
            assert len(set(held)) == len(held)
            assert not any(each.join_reply for each in members)
        if group.state is GroupState.EMPTY:
            assert not group.members

    def settle(self) -> None:
        """Nobody answers any more: every wait ends, and every member goes."""
        self.world.is_refusing = False
        self.world.pass_time(2 * REBALANCE_MS + 20 * 60 * 1000)
        for client in self.members:
            assert client.waiting is None or client.waiting.is_done
        group = self.world.shard.table.classic("g")
        assert group is None or group.state is GroupState.EMPTY, group
        self.check()


def test_random_groups_keep_their_promises() -> None:
    counts = run_all(Schedule, SCHEDULES)
    assert counts["schedules"] == SCHEDULES
    assert counts["assignments"] > 500 and counts["commits"] > 500 and counts["restarts"] > 300
    for code in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"):
        assert counts[code] > 10, counts
