"""Groups of the protocol in which the coordinator assigns the partitions (KIP-848)."""

from __future__ import annotations

from tests.compat.cases.group_members import expected, places_of, seed, until_read
from tests.compat.cases.registry import Trial, case
from tests.compat.members import Member, owners_are_unique, until, until_shared

SECTION = "Groups: `group.protocol=consumer`"


def _join(trial: Trial, group: str, topic: str, **settings: object) -> Member:
    return trial.join(group, [topic], protocol="consumer", **settings)


def _share(trial: Trial, topic: str, partitions: int, **settings: object) -> list[Member]:
    group = trial.unused_group()
    members = [_join(trial, group, topic, **settings) for _ in range(2)]
    until_shared(members, places_of(topic, partitions))
    until(members, lambda: [len(member.assignment) for member in members] == [partitions // 2] * 2)
    return members


@case(SECTION, "join, and read everything from the start, by the new protocol")
def consumer_protocol_join(trial: Trial) -> None:
    topic = trial.topic(partitions=3)
    seed(trial, topic, 3)
    member = _join(trial, trial.unused_group(), topic)
    until_read([member], expected(3))
    assert member.assignment == places_of(topic, 3)


@case(SECTION, "two members share the partitions, and only what moves is revoked")
def consumer_protocol_share(trial: Trial) -> None:
    topic = trial.topic(partitions=4)
    group = trial.unused_group()
    first = _join(trial, group, topic)
    until([first], lambda: first.assignment == places_of(topic, 4))
    second = _join(trial, group, topic)
    until([first, second], lambda: len(second.assignment) == 2)
    assert owners_are_unique([first, second], places_of(topic, 4))
    assert set(first.revoked) == second.assignment and second.revoked == []
    seed(trial, topic, 4)
    until_read([first, second], expected(4))


@case(SECTION, "a member leaves: the other takes over, by the new protocol")
def consumer_protocol_take_over(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    leaver, stayer = members = _share(trial, topic, 2)
    seed(trial, topic, 2)
    until_read(members, expected(2))
    leaver.commit_read()
    revoked = list(stayer.revoked)
    leaver.close()
    until([stayer], lambda: stayer.assignment == places_of(topic, 2))
    stayer.records.clear()
    seed(trial, topic, 2, range(10, 15))
    until_read([stayer], expected(2, range(10, 15)))
    assert stayer.revoked == revoked


@case(SECTION, "resume from what was committed, by the new protocol")
def consumer_protocol_resume(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    group = trial.unused_group()
    seed(trial, topic, 2)
    first = _join(trial, group, topic)
    until_read([first], expected(2))
    first.commit({(topic, 0): 10, (topic, 1): 4})
    first.close()
    second = _join(trial, group, topic)
    until_read([second], [b"1-%d" % number for number in range(4, 10)])


@case(SECTION, "a static member comes back to the same partitions, by the new protocol")
def consumer_protocol_static_return(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    group = trial.unused_group()
    first, second = (_join(trial, group, topic, instance_id=name) for name in ("one", "two"))
    until([first, second], lambda: len(first.assignment) == len(second.assignment) == 1)
    assert owners_are_unique([first, second], places_of(topic, 2))
    revoked = list(second.revoked)
    first.close()
    back = _join(trial, group, topic, instance_id="one")
    until([back, second], lambda: back.assignment == first.assignment)
    assert second.revoked == revoked and len(second.assignment) == 1


@case(SECTION, "describe a group of the new protocol, live and empty")
def consumer_protocol_describe(trial: Trial) -> None:
    topic = trial.topic(partitions=4)
    members = _share(trial, topic, 4)
    group = members[0].group
    described = trial.driver.describe_group(group)
    assert described.state == "stable" and described.assignor == "uniform"
    owned = {member.name: member.assignment for member in members}
    assert dict(zip(described.client_ids, described.assignments, strict=True)) == owned
    assert trial.driver.list_groups()[group] == "stable"
    for member in members:
        member.close()
    assert trial.driver.describe_group(group).state == "empty"
    trial.driver.delete_group(group)
    assert group not in trial.driver.list_groups()
