"""What a group has read: committed offsets, where a member starts, seeking and pausing."""

from __future__ import annotations

from tests.compat.cases.group_members import expected, places_of, seed, until_read
from tests.compat.cases.registry import Trial, case, refused
from tests.compat.members import Committed, until
from tests.waiting import eventually

SECTION = "Groups: offsets"
# No broker error stands for it: the client finds no offset and is told not to choose one.
NO_BROKER_CODE = -1


@case(SECTION, "resume from what was committed")
def group_resume(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    group = trial.unused_group()
    seed(trial, topic, 2)
    first = trial.join(group, [topic])
    until_read([first], expected(2))
    first.commit({(topic, 0): 10, (topic, 1): 4})
    first.close()
    second = trial.join(group, [topic])
    until_read([second], [b"1-%d" % number for number in range(4, 10)])


@case(SECTION, "commit with metadata, and read both back")
def group_commit_metadata(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    member = trial.join(group, [topic])
    until([member], lambda: len(member.assignment) == 1)
    member.commit({(topic, 0): 3}, metadata="as far as three")
    read_back = member.committed((topic, 0))
    assert read_back == Committed(3, "as far as three"), read_back
    assert trial.group_wire.committed(group) == {(topic, 0): (3, "as far as three")}
    member.commit({(topic, 0): 2})
    assert member.committed((topic, 0)) == Committed(2, "")


@case(SECTION, "what was committed, where nothing was: none")
def group_committed_none(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    member = trial.join(trial.unused_group(), [topic])
    until([member], lambda: len(member.assignment) == 2)
    assert member.committed((topic, 0)) is None
    member.commit({(topic, 0): 0})
    assert member.committed((topic, 0)) == Committed(0, "")
    assert member.committed((topic, 1)) is None


@case(SECTION, "commit without waiting")
def group_commit_async(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    member = trial.join(group, [topic])
    until([member], lambda: len(member.assignment) == 1)
    for offset in range(1, 6):
        member.commit({(topic, 0): offset}, asynchronous=True)
    until([member], lambda: trial.group_wire.committed(group) == {(topic, 0): (5, "")})


@case(SECTION, "auto-commit, while running and when the member is closed")
def group_auto_commit(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    seed(trial, topic, 1)
    first = trial.join(group, [topic], auto_commit=True)
    until_read([first], expected(1))
    seed(trial, topic, 1, range(10, 15))
    until_read([first], expected(1, range(15)))
    # A client may hold back what its last poll gave until the next one.
    until([first], lambda: trial.group_wire.committed(group).get((topic, 0), (0, ""))[0] >= 10)
    first.close()
    eventually(lambda: trial.group_wire.committed(group)[topic, 0][0] == 15)
    seed(trial, topic, 1, range(15, 18))
    second = trial.join(group, [topic], auto_commit=True)
    until_read([second], expected(1, range(15, 18)))


@case(SECTION, "`auto.offset.reset=latest`: only what comes later")
def group_reset_latest(trial: Trial) -> None:
    topic = trial.topic()
    seed(trial, topic, 1)
    member = trial.join(trial.unused_group(), [topic], reset="latest")
    until([member], lambda: member.assignment == places_of(topic, 1))

    def something_came() -> bool:
        # The end is looked up in the background: what is written before that is skipped, too.
        seed(trial, topic, 1, range(10, 11))
        return len(member.records) > 0

    until([member], something_came)
    assert set(member.values()) == {b"0-10"}


@case(SECTION, "`auto.offset.reset=none` and nothing committed: an error")
def group_reset_none(trial: Trial) -> None:
    topic = trial.topic()
    seed(trial, topic, 1)
    member = trial.join(trial.unused_group(), [topic], reset="none")
    with refused(NO_BROKER_CODE, {"no_offset"}):
        until([member], lambda: len(member.records) > 0)


@case(SECTION, "`auto.offset.reset=none` with a committed offset: goes on there")
def group_reset_none_committed(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    seed(trial, topic, 1)
    trial.group_wire.commit(group, {(topic, 0): 7})
    member = trial.join(group, [topic], reset="none")
    until_read([member], expected(1, range(7, 10)))


@case(SECTION, "committed where the log was deleted since: goes on where it starts")
def group_reset_after_trim(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    seed(trial, topic, 1)
    trial.group_wire.commit(group, {(topic, 0): 2})
    trial.wire.delete_records(topic, 0, 6)
    member = trial.join(group, [topic])
    until_read([member], expected(1, range(6, 10)))


@case(SECTION, "seek back and read again, without touching what is committed")
def group_seek(trial: Trial) -> None:
    topic = trial.topic()
    group = trial.unused_group()
    seed(trial, topic, 1)
    member = trial.join(group, [topic])
    until_read([member], expected(1))
    member.commit_read()
    member.records.clear()
    member.seek((topic, 0), 6)
    until_read([member], expected(1, range(6, 10)))
    assert trial.group_wire.committed(group) == {(topic, 0): (10, "")}


@case(SECTION, "pause a partition, and resume it")
def group_pause(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    member = trial.join(trial.unused_group(), [topic])
    seed(trial, topic, 2)
    until_read([member], expected(2))
    member.pause((topic, 0))
    member.records.clear()
    seed(trial, topic, 2, range(10, 15))
    until_read([member], [b"1-%d" % number for number in range(10, 15)])
    member.resume((topic, 0))
    until_read([member], expected(2, range(10, 15)))


@case(SECTION, "lag: the end of each partition less what is committed")
def group_lag(trial: Trial) -> None:
    topic = trial.topic(partitions=2)
    group = trial.unused_group()
    seed(trial, topic, 2)
    trial.group_wire.commit(group, {(topic, 0): 10, (topic, 1): 4})
    committed = trial.driver.list_group_offsets([group])[group]
    lags = {
        place: trial.driver.list_offset(*place, "latest") - offset
        for place, offset in committed.items()
    }
    assert lags == {(topic, 0): 0, (topic, 1): 6}
