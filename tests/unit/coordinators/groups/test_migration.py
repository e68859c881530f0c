"""A group with members goes from one protocol to the other, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.unit.coordinators.groups.classic_consumer import ClassicConsumer
from tests.unit.coordinators.groups.consumer.helpers import Consumer
from tests.unit.coordinators.groups.helpers import (
    REBALANCE_MS,
    SESSION_MS,
    World,
    classic_group,
    records_of,
)
from tidelog.config import load
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.records import ConsumerGroupMemberMetadataValue
from tidelog.coordinators.groups.migration import _Shares
from tidelog.coordinators.groups.records import GroupMetadataKey, decode_record, encode_record
from tidelog.coordinators.groups.settings import GroupSettings, group_settings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.consumer_protocol import encode_assignment

Member = Consumer | ClassicConsumer
PARTITIONS = 6


def world_with(**settings: object) -> World:
    made = World(GroupSettings(initial_rebalance_delay_ms=0, **settings))  # type: ignore[arg-type]
    made.set_topics(t=PARTITIONS)
    return made


@pytest.fixture
def world() -> World:
    return world_with()


def consumer_group(world: World) -> ConsumerGroup:
    found = world.shard.table.consumer("g")
    assert found is not None
    return found


def partitions(member: Member) -> set[int]:
    if isinstance(member, Consumer):
        return member.partitions
    return set(member.owned)


def settle(members: Iterable[Member]) -> None:
    """Let everybody take steps until nothing moves; a partition never has two owners."""
    members = list(members)
    for _ in range(100):
        moved = False
        for member in members:
            moved |= take_step(member)
            owned = [each for one in members for each in partitions(one)]
            assert len(owned) == len(set(owned)), "a partition has two owners"
        if not moved:
            return
    raise AssertionError("the group does not come to rest")


def take_step(member: Member) -> bool:
    try:
        return member.step()
    except KafkaError as error:
        if isinstance(member, Consumer):
            raise
        assert error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION), error
        return True


def shares(members: Iterable[Member]) -> list[int]:
    found = [partitions(each) for each in members]
    assert sum(map(len, found)) == PARTITIONS and set().union(*found) == set(range(PARTITIONS))
    return sorted(map(len, found))


def newer(world: World, name: str, **more: object) -> Consumer:
    made = Consumer(world, name, **more)  # type: ignore[arg-type]
    made.join()
    return made


# Up


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_members_of_both_protocols_share_a_group(world: World, is_cooperative: bool) -> None:
    old = [ClassicConsumer(world, is_cooperative=is_cooperative) for _ in range(2)]
    settle(old)
    assert shares(old) == [3, 3] and classic_group(world).generation >= 1
    new = newer(world, "new")
    settle([*old, new])
    assert shares([*old, new]) == [2, 2, 2]
    group = consumer_group(world)
    assert (group.state, group.classic_count) == ("Stable", 2)
    assert {each.member_id for each in old} < group.members.keys(), "they kept their ids"


def test_a_cooperative_member_keeps_what_it_keeps_without_a_break(world: World) -> None:
    old = ClassicConsumer(world, is_cooperative=True)
    settle([old])
    new = newer(world, "new")
    held = set(old.owned)
    for _ in range(10):
        for member in (old, new):
            take_step(member)
            held &= set(old.owned)
    assert held == set(old.owned) and len(held) == 3


def test_the_end_of_the_classic_group_and_the_consumer_group_are_written_together(
    world: World,
) -> None:
    old = ClassicConsumer(world)
    settle([old])
    written = len(world.log)
    newer(world, "new")
    records = records_of(world)[written:]
    assert isinstance(records[0].key, GroupMetadataKey) and records[0].value is None
    (kept,) = [
        each.value
        for each in records
        if isinstance(each.value, ConsumerGroupMemberMetadataValue)
        and each.value.classic_member_metadata is not None
    ]
    assert kept.classic_member_metadata is not None
    assert kept.classic_member_metadata.session_timeout_ms == SESSION_MS
    assert [each.name for each in kept.classic_member_metadata.supported_protocols] == ["range"]


def test_the_record_of_a_classic_member_is_as_kafka_writes_it() -> None:
    # Read from Kafka's own topic: a client "raw" with the assignors range and roundrobin.
    value = bytes.fromhex(
        "00000000047261770b2f3132372e302e302e31020274010000ea600001003e0100007530030672616e6765"
        "12000100000001000174ffffffff00000000000b726f756e64726f62696e12000100000001000174ffffffff"
        "000000000000"
    )
    key = b"\0\5\0\1g\0\1m"
    record = decode_record(key, value)
    assert record is not None and isinstance(record.value, ConsumerGroupMemberMetadataValue)
    classic = record.value.classic_member_metadata
    assert classic is not None and classic.session_timeout_ms == 30_000
    assert [each.name for each in classic.supported_protocols] == ["range", "roundrobin"]
    assert encode_record(record) == (key, value)


def test_whoever_waits_in_a_rebalance_is_told_to_join_again(world: World) -> None:
    first = ClassicConsumer(world)
    settle([first])
    second = ClassicConsumer(world)
    second.step()
    second.step()
    assert second.waiting is not None and not second.waiting.is_done
    new = newer(world, "new")
    settle([first, second, new])
    assert shares([first, second, new]) == [2, 2, 2]


def test_a_cooperative_member_that_has_yet_to_hear_of_its_loss_keeps_it_meanwhile(
    world: World,
) -> None:
    old = ClassicConsumer(world, is_cooperative=True)
    settle([old])
    second = ClassicConsumer(world, is_cooperative=True)
    while classic_group(world).state != "CompletingRebalance":
        take_step(second)
        take_step(old)
    assert len(old.owned) == PARTITIONS
    new = newer(world, "new")
    assert not new.target, "nobody has given anything back"
    settle([old, second, new])
    assert shares([old, second, new]) == [2, 2, 2]


def test_a_partition_that_a_leader_gave_to_two_members_has_one_owner_then(world: World) -> None:
    old = [ClassicConsumer(world) for _ in range(2)]
    settle(old)
    for member in classic_group(world).members.values():
        member.assignment = encode_assignment({"t": [0, 1, 2, 99], "gone": [0]})
    newer(world, "new")
    held = [each.held() for each in consumer_group(world).members.values()]
    topic_id = world.image.topics["t"].topic_id
    owned = [partition for each in held for partition in each.get(topic_id, ())]
    assert len(owned) == len(set(owned)) and {0, 1, 2} <= set(owned) <= set(range(PARTITIONS))
    assert all(each.keys() <= {topic_id} for each in held)


def test_partitions_that_there_are_not_cost_an_upgrade_no_work(world: World) -> None:
    compared: list[int] = []

    class Named(int):
        def __lt__(self, other: int) -> bool:
            compared.append(self)
            return int(self) < int(other)

    shares = _Shares(world.image, 1)
    assert shares.take("m", {"t": [Named(each) for each in range(10_000)], "gone": [0]})
    topic_id = world.image.topics["t"].topic_id
    assert shares.of("m") == {topic_id: dict.fromkeys(range(PARTITIONS), 1)}
    assert len(compared) < 10 * PARTITIONS


def test_a_fenced_classic_member_that_still_holds_partitions_hears_of_it_when_it_joins(
    world: World,
) -> None:
    new = newer(world, "new")
    old = ClassicConsumer(world, is_cooperative=True)
    settle([new, old])
    for _ in range(3):
        world.pass_time(SESSION_MS // 2)
        new.step()
    assert old.owned and old.member_id not in consumer_group(world).members
    old.next = "join"
    assert refusal(old.step)[0] is ErrorCode.UNKNOWN_MEMBER_ID
    settle([new, old])
    assert shares([new, old]) == [3, 3]


def test_a_refused_append_leaves_the_group_as_it_was(world: World) -> None:
    old = ClassicConsumer(world)
    settle([old])
    world.is_refusing = True
    with pytest.raises(KafkaError):
        newer(world, "new")
    world.is_refusing = False
    assert classic_group(world).state == "Stable"
    settle([old])
    assert shares([old]) == [PARTITIONS]


# Down


def test_a_group_is_classic_again_when_the_last_of_the_newer_protocol_has_gone(
    world: World,
) -> None:
    old = [ClassicConsumer(world) for _ in range(2)]
    settle(old)
    new = newer(world, "new")
    settle([*old, new])
    new.leave()
    group = classic_group(world)
    assert group.state == "PreparingRebalance" and len(group.members) == 2
    settle(old)
    assert shares(old) == [3, 3] and classic_group(world).state == "Stable"


def test_a_silent_last_member_of_the_newer_protocol_makes_way(world: World) -> None:
    old = ClassicConsumer(world)
    settle([old])
    new = newer(world, "new")
    settle([old, new])
    for _ in range(10):
        world.pass_time(SESSION_MS // 2)
        take_step(old)
    assert classic_group(world).members.keys() == {old.member_id}
    settle([old])
    assert shares([old]) == [PARTITIONS]


def test_a_consumer_group_without_members_stays_what_it_is(world: World) -> None:
    newer(world, "new").leave()
    assert consumer_group(world).state == "Empty"


# In a consumer group


def test_a_classic_member_joins_a_live_consumer_group(world: World) -> None:
    new = newer(world, "new")
    settle([new])
    old = ClassicConsumer(world)
    settle([new, old])
    assert shares([new, old]) == [3, 3] and consumer_group(world).classic_count == 1
    old.leave()
    settle([new])
    assert shares([new]) == [PARTITIONS] and consumer_group(world).classic_count == 0


@pytest.mark.parametrize("silent_for", ["session", "rejoin", "sync"])
def test_a_classic_member_that_is_late_is_fenced(world: World, silent_for: str) -> None:
    new = newer(world, "new")
    settle([new])
    old = ClassicConsumer(world)
    settle([new, old])
    third = newer(world, "third")
    if silent_for == "rejoin":
        # It beats, and does not do what it is told.
        for _ in range(REBALANCE_MS // 5_000):
            with pytest.raises(KafkaError):
                old._beat()
            for each in (new, third):
                each.step()
            world.pass_time(5_000)
    elif silent_for == "sync":
        while old.next != "sync":
            take_step(old)
        for _ in range(REBALANCE_MS // 5_000 + 1):
            for each in (new, third):
                each.step()
            world.pass_time(5_000)
    else:
        world.pass_time(SESSION_MS)
    assert old.member_id not in consumer_group(world).members
    settle([new, third])
    assert shares([new, third]) == [3, 3]


def test_static_members_go_from_one_protocol_to_the_other_and_back(world: World) -> None:
    old = [ClassicConsumer(world, instance_id=f"i-{each}") for each in range(2)]
    settle(old)
    before = [set(each.owned) for each in old]
    # The process is started anew, with the newer protocol.
    one = newer(world, "one", instance_id="i-0")
    settle([one, old[1]])
    assert [partitions(one), partitions(old[1])] == before, "nothing moved"
    two = newer(world, "two", instance_id="i-1")
    settle([one, two])
    assert shares([one, two]) == [3, 3] and consumer_group(world).classic_count == 0
    back = ClassicConsumer(world, instance_id="i-0")
    settle([back, two])
    assert shares([back, two]) == [3, 3] and consumer_group(world).classic_count == 1
    last = ClassicConsumer(world, instance_id="i-1")
    settle([back, last])
    assert shares([back, last]) == [3, 3] and classic_group(world).state == "Stable"


@pytest.mark.parametrize("rebalance_timeout_ms", [0, 1])
def test_a_static_member_without_time_to_rebalance_does_not_keep_the_broker_busy(
    world: World, rebalance_timeout_ms: int
) -> None:
    world.set_topics(t=PARTITIONS, u=1)
    Consumer(world, "one", topics=["u"], instance_id="i").join()
    # It takes the place of the last one of the newer protocol, and wants another topic.
    back = ClassicConsumer(world, instance_id="i", rebalance_timeout_ms=rebalance_timeout_ms)
    back.step()
    world.pass_time(2_000)
    assert back.member_id in classic_group(world).members, "its session decides"
    world.restart()
    # A record that says so is from an older version.
    next(iter(classic_group(world).members.values())).rebalance_timeout_ms = 0
    world.pass_time(2_000)
    world.pass_time(SESSION_MS)
    assert classic_group(world).state == "Empty"


def test_offsets_stay_through_both_changes(world: World) -> None:
    old = ClassicConsumer(world)
    settle([old])
    topic_id = world.image.topics["t"].topic_id
    assert old.commit(0, 7) is ErrorCode.NONE
    new = newer(world, "new")
    settle([old, new])
    mine, theirs = min(old.owned), min(new.partitions)
    assert old.commit(mine, 8) is ErrorCode.NONE and new.commit(theirs, 9) is ErrorCode.NONE
    with pytest.raises(KafkaError) as raised:
        old.generation -= 1
        old.commit(theirs, 99)
    assert raised.value.code is ErrorCode.ILLEGAL_GENERATION
    old.generation += 1
    new.leave()
    settle([old])
    assert world.committed(partition=mine, topic_id=topic_id) == 8
    assert world.committed(partition=theirs, topic_id=topic_id) == 9


@pytest.mark.parametrize("compacted", [False, True])
def test_a_group_of_both_protocols_lives_through_a_restart(world: World, compacted: bool) -> None:
    old = [ClassicConsumer(world) for _ in range(2)]
    settle(old)
    new = newer(world, "new")
    for member in (*old, new):
        take_step(member)
    if compacted:
        world.compact()
    before = consumer_group(world)
    world.restart()
    after = consumer_group(world)
    assert (after.members, after.targets, after.epoch) == (
        before.members, before.targets, before.epoch,
    )  # fmt: skip
    assert after.classic_count == 2 and after.classic_protocols == before.classic_protocols
    settle([*old, new])
    assert shares([*old, new]) == [2, 2, 2]
    new.leave()
    if compacted:
        world.compact()
    world.restart()
    assert len(classic_group(world).members) == 2
    settle(old)
    assert shares(old) == [3, 3]


def test_a_silent_classic_member_is_fenced_after_a_restart_too(world: World) -> None:
    old = ClassicConsumer(world)
    settle([old])
    new = newer(world, "new")
    settle([old, new])
    world.restart()
    for _ in range(3):
        world.pass_time(SESSION_MS // 2)
        new.step()
    assert consumer_group(world).members.keys() == {"new"}


# What is not done


def refusal(act: object) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as raised:
        act()  # type: ignore[operator]
    return raised.value.code, raised.value.message or ""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"allows_upgrade": False}, "online upgrade is disabled"),
        ({"consumer_group_size_max": 1}, "exceeds the consumer group maximum size"),
    ],
)
def test_a_classic_group_that_may_not_be_moved_is_left_alone(
    settings: dict[str, object], reason: str
) -> None:
    world = world_with(**settings)
    old = [ClassicConsumer(world) for _ in range(2)]
    settle(old)
    code, message = refusal(lambda: newer(world, "new"))
    assert code is ErrorCode.GROUP_ID_NOT_FOUND and reason in message
    settle(old)
    assert shares(old) == [3, 3] and classic_group(world).state == "Stable"


@pytest.mark.parametrize(("protocol", "is_moved"), [("range", False), ("cooperative-sticky", True)])
def test_data_of_the_members_own_assignor_keep_a_group_as_it_is(
    world: World, protocol: str, is_moved: bool
) -> None:
    old = ClassicConsumer(world, is_cooperative=protocol != "range")
    settle([old])
    assert classic_group(world).protocol == protocol
    (member,) = classic_group(world).members.values()
    member.assignment = member.assignment[:-4] + b"\0\0\0\4data"
    if is_moved:
        settle([old, newer(world, "new")])
        assert consumer_group(world).classic_count == 1
    else:
        code, message = refusal(lambda: newer(world, "new"))
        assert code is ErrorCode.GROUP_ID_NOT_FOUND and "custom assignor" in message


@pytest.mark.parametrize("settings", [{"allows_downgrade": False}, {"group_size_max": 1}])
def test_a_consumer_group_that_may_not_be_moved_goes_on_with_classic_members(
    settings: dict[str, object],
) -> None:
    world = world_with(**settings)
    new = newer(world, "new")
    old = [ClassicConsumer(world) for _ in range(2)]
    settle([new, *old])
    new.leave()
    settle(old)
    assert shares(old) == [3, 3] and consumer_group(world).classic_count == 2
    again = ClassicConsumer(world)
    settle([*old, again])
    assert shares([*old, again]) == [2, 2, 2]


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ("bidirectional", (True, True)),
        ("upgrade", (True, False)),
        ("downgrade", (False, True)),
        ("disabled", (False, False)),
    ],
)
def test_the_policy_says_which_way_a_group_may_go(policy: str, allowed: tuple[bool, bool]) -> None:
    config = load(overrides={"group.consumer.migration.policy": policy})
    settings = group_settings(config)
    assert (settings.allows_upgrade, settings.allows_downgrade) == allowed


def test_a_classic_member_without_a_common_assignor_is_refused(world: World) -> None:
    new = newer(world, "new")
    old = ClassicConsumer(world)
    settle([new, old])
    group = consumer_group(world)
    assert group.knows_protocol(["range", "sticky"]) and not group.knows_protocol(["sticky"])
