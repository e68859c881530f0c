"""Groups seen and changed by an administrator."""

from __future__ import annotations

from tests.compat.cases.group_members import expected, places_of, seed, until_read
from tests.compat.cases.registry import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    NON_EMPTY_GROUP,
    UNKNOWN_MEMBER_ID,
    Trial,
    case,
    refused,
)
from tests.compat.driver import ClientError
from tests.compat.members import Member, until, until_shared

SECTION = "Groups: administration"


def _live_group(trial: Trial, topic: str) -> tuple[str, Member]:
    group = trial.unused_group()
    member = trial.join(group, [topic])
    until([member], lambda: len(member.assignment) > 0)
    return group, member


@case(SECTION, "list groups, with and without members")
def list_groups(trial: Trial) -> None:
    topic = trial.topic()
    live, _ = _live_group(trial, topic)
    empty = trial.unused_group()
    trial.group_wire.commit(empty, {(topic, 0): 1})
    listed = trial.driver.list_groups()
    assert listed[live] in ("stable", None)
    assert listed[empty] in ("empty", None)
    assert trial.unused_group() not in listed


@case(SECTION, "describe a group: state, assignor, members and their partitions")
def describe_group(trial: Trial) -> None:
    topic = trial.topic(partitions=3)
    group = trial.unused_group()
    members = [trial.join(group, [topic]) for _ in range(2)]
    until_shared(members, places_of(topic, 3))
    described = trial.driver.describe_group(group)
    assert described.state == "stable"
    assert described.assignor == trial.group_wire.describe(group).protocol
    owned = {member.name: member.assignment for member in members}
    assert dict(zip(described.client_ids, described.assignments, strict=True)) == owned


@case(SECTION, "describe a group of static members")
def describe_static_group(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    member = trial.join(group, [topic], instance_id="one")
    until([member], lambda: len(member.assignment) == 1)
    assert trial.driver.describe_group(group).instance_ids == ["one"]


@case(SECTION, "describe a group whose last member has left: empty")
def describe_empty_group(trial: Trial) -> None:
    topic = trial.topic()
    group, member = _live_group(trial, topic)
    member.close()
    described = trial.driver.describe_group(group)
    assert described.state == "empty" and described.client_ids == []


@case(SECTION, "describe a group that is not there: dead, or an error")
def describe_unknown_group(trial: Trial) -> None:
    try:
        assert trial.driver.describe_group(trial.unused_group()).state == "dead"
    except ClientError as error:
        assert error.code == GROUP_ID_NOT_FOUND


@case(SECTION, "offsets of a group")
def list_group_offsets(trial: Trial) -> None:
    topic = trial.topic(partitions=3)
    group = trial.unused_group()
    offsets = {(topic, 0): 4, (topic, 2): 0}
    trial.group_wire.commit(group, offsets)
    assert trial.driver.list_group_offsets([group]) == {group: offsets}


@case(SECTION, "offsets of several groups in one request")
def list_offsets_of_several_groups(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    offsets = {trial.unused_group(): {(topic, 0): n, (topic, 1): 10 - n} for n in range(3)}
    for group, committed in offsets.items():
        trial.group_wire.commit(group, committed)
    unknown = trial.unused_group()
    found = trial.driver.list_group_offsets([*offsets, unknown])
    assert {group: found[group] for group in offsets} == offsets
    assert not found.get(unknown)


@case(SECTION, "move the offsets of a group: its next member starts there")
def alter_group_offsets(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    seed(trial, topic, 1)
    trial.group_wire.commit(group, {(topic, 0): 10})
    trial.driver.alter_group_offsets(group, {(topic, 0): 6})
    assert trial.group_wire.committed(group)[topic, 0][0] == 6
    member = trial.join(group, [topic])
    until_read([member], expected(1, range(6, 10)))


@case(SECTION, "move the offsets of a group that has members: refused")
def alter_live_group_offsets(trial: Trial) -> None:
    topic = trial.topic()
    group, _ = _live_group(trial, topic)
    with refused(UNKNOWN_MEMBER_ID, {"has_members"}):
        trial.driver.alter_group_offsets(group, {(topic, 0): 6})
    assert trial.group_wire.committed(group) == {}


@case(SECTION, "delete a group: it and its offsets are gone")
def delete_group(trial: Trial) -> None:
    topic = trial.topic()
    group, member = _live_group(trial, topic)
    member.commit({(topic, 0): 3})
    member.close()
    trial.driver.delete_group(group)
    assert trial.group_wire.committed(group) == {}
    assert trial.group_wire.describe(group).state == "Dead"


@case(SECTION, "delete a group that has members: refused")
def delete_live_group(trial: Trial) -> None:
    topic = trial.topic()
    group, member = _live_group(trial, topic)
    with refused(NON_EMPTY_GROUP):
        trial.driver.delete_group(group)
    seed(trial, topic, 1)
    until_read([member], expected(1))


@case(SECTION, "delete a group that is not there: refused")
def delete_unknown_group(trial: Trial) -> None:
    with refused(GROUP_ID_NOT_FOUND):
        trial.driver.delete_group(trial.unused_group())


@case(SECTION, "delete a group's offset of one partition")
def delete_group_offsets(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    group = trial.unused_group()
    trial.group_wire.commit(group, {(topic, 0): 4, (topic, 1): 5})
    trial.driver.delete_group_offsets(group, topic, 0)
    assert trial.group_wire.committed(group) == {(topic, 1): (5, "")}


@case(SECTION, "delete an offset of a topic that members are subscribed to: refused")
def delete_subscribed_group_offsets(trial: Trial) -> None:
    topic = trial.topic()
    group, member = _live_group(trial, topic)
    member.commit({(topic, 0): 4})
    with refused(GROUP_SUBSCRIBED_TO_TOPIC):
        trial.driver.delete_group_offsets(group, topic, 0)
    assert trial.group_wire.committed(group) == {(topic, 0): (4, "")}
