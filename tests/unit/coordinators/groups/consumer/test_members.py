"""Consumer groups on a virtual clock: joins, moves, fences, restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.coordinators.groups.consumer.helpers import Consumer, group_of, settle
from tests.unit.coordinators.groups.helpers import REBALANCE_MS, Client, World, form_group
from tidelog.coordinators.groups.commits import Committer
from tidelog.coordinators.groups.consumer.group import MemberState
from tidelog.coordinators.groups.settings import Caller, GroupSettings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

SESSION_MS = 45_000


@pytest.fixture
def world() -> World:
    made = World()
    made.set_topics(t=6)
    return made


def consumer(world: World, name: str, **more: object) -> Consumer:
    made = Consumer(world, name, **more)  # type: ignore[arg-type]
    made.join()
    return made


def refused(act: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        act()  # type: ignore[operator]
    return raised.value.code


# Coming and going


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    one = consumer(world, "one")
    assert one.epoch == 2 and one.heartbeat_interval_ms == 5_000
    one.reconcile()
    assert one.partitions == set(range(6))
    group = group_of(world)
    assert (group.epoch, group.target_epoch, group.state) == (2, 2, "Stable")


def test_a_partition_moves_only_after_its_owner_has_given_it_back(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    two = consumer(world, "two")
    assert two.target == frozenset() and two.epoch == 3
    assert group_of(world).members["two"].state is MemberState.UNRELEASED_PARTITIONS
    one.beat()
    assert one.epoch == 2, "it stays in its epoch while it owns what it lost"
    assert group_of(world).members["one"].state is MemberState.UNREVOKED_PARTITIONS
    two.beat()
    assert two.target == frozenset()
    assert one.reconcile()
    one.beat()
    assert one.epoch == 3
    two.beat()
    two.reconcile()
    assert len(two.owned) == 3 and not two.owned & one.owned
    assert group_of(world).state == "Stable"


def test_more_members_than_partitions_idle_cleanly(world: World) -> None:
    members = [consumer(world, f"m{each}") for each in range(9)]
    settle(*members)
    assert sorted(len(each.owned) for each in members) == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert group_of(world).state == "Stable"


def test_a_member_that_leaves_frees_what_it_owned(world: World) -> None:
    one, two = consumer(world, "one"), consumer(world, "two")
    settle(one, two)
    two.leave()
    settle(one)
    assert one.partitions == set(range(6)) and one.epoch == 4
    one.leave()
    group = group_of(world)
    assert (group.state, group.epoch, group.target_epoch) == ("Empty", 5, 4)
    assert refused(two.beat) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_fenced_and_a_refused_append_is_tried_again(world: World) -> None:
    one, two = consumer(world, "one"), consumer(world, "two")
    settle(one, two)
    for _ in range(8):
        world.pass_time(SESSION_MS // 8 - 1)
        one.beat()
    world.is_refusing = True
    world.pass_time(5_000)
    assert set(group_of(world).members) == {"one", "two"}
    world.is_refusing = False
    world.pass_time(1_500)
    assert set(group_of(world).members) == {"one"}
    settle(one)
    assert one.partitions == set(range(6))
    assert refused(two.beat) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_groups_own_settings_hold_from_the_next_heartbeat_on(world: World) -> None:
    one = consumer(world, "one")
    assert one.heartbeat_interval_ms == 5_000
    own = {"consumer.session.timeout.ms": "2000", "consumer.heartbeat.interval.ms": "700"}
    world.image = replace(world.image, group_configs={group_of(world).group_id: own})
    one.beat()
    assert one.heartbeat_interval_ms == 700
    world.pass_time(1_999)
    assert set(group_of(world).members) == {"one"}
    world.pass_time(1)
    assert set(group_of(world).members) == set()


def test_who_does_not_give_back_in_time_is_fenced(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    two = consumer(world, "two")
    one.beat()
    for _ in range(6):
        world.pass_time(REBALANCE_MS // 6)
        if "one" in group_of(world).members:
            one.beat()
        two.beat()
    assert set(group_of(world).members) == {"two"}
    assert refused(one.beat) is ErrorCode.UNKNOWN_MEMBER_ID
    settle(two)
    assert two.partitions == set(range(6))


def test_who_gives_back_in_time_is_not_fenced_later(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    two = consumer(world, "two")
    settle(one, two)
    for _ in range(8):
        world.pass_time(REBALANCE_MS // 4)
        one.beat(), two.beat()
    assert set(group_of(world).members) == {"one", "two"}


# Epochs


def test_an_answer_that_was_lost_is_given_again(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    two = consumer(world, "two")
    settle(one, two)
    two.leave()
    one.send(one.full_request())
    # The answer with epoch 4 never arrived: it comes again with the epoch before, and all it owns.
    again = one.send(one.full_request())
    assert again.member_epoch == 4 and again.assignment is not None


def test_a_member_in_another_epoch_is_fenced(world: World) -> None:
    one, two = consumer(world, "one"), consumer(world, "two")
    settle(one, two)
    one.epoch += 1
    assert refused(one.beat) is ErrorCode.FENCED_MEMBER_EPOCH
    one.epoch -= 2
    assert refused(one.beat) is ErrorCode.FENCED_MEMBER_EPOCH
    one.join()
    settle(one, two)
    assert len(one.owned) == len(two.owned) == 3


# Subscriptions and metadata


def test_new_partitions_and_topics_are_noticed_by_the_next_heartbeat(world: World) -> None:
    one = consumer(world, "one", topics=["t", "later"])
    one.step()
    epoch = group_of(world).epoch
    world.set_topics(t=8)
    settle(one)
    assert len(one.owned) == 8 and group_of(world).epoch == epoch + 1
    world.set_topics(t=8, later=2, other=5)
    settle(one)
    assert len(one.owned) == 10
    world.set_topics(later=2)
    settle(one)
    assert len(one.owned) == 2 and group_of(world).epoch == epoch + 3
    world.set_topics(later=2, other=9)
    settle(one)
    assert group_of(world).epoch == epoch + 3, "nobody consumes that topic"


def test_a_changed_subscription_gives_back_at_once(world: World) -> None:
    world.set_topics(t=4, u=4)
    one = consumer(world, "one", topics=["t", "u"])
    one.step()
    one.subscribe("u")
    settle(one)
    assert one.owned == {(world.image.topics["u"].topic_id, each) for each in range(4)}
    assert not group_of(world).is_subscribed_to("t")


def test_members_choose_the_assignor_by_majority(world: World) -> None:
    members = [consumer(world, f"m{each}", assignor="range") for each in range(2)]
    settle(*members)
    assert [each.partitions for each in members] == [{0, 1, 2}, {3, 4, 5}]
    described = world.shard.describe_consumer("g")
    assert described.assignor_name == "range" and described.group_state == "Stable"
    assert {each.member_epoch for each in described.members} == {3}
    assert described.members[0].assignment.topic_partitions[0].topic_name == "t"


# Static members


def test_a_static_member_returns_without_disturbing_anybody(world: World) -> None:
    one = consumer(world, "one", instance_id="i-1")
    two = consumer(world, "two")
    settle(one, two)
    before, epoch = one.owned, group_of(world).epoch
    assert refused(lambda: consumer(world, "early", instance_id="i-1")) is (
        ErrorCode.UNRELEASED_INSTANCE_ID
    )
    one.leave(-2)
    two.beat()
    assert len(two.owned) == 3
    again = consumer(world, "again", instance_id="i-1")
    again.reconcile()
    assert again.owned == before and group_of(world).epoch == epoch
    one.epoch = epoch
    assert refused(one.beat) is ErrorCode.FENCED_INSTANCE_ID
    world.restart()
    again.beat()


def test_a_static_member_that_stays_away_is_fenced(world: World) -> None:
    one, two = consumer(world, "one", instance_id="i-1"), consumer(world, "two")
    settle(one, two)
    one.leave(-2)
    for _ in range(5):
        world.pass_time(SESSION_MS // 4)
        two.beat()
    settle(two)
    assert two.partitions == set(range(6))


def test_an_administrator_removes_a_static_member(world: World) -> None:
    one, two = consumer(world, "one", instance_id="i-1"), consumer(world, "two")
    settle(one, two)
    request = LeaveGroupRequest(
        "g", members=[MemberIdentity("", "i-1"), MemberIdentity("", "nobody")]
    )
    response = world.run(lambda shard, now: shard.leave(request, 5, now))
    assert [each.error_code for each in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert set(group_of(world).members) == {"two"}


# What is refused


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": ["t" * 2_000_000]}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "random"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    world: World, change: dict[str, object], code: ErrorCode
) -> None:
    made = Consumer(world, "one")
    request = made.full_request()
    for name, value in change.items():
        setattr(request, name, value)
    assert refused(lambda: made.send(request)) is code
    assert not world.log and not world.shard.table.consumer_groups()


def test_version_0_is_given_a_member_id(world: World) -> None:
    request = Consumer(world, "").full_request()
    caller = Caller("c", "/::1")
    response: ConsumerGroupHeartbeatResponse = world.run(
        lambda shard, now: shard.consumer_heartbeat(request, 0, caller, now)
    )
    assert response.member_id and response.member_id in group_of(world).members
    beat = ConsumerGroupHeartbeatRequest("g", response.member_id, response.member_epoch)
    world.run(lambda shard, now: shard.consumer_heartbeat(beat, 0, caller, now))


def test_a_full_group_takes_nobody_else() -> None:
    world = World(GroupSettings(consumer_group_size_max=1))
    world.set_topics(t=1)
    one = consumer(world, "one", instance_id="i-1")
    assert refused(lambda: consumer(world, "two")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    one.leave(-2)
    consumer(world, "again", instance_id="i-1")


# Both protocols


def test_members_and_groups_of_one_protocol_are_not_those_of_the_other(world: World) -> None:
    form_group(world, [Client(world)])
    one = consumer(world, "one", group="new")
    joining = Client(world, group="new", member_id=one.member_id)
    assert refused(joining.heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID
    assert {(each.group_id, each.group_type) for each in world.shard.list_groups()} == {
        ("g", "classic"), ("new", "consumer"),
    }  # fmt: skip
    assert refused(lambda: world.shard.describe("new")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(lambda: world.shard.describe_consumer("g")) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("compacted", [False, True])
def test_an_empty_group_may_change_its_protocol_and_keeps_its_offsets(
    world: World, compacted: bool
) -> None:
    def restart() -> None:
        if compacted:
            world.compact()
        world.restart()

    classic = Client(world)
    form_group(world, [classic])
    world.commit(7, classic.committer)
    classic.leave()
    one = consumer(world, "one")
    assert not world.shard.table.classic_groups() and world.committed() == 7
    restart()
    assert not world.shard.table.classic_groups() and world.committed() == 7
    one.beat()
    one.leave()
    other = Client(world)
    form_group(world, [other])
    assert not world.shard.table.consumer_groups() and world.committed() == 7
    restart()
    assert not world.shard.table.consumer_groups() and world.committed() == 7
    assert other.heartbeat() == ErrorCode.NONE


def test_a_change_of_protocol_that_was_refused_does_not_come_up_later(world: World) -> None:
    one = consumer(world, "one")
    one.leave()
    world.is_refusing = True
    # In this version a member is taken at once, and waits for the rebalance.
    assert refused(Client(world, version=3).join) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.is_refusing = False
    one.join()
    for _ in range(20):
        world.pass_time(REBALANCE_MS // 2)
        one.step()
    assert one.partitions == set(range(6)) and not world.shard.table.classic_groups()
    assert world.shard.timers.next_deadline_ms() is not None and len(world.shard.timers) == 1


def test_a_change_of_protocol_that_stops_halfway_loses_no_offsets(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    assert one.commit(0, 5) is ErrorCode.NONE
    one.leave()
    Client(world).join()
    # The group has no generation yet, so nothing but its offsets is in the log.
    world.restart()
    assert [(each.group_id, each.group_type) for each in world.shard.list_groups()] == [
        ("g", "classic")
    ]
    world.run(lambda shard, _: shard.delete_group("g"))
    assert not len(world.shard.offsets)


def test_only_an_empty_group_is_deleted_and_takes_its_offsets_with_it(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    assert one.commit(0, 5) is ErrorCode.NONE
    assert refused(lambda: world.shard.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    codes = world.run(lambda shard, _: shard.delete_offsets("g", [("t", 0), ("other", 0)]))
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    one.leave()
    world.run(lambda shard, _: shard.delete_group("g"))
    world.compact()
    world.restart()
    assert not world.shard.table and not len(world.shard.offsets)
    assert all(value is None for _, value in world.log)


# Offsets


def test_g2_a_late_commit_cannot_move_what_somebody_else_owns(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    before = one.epoch
    two = consumer(world, "two")
    settle(one, two)
    kept, lost = min(one.partitions), min(two.partitions)
    assert one.epoch > before
    assert one.commit(lost, 1, epoch=before) is ErrorCode.STALE_MEMBER_EPOCH
    # It has owned this one all the time: nobody else could have moved it (KIP-1251).
    assert one.commit(kept, 2, epoch=before) is ErrorCode.NONE
    two.leave()
    settle(one)
    assert lost in one.partitions
    # What came back is not what it was: two had it in between.
    assert one.commit(lost, 3, epoch=before) is ErrorCode.STALE_MEMBER_EPOCH
    world.restart()
    assert one.commit(lost, 3, epoch=before) is ErrorCode.STALE_MEMBER_EPOCH
    assert one.commit(lost, 4) is ErrorCode.NONE


def test_commits_and_fetches_name_the_member_and_its_epoch(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    assert one.commit(0, 1, epoch=9) is ErrorCode.STALE_MEMBER_EPOCH
    nobody = Committer("", None, -1, 9)
    assert refused(lambda: world.commit(1, nobody)) is ErrorCode.UNKNOWN_MEMBER_ID
    older = one.committer._replace(version=8)
    assert refused(lambda: world.commit(1, older)) is ErrorCode.UNSUPPORTED_VERSION
    check = world.shard.offsets.check_fetch
    check("g", None, -1), check("g", "one", 2), check("unknown", "one", 2)
    assert refused(lambda: check("g", "one", 1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused(lambda: check("g", "two", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    one.leave()
    assert world.commit(5, nobody) == [ErrorCode.NONE]
    late = Committer("one", None, 1, 9)
    assert refused(lambda: world.commit(1, late, group="never")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_g8_offsets_stay_while_the_group_lives_and_for_the_retention_after() -> None:
    day = 24 * 60 * 60 * 1_000
    world = World()
    world.set_topics(t=1)
    one = consumer(world, "one")
    one.step()
    one.commit(0, 5)
    topic_id = world.image.topics["t"].topic_id

    for _ in range(30):
        world.pass_time(SESSION_MS // 2, day)
        one.beat()
        world.expire_offsets()
    assert world.committed(topic_id=topic_id) == 5
    one.leave()
    world.restart()
    world.pass_time(1_000, 7 * day - 1_000)
    world.expire_offsets()
    assert world.committed(topic_id=topic_id) == 5
    world.pass_time(1_000, 2_000)
    world.expire_offsets()
    assert world.committed(topic_id=topic_id) is None and not world.shard.table


def test_a_member_one_epoch_behind_may_not_claim_more_than_it_was_given(world: World) -> None:
    one = consumer(world, "one")
    one.step()
    two = consumer(world, "two")
    claimed = one.owned
    settle(one, two)
    one.epoch -= 1
    one.owned = claimed
    one.has_news = True
    assert group_of(world).members["one"].previous_epoch in (one.epoch, one.epoch + 1)
    assert refused(one.beat) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_takes_another_instance_gives_up_what_it_was(world: World) -> None:
    world.set_topics(t=6, u=2)
    keeps, away = consumer(world, "keeps"), consumer(world, "away", instance_id="i-2")
    moves = consumer(world, "moves", topics=[], instance_id="i-1", pattern="u")
    world.pass_time(1_000)
    settle(keeps, away, moves)
    assert moves.topic_names == {"u"} and "u" in group_of(world).resolved
    away.leave(-2)
    moves.instance_id, moves.topics, moves.pattern = "i-2", ["t"], ""
    moves.join()
    settle(keeps, moves)
    group = group_of(world)
    assert set(group.members) == {"keeps", "moves"} and set(group.instances) == {"i-2"}
    assert not group.resolved and not group.pattern_subscribers and "u" not in group.subscribers
    assert sorted((len(keeps.owned), len(moves.owned))) == [3, 3]
