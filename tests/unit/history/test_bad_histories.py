"""Every rule of the checker, broken by hand: each history is caught by the rule it breaks alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.history.checker import STALE_NS, check
from tests.history.events import Record
from tests.history.report import Rule
from tests.unit.history.stories import P, Q, Story

BAD: list[tuple[Rule, Callable[[], Story]]] = []


def breaks(rule: Rule) -> Callable[[Callable[[], Story]], Callable[[], Story]]:
    def keep(story: Callable[[], Story]) -> Callable[[], Story]:
        BAD.append((rule, story))
        return story

    return keep


# ---- the log --------------------------------------------------------------------------------


@breaks(Rule.LOST_WRITE)
def a_record_is_gone_that_was_acknowledged() -> Story:
    return Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 2).read_log(0, 2)


@breaks(Rule.LOST_WRITE)
def the_first_record_is_gone() -> Story:
    return Story().send(0, 1).assign("a", 1).poll("a", 1, 1).read_log(1)


@breaks(Rule.LOST_WRITE)
def a_record_is_gone_of_which_nobody_was_told_where_it_was() -> Story:
    story = Story().send_unknown(777).send(0).acknowledge_somewhere(777)
    return story.assign("a", 1).poll("a", 1, 0).read_log(0)


@breaks(Rule.DUPLICATE)
def a_retried_batch_is_stored_twice() -> Story:
    story = Story().send(0).assign("a", 1).poll("a", 1, 0)
    return story.poll_records("a", 1, Record(P, 1, 100))


@breaks(Rule.DUPLICATE)
def a_value_is_in_two_partitions() -> Story:
    story = Story().send(0).assign("a", 1, P, Q).poll("a", 1, 0)
    return story.poll_records("a", 1, Record(Q, 0, 100))


@breaks(Rule.STALE_READ)
def a_leader_that_was_replaced_goes_on_telling_where_its_log_ended() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1, 2)
    return story.read_end(2, late_ns=STALE_NS)


@breaks(Rule.STALE_READ)
def the_end_is_told_as_zero() -> Story:
    return Story().send(0).assign("a", 1).poll("a", 1, 0).read_end(0, late_ns=STALE_NS + 1)


@breaks(Rule.STALE_READ)
def an_end_falls_behind_what_was_acknowledged_out_of_order() -> Story:
    story = Story().send_unknown(100).send_unknown(101).acknowledge(1, 101).acknowledge(0, 100)
    return story.assign("a", 1).poll("a", 1, 0, 1).read_end(1, late_ns=STALE_NS)


@breaks(Rule.INCONSISTENT_OFFSET)
def an_offset_is_used_again_after_a_crash() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0, 1).kill_broker()
    return story.send(1, values=(777,))


@breaks(Rule.INCONSISTENT_OFFSET)
def two_members_read_different_values_at_one_offset() -> Story:
    story = Story().send(0).assign("a", 1).poll("a", 1, 0).kill("a").assign("b", 2)
    return story.poll_records("b", 2, Record(P, 0, 777))


@breaks(Rule.REORDER)
def what_was_sent_first_lies_behind() -> Story:
    story = Story().send_unknown(7).send_unknown(8).acknowledge(1, 7).acknowledge(0, 8)
    story.assign("a", 1)
    return story.poll_records("a", 1, Record(P, 0, 8), Record(P, 1, 7))


@breaks(Rule.REORDER)
def a_retry_overtakes_what_was_sent_behind_it() -> Story:
    story = Story().send(0).send_unknown(7).send_unknown(8).send_unknown(9)
    story.acknowledge(2, 8).acknowledge(1, 9).acknowledge(3, 7).assign("a", 1)
    return story.poll_records(
        "a", 1, Record(P, 0, 100), Record(P, 1, 9), Record(P, 2, 8), Record(P, 3, 7)
    )


# ---- polls ----------------------------------------------------------------------------------


@breaks(Rule.POLL_SKIP)
def a_member_skips_a_record_between_two_polls() -> Story:
    return Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0).poll("a", 1, 2).read_log(0, 1, 2)


@breaks(Rule.POLL_SKIP)
def a_member_skips_what_another_one_got_before() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1, 2).kill("a")
    return story.assign("b", 2).poll("b", 2, 0).poll("b", 2, 2)


@breaks(Rule.POLL_SKIP)
def a_takeover_begins_behind_what_was_committed() -> Story:
    story = Story().send(0, 1, 2, 3).assign("a", 1).poll("a", 1, 0).commit("a", 1, 1).kill("a")
    return story.assign("b", 2).poll("b", 2, 2, 3).read_log(0, 1, 2, 3)


@breaks(Rule.POLL_SKIP)
def a_takeover_begins_where_the_dead_owner_read_to_and_not_where_it_committed() -> Story:
    story = Story().send(0, 1, 2, 3).assign("a", 1).poll("a", 1, 0).commit("a", 1, 1)
    return story.poll("a", 1, 1, 2).kill("a").assign("b", 2).poll("b", 2, 3)


@breaks(Rule.POLL_SKIP)
def a_first_owner_begins_at_the_end() -> Story:
    return Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 2).read_log(0, 1, 2)


@breaks(Rule.POLL_SKIP)
def a_refused_commit_took_effect() -> Story:
    story = Story().send(0, 1, 2, 3).assign("a", 1).poll("a", 1, 0, 1, 2).assign("b", 2, Q)
    return story.commit_refused("a", 1, 3).assign("b", 3).poll("b", 3, 3)


@breaks(Rule.NON_MONOTONIC_POLL)
def a_member_gets_a_record_twice_without_a_rebalance() -> Story:
    return Story().send(0, 1).assign("a", 1).poll("a", 1, 0, 1).poll("a", 1, 1)


@breaks(Rule.NON_MONOTONIC_POLL)
def a_member_is_thrown_back_after_the_broker_returned() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1, 2).commit("a", 1, 3)
    return story.kill_broker().poll("a", 1, 0, 1, 2)


@breaks(Rule.WITHIN_ONE_POLL)
def a_poll_skips_a_record() -> Story:
    return Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 2).read_log(0, 1, 2)


@breaks(Rule.WITHIN_ONE_POLL)
def a_poll_steps_back() -> Story:
    return Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 2, 1)


@breaks(Rule.WITHIN_ONE_POLL)
def a_poll_has_a_record_twice() -> Story:
    return Story().send(0, 1).assign("a", 1).poll("a", 1, 0, 1, 1)


@breaks(Rule.UNSEEN)
def the_last_records_never_come() -> Story:
    return Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0)


@breaks(Rule.UNSEEN)
def the_group_stops_before_the_end_of_the_log() -> Story:
    return Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0).read_log(0, 1, 2)


@breaks(Rule.UNSEEN)
def nobody_consumes_a_partition() -> Story:
    return Story().send(0).send(0, 1, to=Q).assign("a", 1).poll("a", 1, 0).read_log(0, 1, of=Q)


# ---- committed offsets ----------------------------------------------------------------------


@breaks(Rule.COMMIT_REGRESS)
def a_takeover_repeats_what_was_committed() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1).commit("a", 1, 2).kill("a")
    return story.assign("b", 2).poll("b", 2, 1, 2)


@breaks(Rule.COMMIT_REGRESS)
def no_offset_is_answered_while_the_coordinator_loads() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1, 2).commit("a", 1, 3)
    return story.kill_broker().revoke("a", lost=True).assign("a", 2).poll("a", 2, 0, 1, 2)


@breaks(Rule.COMMIT_REGRESS)
def a_committed_offset_reads_as_none() -> Story:
    story = Story().send(0).assign("a", 1).poll("a", 1, 0).commit("a", 1, 1)
    return story.kill_broker().read_committed(None)


@breaks(Rule.COMMIT_REGRESS)
def a_committed_offset_reads_as_zero() -> Story:
    return Story().send(0).assign("a", 1).poll("a", 1, 0).commit("a", 1, 1).read_committed(0)


@breaks(Rule.COMMIT_REGRESS)
def zero_is_read_where_nothing_was_committed() -> Story:
    return Story().send(0).assign("a", 1).poll("a", 1, 0).read_committed(0)


@breaks(Rule.COMMIT_REGRESS)
def an_older_commit_is_read_after_a_newer_one() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0).commit("a", 1, 1)
    return story.poll("a", 1, 1).commit("a", 1, 2).kill_broker().read_committed(1)


@breaks(Rule.COMMIT_REGRESS)
def an_offset_is_read_that_nobody_committed() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1, 2).commit("a", 1, 1)
    return story.read_committed(3)


@breaks(Rule.COMMIT_REGRESS)
def a_lower_commit_is_accepted_after_a_higher_one() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1, 2).commit("a", 1, 3)
    return story.commit("a", 1, 1)


@breaks(Rule.COMMIT_REGRESS)
def what_one_reader_was_shown_is_taken_back_from_the_next() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0, 1).commit_unknown("a", 1, 2)
    return story.kill("a").read_committed(2).kill_broker().read_committed(None)


@breaks(Rule.COMMIT_REGRESS)
def an_unknown_commit_takes_effect_after_its_member_was_fenced() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0).commit_unknown("a", 1, 1)
    story.kill("a").assign("b", 2).poll("b", 2, 0, 1, 2).commit("b", 2, 3)
    return story.read_committed(1)


@breaks(Rule.COMMIT_REGRESS)
def what_auto_commit_told_of_is_repeated() -> Story:
    story = Story().send(0, 1).join("a", commits_by_itself=True).assign("a", 1)
    story.poll("a", 1, 0, 1).committed_by_itself("a", 2).kill("a")
    return story.assign("b", 2).poll("b", 2, 0, 1)


@breaks(Rule.FENCED_COMMIT)
def a_member_commits_that_slept_through_a_rebalance() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0, 1)
    story.assign("b", 2).poll("b", 2, 0, 1, 2)
    return story.commit("a", 1, 2)


@breaks(Rule.FENCED_COMMIT)
def a_sleeper_moves_the_committed_offset_back() -> Story:
    story = Story().send(0, 1, 2).assign("a", 1).poll("a", 1, 0)
    story.assign("b", 2).poll("b", 2, 0, 1, 2).commit("b", 2, 3)
    return story.commit("a", 1, 1)


@breaks(Rule.FENCED_COMMIT)
def the_old_incarnation_of_a_static_member_commits() -> Story:
    story = Story().send(0, 1).join("a", "static").assign("a", 1).poll("a", 1, 0, 1)
    story.join("b", "static").assign("b", 1).poll("b", 1, 0, 1)
    return story.commit("a", 1, 2)


@breaks(Rule.FENCED_COMMIT)
def a_member_epoch_commits_a_partition_that_has_moved_on() -> Story:
    story = Story().send(0).join("a", classic=False).join("b", classic=False)
    story.assign("a", 3, P, Q).poll("a", 3, 0).assign("b", 4, P).poll("b", 4, 0)
    return story.commit("a", 3, 1)


# ---- owners ---------------------------------------------------------------------------------


@breaks(Rule.TWO_OWNERS)
def two_members_are_assigned_one_partition() -> Story:
    return Story().send(0).assign("a", 1, P, Q).poll("a", 1, 0).assign("b", 1, Q)


@breaks(Rule.TWO_OWNERS)
def a_generation_is_used_again_after_a_restart() -> Story:
    story = Story().send(0, 1).assign("a", 4).poll("a", 4, 0).commit("a", 4, 1).kill_broker()
    return story.assign("b", 4).poll("b", 4, 1)


@breaks(Rule.TWO_OWNERS)
def a_member_polls_what_another_one_owns_in_the_same_generation() -> Story:
    story = Story().send(0, 1).assign("a", 1).poll("a", 1, 0).assign("b", 2)
    return story.poll("b", 2, 0, 1).poll("a", 2, 1)


@pytest.mark.parametrize(("rule", "story"), BAD, ids=[story.__name__ for _, story in BAD])
def test_a_bad_history_is_caught_by_the_rule_it_breaks(
    rule: Rule, story: Callable[[], Story]
) -> None:
    report = check(story().events)
    assert report.rules_broken() == {rule}, "\n".join(map(str, report.violations))
    assert all(violation.events for violation in report.violations)


def test_every_rule_is_broken_by_two_histories_at_least() -> None:
    assert len(BAD) >= 20
    for rule in Rule:
        assert sum(each is rule for each, _ in BAD) >= 2, rule
