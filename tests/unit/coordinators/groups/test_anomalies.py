"""What goes wrong in groups elsewhere, under the names of the list, on a virtual clock."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.unit.coordinators.groups.helpers import (
    REBALANCE_MS,
    SESSION_MS,
    START_WALL_MS,
    TOPIC_ID,
    Client,
    World,
    classic_group,
    form_group,
    subscription,
)
from tidelog.coordinators.groups.classic.group import GroupState
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.settings import Caller, GroupSettings
from tidelog.coordinators.outcome import Outcome
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.storage.running_clock import RunningClock

DAY_MS = 24 * 60 * 60 * 1000


class WorldClock:
    """The wall clock of a world, beside one that never jumps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seconds = 0.0

    def wall_ms(self) -> int:
        return self._world.now.wall_ms

    def monotonic(self) -> float:
        return self.seconds


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_g1_a_zombie_cannot_commit_after_the_rebalance() -> None:
    world = World()
    zombie, other = Client(world), Client(world)
    form_group(world, [zombie, other])
    assert world.commit(5, zombie.committer) == [ErrorCode.NONE]
    # The zombie sleeps past its session; the other takes over.
    for _ in range(4):
        world.pass_time(SESSION_MS // 3)
        if other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            break
    assert other.join()
    assert other.sync()
    assert world.commit(9, other.committer) == [ErrorCode.NONE]
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        world.commit(6, zombie.committer)
    # Nor with the name of the member that lives but the generation of before.
    with refused(ErrorCode.ILLEGAL_GENERATION):
        world.commit(6, Committer(other.member_id, None, zombie.generation))
    assert world.committed() == 9


def test_g1_a_consumer_without_a_group_cannot_commit_over_members() -> None:
    world = World()
    client = Client(world)
    form_group(world, [client])
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        world.commit(1)


def test_g3_an_assignment_of_an_older_generation_is_refused() -> None:
    world = World()
    first, second = Client(world), Client(world)
    first.join()
    first.joined()
    assert first.generation == 1
    # Before the leader hands in its assignment another member comes.
    second.join()
    with refused(ErrorCode.REBALANCE_IN_PROGRESS):
        first.sync()
    first.join()
    second.joined()
    first.joined()
    assert first.generation == second.generation == 2
    stale = Client(world, member_id=first.member_id, generation=1, is_leader=True)
    with refused(ErrorCode.ILLEGAL_GENERATION):
        stale.sync()


def test_g3_members_of_one_generation_own_different_things() -> None:
    world = World()
    clients = [Client(world) for _ in range(5)]
    form_group(world, clients)
    assert len({each.generation for each in clients}) == 1
    assert len({each.assignment for each in clients}) == 5


def test_g4_a_replaced_static_member_is_fenced_also_after_a_restart() -> None:
    world = World()
    old, other = Client(world, instance_id="i-1"), Client(world, instance_id="i-2")
    form_group(world, [old, other])
    owned = old.assignment
    new = Client(world, instance_id="i-1")
    assert new.join(), "a static member that returns is answered at once"
    assert new.generation == old.generation and new.member_id != old.member_id
    assert new.sync() and new.assignment == owned
    assert other.heartbeat() == ErrorCode.NONE, "nobody else rebalances"
    for _ in range(2):
        with refused(ErrorCode.FENCED_INSTANCE_ID):
            old.heartbeat()
        with refused(ErrorCode.FENCED_INSTANCE_ID):
            world.commit(1, old.committer)
        assert new.heartbeat() == ErrorCode.NONE
        world.restart()


def test_g4_a_refused_append_leaves_the_old_instance_in_place() -> None:
    world = World()
    old = Client(world, instance_id="i-1")
    form_group(world, [old])
    world.is_refusing = True
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        Client(world, instance_id="i-1").join()
    assert old.heartbeat() == ErrorCode.NONE


def test_g5_only_what_was_committed_is_given_back() -> None:
    world = World()
    client = Client(world)
    form_group(world, [client])
    for offset in (10, 20):
        world.commit(offset, client.committer)
        assert world.committed() == offset
    world.restart()
    assert world.committed() == 20


def test_g6_a_loaded_shard_knows_every_offset_and_member() -> None:
    world = World()
    clients = [Client(world), Client(world)]
    form_group(world, clients)
    for partition in range(50):
        world.commit(100 + partition, clients[0].committer, partition=partition)
    world.compact()
    world.restart()
    assert [world.committed(partition=each) for each in range(50)] == list(range(100, 150))
    assert [each.heartbeat() for each in clients] == [ErrorCode.NONE, ErrorCode.NONE]


def test_g7_no_offset_is_not_offset_zero() -> None:
    world = World()
    assert world.committed() is None
    world.commit(0)
    assert world.committed() == 0
    world.run(lambda shard, _: shard.delete_offsets("g", [("t", 0)]))
    assert world.committed() is None
    world.restart()
    assert world.committed() is None


def test_g8_offsets_do_not_expire_while_the_group_lives() -> None:
    world = World()
    client = Client(world)
    form_group(world, [client])
    world.commit(5, client.committer)
    for _ in range(30):
        world.now = world.now._replace(wall_ms=world.now.wall_ms + DAY_MS)
        world.expire_offsets()
    assert world.committed() == 5
    client.leave()
    assert classic_group(world).state is GroupState.EMPTY
    world.now = world.now._replace(wall_ms=world.now.wall_ms + 7 * DAY_MS - 1)
    world.expire_offsets()
    assert world.committed() == 5, "a week counts from when the last member left"
    world.now = world.now._replace(wall_ms=world.now.wall_ms + 1)
    world.expire_offsets()
    assert world.committed() is None
    assert world.shard.table.find("g") is None
    world.restart()
    assert world.committed() is None and not world.shard.table.classic_groups()


def test_g8_offsets_of_a_topic_that_members_left_expire_by_their_commit() -> None:
    world = World()
    world.commit(3, topic="abandoned")
    client = Client(world)
    form_group(world, [client])
    world.commit(5, client.committer)
    world.now = world.now._replace(wall_ms=world.now.wall_ms + 8 * DAY_MS)
    world.expire_offsets()
    assert world.committed() == 5
    assert world.committed(topic="abandoned") is None


@pytest.mark.parametrize("jump_ms", [9 * DAY_MS, -9 * DAY_MS, 3650 * DAY_MS, 1000 - START_WALL_MS])
def test_g8_offsets_age_by_the_time_that_the_broker_runs(jump_ms: int) -> None:
    world = World()
    clock = WorldClock(world)
    running = RunningClock(clock)
    client = Client(world)
    form_group(world, [client])
    world.commit(5, client.committer)
    world.commit(6, group="simple")
    client.leave()

    def run_days(days: int) -> None:
        for _ in range(days * 24 * 60):
            clock.seconds += 60
            world.now = world.now._replace(wall_ms=world.now.wall_ms + 60_000)
            running.observe()

    def left() -> tuple[int | None, int | None]:
        world.run(lambda shard, _: shard.expire_offsets(running.ages().age_ms))
        return world.committed(), world.committed(group="simple")

    run_days(3)
    world.now = world.now._replace(wall_ms=world.now.wall_ms + jump_ms)
    assert left() == (5, 6)
    world.restart()
    world.commit(7, group="simple")
    run_days(3)
    assert left() == (5, 7)
    run_days(1)
    assert left() == (None, 7)
    # Set right, the clock leaves no trace: the later commit goes a week after it was made.
    world.now = world.now._replace(wall_ms=world.now.wall_ms - jump_ms)
    run_days(2)
    assert left() == (None, 7)
    run_days(1)
    assert left() == (None, None)
    assert not world.shard.table.classic_groups()


def test_g8_an_offset_with_a_retention_of_its_own_ages_by_the_time_that_the_broker_runs() -> None:
    world = World()
    commits = [Commit("t", TOPIC_ID, 0, 5, -1, "")]
    world.run(lambda shard, now: shard.commit("g", Committer("", None, -1), commits, now, 1_000))
    for age_ms, left in ((0, 5), (999, 5), (1_000, None)):
        world.run(lambda shard, _, age=age_ms: shard.expire_offsets(lambda _: age))
        assert world.committed() == left


def test_g9_an_offset_beyond_the_log_is_kept_as_it_was_committed() -> None:
    # Whether it can be read is for the fetch to say, with OFFSET_OUT_OF_RANGE; it is not altered.
    world = World()
    world.commit(10**15)
    world.restart()
    assert world.committed() == 10**15


def test_g10_a_topic_created_anew_does_not_inherit_offsets() -> None:
    world = World()
    world.commit(5)
    newer = UUID(int=2)
    assert world.committed(topic_id=newer) is None, "even before anybody heard of the deletion"
    world.run(lambda shard, _: Outcome(None, shard.offsets.topic_deleted("t", TOPIC_ID)))
    assert world.committed() is None
    world.commit(6)
    world.restart()
    world.run(lambda shard, _: Outcome(None, shard.offsets.forget_missing_topics({"t": newer})))
    assert world.committed() is None


def test_g13_a_jump_of_the_wall_clock_expires_nobody() -> None:
    world = World()
    client = Client(world)
    form_group(world, [client])
    world.commit(1, client.committer)
    for jump in (400 * DAY_MS, -800 * DAY_MS):
        world.pass_time(1_000, wall_ms=jump)
        world.expire_offsets()
        assert client.heartbeat() == ErrorCode.NONE
        assert world.committed() == 1


def test_g14_a_join_storm_ends_in_one_generation() -> None:
    world = World(GroupSettings(initial_rebalance_delay_ms=3_000))
    clients = [Client(world) for _ in range(2_000)]
    for client in clients:
        assert not client.join()
    world.pass_time(60_000)
    assert all(each.joined() for each in clients)
    assert {each.generation for each in clients} == {1}
    assert sum(each.is_leader for each in clients) == 1


def test_g14_more_members_than_the_limit_are_turned_away() -> None:
    world = World(GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2))
    form_group(world, [Client(world), Client(world)])
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        Client(world).join()
    assert len(classic_group(world).members) == 2


def test_g14_huge_metadata_is_refused_and_leaves_nothing() -> None:
    world = World()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"x" * 2_000_000)],
    )
    with refused(ErrorCode.INVALID_REQUEST):
        world.run(lambda shard, now: shard.join(request, 9, Caller("c", "/h"), now))
    assert not world.shard.table.classic_groups() and not len(world.shard.timers)


def test_a_silent_member_is_gone_after_its_session_and_not_before() -> None:
    world = World()
    silent, alive = Client(world), Client(world)
    form_group(world, [silent, alive])
    world.pass_time(SESSION_MS - 1)
    assert alive.heartbeat() == ErrorCode.NONE
    world.pass_time(1)
    assert alive.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(classic_group(world).members) == [alive.member_id]


def test_a_heartbeat_that_repeats_the_one_before_keeps_its_member() -> None:
    world = World()
    silent, alive = Client(world), Client(world)
    form_group(world, [silent, alive])
    world.pass_time(SESSION_MS - 1)
    assert world.shard.hear(alive.beat, world.now)
    world.pass_time(1)
    assert not world.shard.hear(alive.beat, world.now), "the group rebalances"
    assert list(classic_group(world).members) == [alive.member_id]


def test_a_member_that_does_not_rejoin_in_time_is_left_behind() -> None:
    world = World()
    slow, quick, newcomer = Client(world), Client(world), Client(world)
    form_group(world, [slow, quick])
    newcomer.join()
    assert not quick.join()
    for _ in range(10):
        world.pass_time(REBALANCE_MS // 10)
        if world.shard.table.find("g") and slow.member_id in classic_group(world).members:
            slow.heartbeat()
    assert quick.joined() and newcomer.joined()
    assert set(classic_group(world).members) == {quick.member_id, newcomer.member_id}
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        slow.heartbeat()


def test_members_that_never_fetch_their_assignment_are_dropped() -> None:
    world = World()
    leader, lost = Client(world), Client(world)
    leader.join()
    leader.joined()
    lost.join()
    leader.join()
    lost.joined(), leader.joined()
    first = leader if leader.is_leader else lost
    other = lost if first is leader else leader
    assert first.sync()
    for _ in range(20):
        world.pass_time(REBALANCE_MS // 20)
        if other.member_id in classic_group(world).members:
            other.heartbeat()
            first.heartbeat()
    assert other.member_id not in classic_group(world).members


def test_a_refused_append_is_tried_again_until_the_group_is_empty() -> None:
    world = World()
    client = Client(world)
    form_group(world, [client])
    world.is_refusing = True
    world.pass_time(SESSION_MS)
    assert classic_group(world).state is GroupState.PREPARING_REBALANCE
    world.is_refusing = False
    world.pass_time(2_000)
    assert classic_group(world).state is GroupState.EMPTY


def test_a_leader_whose_assignment_could_not_be_written_has_not_synced() -> None:
    world = World()
    client = Client(world)
    client.join()
    client.joined()
    world.is_refusing = True
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        client.sync()
    assert classic_group(world).state is GroupState.COMPLETING_REBALANCE
    world.is_refusing = False
    world.pass_time(REBALANCE_MS)
    assert classic_group(world).state is GroupState.EMPTY, "it never came again"


def test_protocols_without_a_common_one_are_refused() -> None:
    world = World()
    form_group(world, [Client(world, protocols=["range", "roundrobin"])])
    with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        Client(world, protocols=["sticky"]).join()
    form = Client(world, protocols=["roundrobin"])
    form.join()
    assert len(classic_group(world).members) >= 1


def test_a_promised_id_that_nobody_uses_holds_up_nobody_for_long() -> None:
    world = World()
    client, ghost = Client(world), Client(world)
    form_group(world, [client])
    answer = ghost._join_once()
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert client.heartbeat() == ErrorCode.NONE
    assert not client.join() or client.generation == 2
    world.pass_time(SESSION_MS + 1)
    assert classic_group(world).state is GroupState.COMPLETING_REBALANCE


def test_a_group_with_members_cannot_be_deleted_and_one_without_leaves_nothing() -> None:
    world = World()
    client = Client(world)
    form_group(world, [client])
    world.commit(5, client.committer)
    with refused(ErrorCode.NON_EMPTY_GROUP):
        world.run(lambda shard, _: shard.delete_group("g"))
    codes = world.run(lambda shard, _: shard.delete_offsets("g", [("t", 0)]))
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    client.leave()
    world.run(lambda shard, _: shard.delete_group("g"))
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        world.run(lambda shard, _: Outcome(shard.describe("g")))
    assert not len(world.shard.timers)
    world.compact()
    assert all(value is None for _, value in world.log)


def test_a_stable_group_is_described_with_what_its_members_own() -> None:
    world = World()
    client = Client(world)
    form_group(world, [client])
    described = world.shard.describe("g")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].member_metadata == subscription("t")
    assert described.members[0].member_assignment == b"0"
