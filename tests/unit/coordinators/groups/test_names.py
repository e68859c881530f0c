"""Names that a record of a group has no room for, and claims beyond all measure, are refused before
anything is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.coordinators.groups.classic_consumer import subscription as owning
from tests.unit.coordinators.groups.consumer.helpers import Consumer, group_of
from tests.unit.coordinators.groups.helpers import REBALANCE_MS, SESSION_MS, World, subscription
from tidelog.coordinators.groups.classic.joins import CLAIMS_MAX
from tidelog.coordinators.groups.settings import Caller
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

TOO_LONG = "é" * 20_000


@pytest.fixture
def world() -> World:
    made = World()
    made.set_topics(t=6)
    return made


@pytest.mark.parametrize("name", ["group_id", "member_id", "instance_id", "rack_id"])
def test_a_heartbeat_with_too_long_a_name_is_refused(world: World, name: str) -> None:
    one = Consumer(world, "one")
    with pytest.raises(KafkaError, match="is longer than") as raised:
        one.send(replace(one.full_request(), **{name: TOO_LONG}))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert not world.log and not len(world.shard.table)


def classic_join(**more: object) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", subscription("t"))]
    request = JoinGroupRequest("g", SESSION_MS, REBALANCE_MS, "", "i", "consumer", protocols)
    return replace(request, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_consumer_group", [False, True])
@pytest.mark.parametrize(
    "request_",
    [
        classic_join(group_id=TOO_LONG),
        classic_join(member_id=TOO_LONG, group_instance_id=None),
        classic_join(group_instance_id=TOO_LONG),
        classic_join(protocol_type=TOO_LONG),
        classic_join(protocols=[JoinGroupRequestProtocol(TOO_LONG, subscription("t"))]),
    ],
    ids=["group", "member", "instance", "type", "protocol"],
)
def test_a_join_with_too_long_a_name_is_refused(
    world: World, request_: JoinGroupRequest, is_consumer_group: bool
) -> None:
    if is_consumer_group:
        Consumer(world, "one").join()
    kept = len(world.log)
    caller = Caller("client", "/127.0.0.1")
    with pytest.raises(KafkaError) as raised:
        world.run(lambda shard, now: shard.join(request_, 9, caller, now))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert len(world.log) == kept


@pytest.mark.parametrize("is_consumer_group", [False, True])
def test_a_join_that_claims_too_many_partitions_is_refused(
    world: World, is_consumer_group: bool
) -> None:
    if is_consumer_group:
        Consumer(world, "one").join()
    kept = len(world.log)
    claims = owning(frozenset(range(CLAIMS_MAX + 1)))
    few = JoinGroupRequestProtocol("range", owning(frozenset(range(6))))
    many = JoinGroupRequestProtocol("cooperative-sticky", claims)
    request = classic_join(protocols=[few, many], group_instance_id=None)
    with pytest.raises(
        KafkaError, match="claims 25001 partitions; at most 25000 are taken"
    ) as told:
        world.run(lambda shard, now: shard.join(request, 3, Caller("c", "/127.0.0.1"), now))
    assert told.value.code is ErrorCode.INVALID_REQUEST
    assert len(world.log) == kept


def test_what_members_of_other_protocols_say_is_not_looked_into(world: World) -> None:
    claims = owning(frozenset(range(CLAIMS_MAX + 1)))
    protocols = [JoinGroupRequestProtocol("range", claims)]
    request = classic_join(protocols=protocols, group_instance_id=None, protocol_type="connect")
    world.run(lambda shard, now: shard.join(request, 3, Caller("c", "/127.0.0.1"), now))
    assert len(world.shard.table) == 1


def test_a_client_id_that_leaves_no_room_for_a_member_id_is_refused(world: World) -> None:
    caller = Caller("c" * 32_767, "/127.0.0.1")
    request = classic_join(group_instance_id=None)
    with pytest.raises(KafkaError) as raised:
        world.run(lambda shard, now: shard.join(request, 9, caller, now))
    assert raised.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [-(2**31), -2, 0])
def test_a_member_has_some_time_to_give_back_whatever_it_says(
    world: World, timeout_ms: int
) -> None:
    # Kafka takes these, too.
    one = Consumer(world, "one")
    one.take(one.send(replace(one.full_request(), rebalance_timeout_ms=timeout_ms)))
    assert group_of(world).members["one"].rebalance_timeout_ms == 1_000
