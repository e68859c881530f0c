"""What is odd and yet legal: the checker finds nothing, and counts right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.history.checker import STALE_NS, check
from tests.history.events import HistoryTail, HistoryWriter, Record, read_history
from tests.unit.history.stories import P, Q, Story

GOOD: list[Callable[[], Story]] = []


def good(story: Callable[[], Story]) -> Callable[[], Story]:
    GOOD.append(story)
    return story


@good
def nothing_happens() -> Story:
    return Story()


@good
def the_uncommitted_tail_is_repeated() -> Story:
    story = Story().send(0, 1, 2, 3).assign("a", 1).poll("a", 1, 0, 1).commit("a", 1, 1).kill("a")
    return story.assign("b", 2).poll("b", 2, 1, 2, 3).commit("b", 2, 4).read_committed(4)


@good
def everything_is_repeated_where_nothing_was_committed() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0, 1).kill("a").read_committed(None)
    return story.assign("b", 2).poll("b", 2, 0, 1)


@good
def a_commit_in_flight_at_a_kill_took_effect() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1).commit_unknown("a", 1, 2)
    return story.kill("a").assign("b", 2).poll("b", 2, 2).read_log(0, 1, 2)


@good
def a_commit_in_flight_at_a_kill_did_not_take_effect() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1).commit_unknown("a", 1, 2)
    return story.kill("a").assign("b", 2).poll("b", 2, 0, 1, 2)


@good
def a_commit_failed_without_an_answer_and_took_effect() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0)
    number = story.begin_commit("a", 1, 1)
    story.kill_broker().end_commit("a", 1, number, "_TIMED_OUT")
    return story.read_committed(1).poll("a", 1, 1)


@good
def a_repeated_commit_is_refused_and_its_first_try_took_effect() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0)
    number = story.begin_commit("a", 1, 1)
    story.kill_broker().end_commit("a", 1, number, "UNKNOWN_MEMBER_ID", refused=True)
    return story.read_committed(1).assign("b", 2).poll("b", 2, 1)


@good
def a_sleeper_believes_in_its_old_generation_and_is_refused() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0).assign("b", 2)
    story.poll("b", 2, 0, 1).commit("b", 2, 2).poll("a", 1, 1, 2).commit_refused("a", 1, 3)
    return story.revoke("a", lost=True).poll("b", 2, 2).commit("b", 2, 3).read_committed(3)


@good
def the_answer_to_a_commit_waits_for_a_sleeper() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0)
    number = story.begin_commit("a", 1, 1)
    story.assign("b", 2).poll("b", 2, 1).commit("b", 2, 2)
    return story.end_commit("a", 1, number).read_committed(2)


@good
def a_member_returns_to_a_partition_in_a_later_generation() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0).commit("a", 1, 1).revoke("a")
    story.assign("b", 2).poll("b", 2, 1).commit("b", 2, 2).revoke("b")
    return story.assign("a", 3).poll("a", 3, 2).commit("a", 3, 3)


@good
def partitions_stay_with_their_owner_through_a_cooperative_rebalance() -> Story:
    story = Story().send(0, 1, 2).send(0, 1, to=Q).assign("a", 1, P, Q)
    story.poll("a", 1, 0).poll("a", 1, 0, of=Q).commit("a", 1, 1, of=Q).revoke("a", Q)
    story.poll("a", 2, 1).assign("b", 3, Q).poll("b", 3, 1, of=Q)
    return story.poll("a", 3, 2).commit("a", 3, 3)


@good
def a_static_member_returns_within_its_generation() -> Story:
    story = Story().send(0, 1, 2).join("a", "static").assign("a", 1).poll("a", 1, 0)
    story.commit("a", 1, 1).leave("a").join("b", "static").assign("b", 1)
    return story.poll("b", 1, 1, 2).commit("b", 1, 3)


@good
def a_replaced_static_member_is_refused() -> Story:
    story = Story().send(0, 1).join("a", "static").assign("a", 1).poll("a", 1, 0)
    story.join("b", "static").assign("b", 1).poll("b", 1, 0, 1).commit("b", 1, 2)
    return story.commit_refused("a", 1, 1).leave("a", "FENCED_INSTANCE_ID")


@good
def member_epochs_differ_while_a_group_reconciles() -> Story:
    story = Story().send(0, 1).send(0, to=Q).join("a", classic=False).join("b", classic=False)
    story.assign("a", 3, P, Q).poll("a", 3, 0).poll("a", 3, 0, of=Q).commit("a", 3, 1, of=Q)
    story.revoke("a", Q).assign("b", 4, Q)
    return story.commit("a", 3, 1).poll("a", 4, 1).commit("a", 4, 2)


@good
def auto_commit_got_further_than_it_told() -> Story:
    story = Story().send(0, 1, 2).join("a", commits_by_itself=True).assign("a", 1)
    story.poll("a", 1, 0).committed_by_itself("a", 1).poll("a", 1, 1).kill("a")
    return story.assign("b", 2).poll("b", 2, 2)


@good
def auto_commit_is_behind_and_the_tail_is_repeated() -> Story:
    story = Story().send(0, 1, 2).join("a", commits_by_itself=True).assign("a", 1)
    story.poll("a", 1, 0).committed_by_itself("a", 1).poll("a", 1, 1).kill("a")
    return story.assign("b", 2).poll("b", 2, 1, 2)


@good
def commits_that_are_not_waited_for_overlap() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0)
    first = story.begin_commit("a", 1, 1)
    story.poll("a", 1, 1)
    second = story.begin_commit("a", 1, 2)
    # Repeated behind the second one after a lost connection: the first one may come last.
    return story.end_commit("a", 1, second).end_commit("a", 1, first).read_committed(1)


@good
def a_commit_is_repeated_with_the_same_offset() -> Story:
    story = Story().send(0).assign("a", 1).poll("a", 1, 0).commit("a", 1, 1)
    return story.commit("a", 1, 1).read_committed(1)


@good
def a_send_of_unknown_outcome_is_there() -> Story:
    story = Story().send(0).send_unknown(777).assign("a", 1).poll("a", 1, 0)
    return story.poll_records("a", 1, Record(P, 1, 777))


@good
def a_send_of_unknown_outcome_is_not_there() -> Story:
    return Story().send(0).send_unknown(777).send(1).assign("a", 1).poll("a", 1, 0, 1)


@good
def offsets_have_gaps_where_no_record_is() -> Story:
    story = Story().send(0, 2, 5).assign("a", 1).poll("a", 1, 0).poll("a", 1, 2)
    return story.commit("a", 1, 3).kill("a").assign("b", 2).poll("b", 2, 5).read_log(0, 2, 5)


@good
def a_member_does_not_know_its_generation() -> Story:
    story = Story().send(0, 1).assign("a", None).poll("a", None, 0).assign("b", 2)
    return story.poll("b", 2, 0, 1).poll("a", None, 1)


@good
def a_member_is_assigned_anew_and_begins_where_it_committed() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1).commit("a", 1, 1)
    return story.revoke("a").assign("a", 2).poll("a", 2, 1, 2)


@good
def the_first_try_of_a_commit_was_heard_by_a_broker_that_was_replaced() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0).kill("broker 2")
    return story.commit_refused("a", 1, 1).assign("b", 2).poll("b", 2, 1)


@good
def a_record_is_where_its_producer_was_not_told() -> Story:
    story = Story().send_unknown(100).acknowledge_somewhere(100).send(1)
    return story.assign("a", 1).poll("a", 1, 0, 1)


@good
def an_end_is_told_as_it_was_a_moment_ago() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0, 1)
    return story.read_end(1).read_end(1, late_ns=STALE_NS // 2).read_end(2, late_ns=2 * STALE_NS)


@pytest.mark.parametrize("story", GOOD, ids=[story.__name__ for story in GOOD])
def test_a_good_history_is_clean(story: Callable[[], Story]) -> None:
    report = check(story().events)
    assert report.violations == []
    assert report.skips == 0


def test_there_are_twenty_good_histories_at_least() -> None:
    assert len(GOOD) >= 20


def test_the_report_counts() -> None:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1).commit("a", 1, 1).kill("a")
    story.assign("b", 2).poll("b", 2, 1).commit_refused("a", 1, 2).commit_unknown("b", 2, 2)
    report = check(story.events)
    assert (report.acknowledged, report.delivered, report.repeats) == (3, 3, 1)
    assert (report.rebalances, report.takeovers, report.skips) == (2, 1, 1)
    counts = (report.commits_accepted, report.commits_refused, report.commits_unknown)
    assert counts == (1, 1, 1)


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    story = Story().send(0, 1).join("a", "static", classic=False).assign("a", 1, P, Q)
    story.poll("a", 1, 0, 1).commit("a", 1, 2).commit_refused("a", 1, 2).read_committed(None)
    story.read_log(0, 1).read_end(2).committed_by_itself("a", 2).revoke("a", lost=True).leave(
        "a", "WHY"
    )
    for name, events in (("one", story.events[::2]), ("two", story.events[1::2])):
        writer = HistoryWriter(tmp_path / f"{name}.jsonl")
        for event in events:
            writer.write(event)
        writer.close()
    assert read_history(tmp_path) == story.events


def test_a_torn_last_line_is_left_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_text('["Left",1,"a",null]\n["Left",2,')
    tail = HistoryTail(tmp_path)
    assert [event.time_ns for event in tail.new_events()] == [1]
    path.write_text('["Left",1,"a",null]\n["Left",2,"b",null]\n')
    assert [event.time_ns for event in tail.new_events()] == [2]
    assert list(tail.new_events()) == []
