"""How a classic group rebalances: the barriers that its members meet at, and their sessions.

A rebalance has two barriers. Everybody who wants to stay joins (PreparingRebalance), within the
longest rebalance time-out of the members; then the leader hands in the assignments
(CompletingRebalance), which are written down and given to all (Stable). Whoever is late at either
is no longer a member. A first member of an empty group is made to wait for others for
`group.initial.rebalance.delay.ms`, and longer while more keep coming.

Handlers change what is volatile at once and return what is kept as records: it changes when these
are replayed, so a refused append leaves the group as it was. Errors are raised as `KafkaError`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.coordinators.groups.classic.group import ClassicGroup, GroupState, Member
from tidelog.coordinators.groups.records import CoordinatorRecord, GroupMetadataKey
from tidelog.coordinators.groups.settings import GroupSettings, Now
from tidelog.coordinators.groups.stats import CLASSIC, GroupStats
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import TimerQueue
from tidelog.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

# How long a member that waits for its first generation may be silent, as in Kafka.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
# When a record that no request asked for could not be written.
RETRY_MS: Final = 1_000

TimerAction = Callable[[Now], Outcome]
Records = list[CoordinatorRecord]


class Rebalances:
    """The two barriers, and the sessions of members."""

    def __init__(
        self, settings: GroupSettings, timers: TimerQueue[TimerAction], stats: GroupStats
    ) -> None:
        self.settings = settings
        self.timers = timers
        self._stats = stats

    # Into a rebalance

    def prepare_or_complete(self, group: ClassicGroup, reason: str, now: Now) -> Records:
        """A member joined, changed or left: start a rebalance, or go on with the one that runs."""
        if group.state is GroupState.PREPARING_REBALANCE:
            return self.complete_join_if_all_joined(group, now)
        return self.prepare(group, reason, now)

    def prepare(self, group: ClassicGroup, reason: str, now: Now) -> Records:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(group, now)
        self.timers.cancel(("sync", group.group_id))
        group.is_first_rebalance = group.state is GroupState.EMPTY
        group.joined_in_delay = False
        group.enter(GroupState.PREPARING_REBALANCE, reason)
        self._stats.rebalances[CLASSIC] += 1
        _log.info(
            "rebalance begins group=%s generation=%d members=%d reason=%s",
            group.group_id, group.generation, len(group.members), reason,
        )  # fmt: skip
        if group.is_first_rebalance:
            delay = self.settings.initial_rebalance_delay_ms
            remaining = max(group.rebalance_timeout_ms - delay, 0)
            self._wait_for_more(group, delay, remaining, now)
            return []
        if group.has_everybody_joined:
            return self.complete_join(group, now)
        self._await_joins(group, now)
        return []

    def _refuse_syncs(self, group: ClassicGroup, now: Now) -> None:
        error = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        for member in group.members.values():
            member.assignment = b""
            reply, member.sync_reply = member.sync_reply, None
            if reply is not None:
                self.renew_session(group, member, now)
                reply.fail(error)

    def _wait_for_more(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now: Now
    ) -> None:
        """An empty group starts a rebalance with each join of a fleet unless it waits a little."""

        def time_up(then: Now) -> Outcome:
            if group.joined_in_delay and remaining_ms > 0 and delay_ms > 0:
                group.joined_in_delay = False
                again = min(delay_ms, remaining_ms)
                self._wait_for_more(group, again, max(remaining_ms - delay_ms, 0), then)
                return Outcome()
            return Outcome(records=self.complete_join(group, then))

        self.timers.schedule(("join", group.group_id), now.ms + delay_ms, time_up)

    def _await_joins(self, group: ClassicGroup, now: Now) -> None:
        def time_up(then: Now) -> Outcome:
            return Outcome(records=self.complete_join(group, then))

        deadline = now.ms + group.rebalance_timeout_ms
        self.timers.schedule(("join", group.group_id), deadline, time_up)

    # Out of the first barrier

    def complete_join_if_all_joined(self, group: ClassicGroup, now: Now) -> Records:
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing and not group.is_first_rebalance and group.has_everybody_joined:
            return self.complete_join(group, now)
        return []

    def complete_join(self, group: ClassicGroup, now: Now) -> Records:
        """End the wait for joins: whoever is not there is gone, static members excepted."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return []
        self.timers.cancel(("join", group.group_id))
        for member in list(group.members.values()):
            if member.join_reply is None and member.instance_id is None:
                self.drop(group, member.member_id)
                _log.info(
                    "member did not rejoin group=%s member=%s", group.group_id, member.member_id
                )
        if not group.members:
            return self._become_empty(group, now)
        if not group.elect_joined_leader():
            # Only static members are left, none of them here: their sessions decide.
            self._await_joins(group, now)
            return []
        group.begin_generation()
        for member in group.members.values():
            member.is_new = False
            reply = group.end_join(member)
            if reply is not None:
                reply.resolve(group.join_response(member))
            self.renew_session(group, member, now)
        self._await_syncs(group, now)
        return []

    def _become_empty(self, group: ClassicGroup, now: Now) -> Records:
        def try_again(then: Now) -> Outcome:
            return Outcome(records=self.complete_join(group, then))

        # Replaying the record cancels this; without it the append was refused.
        self.timers.schedule(("join", group.group_id), now.ms + RETRY_MS, try_again)
        value = group.record_value(now.wall_ms, {})
        value.generation += 1
        value.protocol = value.leader = None
        return [CoordinatorRecord(GroupMetadataKey(group.group_id), value)]

    # The second barrier

    def _await_syncs(self, group: ClassicGroup, now: Now) -> None:
        generation = group.generation

        def time_up(then: Now) -> Outcome:
            waiting = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            if not waiting or group.generation != generation or not group.awaited_syncs:
                return Outcome()
            for member_id in list(group.awaited_syncs):
                self.drop(group, member_id)
            return Outcome(records=self.prepare(group, "members did not sync in time", then))

        deadline = now.ms + group.rebalance_timeout_ms
        self.timers.schedule(("sync", group.group_id), deadline, time_up)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.awaited_syncs.discard(member_id)
        if not group.awaited_syncs:
            self.timers.cancel(("sync", group.group_id))

    # Sessions

    def renew_session(self, group: ClassicGroup, member: Member, now: Now) -> None:
        self._watch(group, member.member_id, now.ms + member.session_timeout_ms)

    def watch_new_member(self, group: ClassicGroup, member: Member, now: Now) -> None:
        self._watch(group, member.member_id, now.ms + NEW_MEMBER_TIMEOUT_MS)

    def promise_id(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Now
    ) -> None:
        """Keep a member id for a client that was told to come back with it."""
        group.promised_ids.add(member_id)
        self._watch(group, member_id, now.ms + session_timeout_ms)

    def _watch(self, group: ClassicGroup, member_id: str, deadline_ms: int) -> None:
        def session_over(now: Now) -> Outcome:
            return self._expire(group, member_id, now)

        self.timers.schedule(("session", group.group_id, member_id), deadline_ms, session_over)

    def _expire(self, group: ClassicGroup, member_id: str, now: Now) -> Outcome:
        if member_id in group.promised_ids:
            group.promised_ids.discard(member_id)
            return Outcome(records=self.complete_join_if_all_joined(group, now))
        member = group.members.get(member_id)
        if member is None:
            return Outcome()
        waits = member.join_reply is not None or member.sync_reply is not None
        if waits and not member.is_new:
            # It waits for us, not we for it.
            self.renew_session(group, member, now)
            return Outcome()
        _log.info("session over group=%s member=%s", group.group_id, member_id)
        self.drop(group, member_id)
        return Outcome(records=self.after_departure(group, "a session is over", now))

    def drop(self, group: ClassicGroup, member_id: str) -> None:
        """Forget a member; who still waits on its behalf is told that it is none."""
        self.timers.cancel(("session", group.group_id, member_id))
        member = group.remove(member_id)
        if member is None:
            return
        error = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.join_reply is not None:
            member.join_reply.fail(error)
        if member.sync_reply is not None:
            member.sync_reply.fail(error)

    def after_departure(self, group: ClassicGroup, reason: str, now: Now) -> Records:
        """Members have left: those who stay share what they owned."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare(group, reason, now)
        return self.complete_join_if_all_joined(group, now)

    def forget(self, group: ClassicGroup) -> None:
        """Stop every clock of a group that is no more."""
        self.timers.cancel(("join", group.group_id))
        self.timers.cancel(("sync", group.group_id))
        for member_id in [*group.members, *group.promised_ids]:
            self.drop(group, member_id)
