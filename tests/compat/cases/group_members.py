"""Members of a group: they join, share the partitions, leave, come back, and notice changes."""

from __future__ import annotations

from tests.compat.cases.registry import FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, Trial, case, refused
from tests.compat.members import (
    LONG_STEP_MS,
    STEP_MS,
    Member,
    Place,
    owners_are_unique,
    until,
    until_quiet,
    until_shared,
)
from tests.compat.wire import Record

SECTION = "Groups: members"


def seed(trial: Trial, topic: str, partitions: int, numbers: range = range(10)) -> None:
    """`numbers` into each partition; a record's value is its partition and its number."""
    for partition in range(partitions):
        records = [Record(b"%d-%d" % (partition, number)) for number in numbers]
        trial.wire.produce(topic, records, partition=partition)


def places_of(topic: str, partitions: int) -> set[Place]:
    return {(topic, partition) for partition in range(partitions)}


def expected(partitions: int, numbers: range = range(10)) -> list[bytes]:
    return [b"%d-%d" % (partition, number) for partition in range(partitions) for number in numbers]


def until_read(members: list[Member], values: list[bytes], step_ms: int = STEP_MS) -> None:
    """Poll until these values were read, each once and each partition's in its order."""
    until(members, lambda: sum(len(member.records) for member in members) >= len(values), step_ms)
    read = [record for member in members for record in member.records]
    assert sorted(record.value or b"" for record in read) == sorted(values)
    for member in members:
        for place in {(record.topic, record.partition) for record in member.records}:
            offsets = [r.offset for r in member.records if (r.topic, r.partition) == place]
            assert offsets == sorted(offsets), f"{place} was read out of order"


def commit_read(trial: Trial, members: list[Member]) -> None:
    """Commit what each has read; who cannot be told to does it when the partitions are taken."""
    if trial.commits:
        for member in members:
            member.commit_read()


@case(SECTION, "join, and read everything from the start")
def group_join(trial: Trial) -> None:
    topic = trial.topic(partitions=3)
    seed(trial, topic, 3)
    member = trial.join(trial.unused_group(), [topic])
    until_read([member], expected(3))
    assert member.assignment == places_of(topic, 3)


@case(SECTION, "subscribe to two topics")
def group_two_topics(trial: Trial) -> None:
    topics = [trial.topic(partitions=2), trial.topic()]
    for topic, partitions in zip(topics, (2, 1), strict=True):
        seed(trial, topic, partitions)
    member = trial.join(trial.unused_group(), topics)
    until_read([member], expected(2) + expected(1))
    assert member.assignment == places_of(topics[0], 2) | places_of(topics[1], 1)


@case(SECTION, "two members share the partitions evenly, one owner each")
def group_share(trial: Trial) -> None:
    topic = trial.topic(partitions=4)
    group = trial.unused_group()
    members = [trial.join(group, [topic]) for _ in range(2)]
    until_shared(members, places_of(topic, 4))
    assert [len(member.assignment) for member in members] == [2, 2]
    seed(trial, topic, 4)
    until_read(members, expected(4))
    for member in members:
        assert {(r.topic, r.partition) for r in member.records} == member.assignment


@case(SECTION, "a member leaves: the other takes over where it had committed")
def group_take_over(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    group = trial.unused_group()
    members = [trial.join(group, [topic]) for _ in range(2)]
    until_shared(members, places_of(topic, 2))
    seed(trial, topic, 2)
    until_read(members, expected(2))
    commit_read(trial, members)
    leaver, stayer = members
    leaver.close()
    until([stayer], lambda: stayer.assignment == places_of(topic, 2))
    stayer.records.clear()
    seed(trial, topic, 2, range(10, 15))
    until_read([stayer], expected(2, range(10, 15)))


@case(SECTION, "more members than partitions: one is idle, and takes over")
def group_idle_member(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    members = [trial.join(group, [topic]) for _ in range(2)]
    until_shared(members, places_of(topic, 1))
    busy, idle = sorted(members, key=lambda member: -len(member.assignment))
    seed(trial, topic, 1)
    until_read([busy, idle], expected(1))
    assert idle.records == []
    busy.close()
    until([idle], lambda: idle.assignment == places_of(topic, 1))


def _share_with(trial: Trial, assignor: str) -> list[dict[str, int]]:
    """How many partitions of two topics of three each of two members gets, the same every time."""
    topics = sorted(trial.topic(partitions=3) for _ in range(2))
    group = trial.unused_group()
    members = [trial.join(group, topics, assignor=assignor) for _ in range(2)]
    until_shared(members, places_of(topics[0], 3) | places_of(topics[1], 3))
    stored = trial.group_wire.describe(group)
    assert stored.state == "Stable" and len(stored.client_ids) == 2
    assert stored.protocol == trial.client.protocol_names.get(assignor, assignor)
    counts = [{topic: len(member.partitions(topic)) for topic in topics} for member in members]
    return sorted(counts, key=lambda count: -count[topics[0]])


@case(SECTION, "assignor `range`")
def group_range(trial: Trial) -> None:
    first, second = _share_with(trial, "range")
    assert list(first.values()) == [2, 2] and list(second.values()) == [1, 1]


@case(SECTION, "assignor `roundrobin`")
def group_roundrobin(trial: Trial) -> None:
    assert [sum(count.values()) for count in _share_with(trial, "roundrobin")] == [3, 3]


@case(SECTION, "assignor `sticky`")
def group_sticky(trial: Trial) -> None:
    assert [sum(count.values()) for count in _share_with(trial, "sticky")] == [3, 3]


@case(SECTION, "assignor `cooperative-sticky`: only what moves is revoked")
def group_cooperative(trial: Trial) -> None:
    topic = trial.topic(partitions=4)
    group = trial.unused_group()
    first = trial.join(group, [topic], assignor="cooperative-sticky")
    until([first], lambda: first.assignment == places_of(topic, 4))
    second = trial.join(group, [topic], assignor="cooperative-sticky")
    # The first of two rebalances only has the partitions given back that are to move.
    until([first, second], lambda: len(second.assignment) == 2)
    assert trial.group_wire.describe(group).protocol == "cooperative-sticky"
    assert owners_are_unique([first, second], places_of(topic, 4))
    assert set(first.revoked) == second.assignment, (first.revoked, second.assignment)
    assert second.revoked == []
    second.close()
    until([first], lambda: first.assignment == places_of(topic, 4))
    assert len(first.revoked) == 2


@case(SECTION, "a static member comes back: same partitions, no rebalance")
def group_static_return(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    group = trial.unused_group()
    members = [trial.join(group, [topic], instance_id=name) for name in ("one", "two")]
    until_shared(members, places_of(topic, 2))
    until_quiet(members)
    first, second = members
    rebalances = second.rebalances
    first.close()
    back = trial.join(group, [topic], instance_id="one")
    until([back, second], lambda: back.assignment == first.assignment)
    seed(trial, topic, 2)
    until_read([back, second], expected(2))
    assert second.rebalances == rebalances
    assert owners_are_unique([back, second], places_of(topic, 2))


@case(SECTION, "a second member with the same instance id fences the first")
def group_static_fenced(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    # With so few heartbeats the first one learns of it from the commit that is refused.
    settings = {"instance_id": "one", "heartbeat_interval_ms": 6_000}
    first = trial.join(group, [topic], **settings)
    until([first], lambda: len(first.assignment) == 1)
    second = trial.join(group, [topic], **settings)
    until([second], lambda: len(second.assignment) == 1)
    second.commit({(topic, 0): 7})
    with refused(FENCED_INSTANCE_ID, {"fenced"}):
        first.commit({(topic, 0): 5})
    assert trial.group_wire.committed(group) == {(topic, 0): (7, "")}


@case(SECTION, "a member that was removed: its commit is refused, and it joins again")
def group_removed_member(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    member = trial.join(group, [topic], heartbeat_interval_ms=1_000)
    until([member], lambda: len(member.assignment) == 1)
    (member_id,) = trial.group_wire.describe(group).client_ids
    trial.group_wire.remove_member(group, member_id)
    with refused(UNKNOWN_MEMBER_ID, {"fenced"}):
        member.commit({(topic, 0): 5})
    assert trial.group_wire.committed(group) == {}
    rebalances = member.rebalances
    until([member], lambda: member.rebalances > rebalances and len(member.assignment) == 1)
    member.commit({(topic, 0): 6})
    assert trial.group_wire.committed(group) == {(topic, 0): (6, "")}


@case(SECTION, "subscribe by a pattern: a topic that comes later is noticed")
def group_pattern(trial: Trial) -> None:
    prefix = trial.unused_name()
    topics = [f"{prefix}-{number}" for number in range(2)]
    trial.topics += topics
    trial.wire.create_topic(topics[0])
    seed(trial, topics[0], 1)
    group = trial.unused_group()
    member = trial.join(group, pattern=f"{prefix}-.*", metadata_max_age_ms=200)
    until_read([member], expected(1), LONG_STEP_MS)
    trial.wire.create_topic(topics[1])
    seed(trial, topics[1], 1)
    until([member], lambda: topics[1] in {r.topic for r in member.records}, LONG_STEP_MS)
    assert member.assignment == {(topic, 0) for topic in topics}


@case(SECTION, "a topic gets more partitions: the group notices")
def group_new_partitions(trial: Trial) -> None:
    topic = trial.topic()
    member = trial.join(trial.unused_group(), [topic], metadata_max_age_ms=200)
    until([member], lambda: member.assignment == places_of(topic, 1))
    trial.wire.create_partitions(topic, 2)
    trial.wire.produce(topic, [Record(b"new")], partition=1)
    until_read([member], [b"new"], LONG_STEP_MS)
    assert member.assignment == places_of(topic, 2)


@case(SECTION, "two groups read the same topic independently")
def group_independent(trial: Trial) -> None:
    topic = trial.topic()
    seed(trial, topic, 1)
    members = [trial.join(trial.unused_group(), [topic]) for _ in range(2)]
    for member in members:
        until_read([member], expected(1))
        assert member.assignment == places_of(topic, 1)
