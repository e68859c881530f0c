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
from typing import Final

from tidelog.coordinators.groups.classic.group import ClassicGroup, GroupState, Member
from tidelog.coordinators.groups.records import CoordinatorRecord, GroupMetadataKey
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.coordinators.groups.stats import GroupStats
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.timers import RETRY_MS, Timer, TimerKind, Timers
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

# How long a member that waits for its first generation may be silent, as in Kafka.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000

Records = list[CoordinatorRecord]


class Rebalances:
    """The two barriers, and the sessions of members."""

    def __init__(
        self, groups: GroupTable, settings: GroupSettings, timers: Timers, stats: GroupStats
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._timers = timers
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
        self._timers.cancel(Timer(TimerKind.CLASSIC_SYNC, group.group_id))
        group.is_first_rebalance = group.state is GroupState.EMPTY
        group.joined_in_delay = False
        group.enter(GroupState.PREPARING_REBALANCE, reason)
        self._stats.rebalances[group.kind] += 1
        _log.info(
            "rebalance begins group=%s generation=%d members=%d reason=%s",
            group.group_id, group.generation, len(group.members), reason,
        )  # fmt: skip
        if group.is_first_rebalance:
            # An empty group starts a rebalance with each join of a fleet unless it waits a little.
            delay = self._settings.initial_rebalance_delay_ms
            group.delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
            self._await_joins(group, delay, now)
            return []
        if group.has_everybody_joined:
            return self.complete_join(group, now)
        self._await_joins(group, group.rebalance_timeout_ms, now)
        return []

    def _refuse_syncs(self, group: ClassicGroup, now: Now) -> None:
        error = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        for member in group.members.values():
            member.assignment = b""
            reply, member.sync_reply = member.sync_reply, None
            if reply is not None:
                self.renew_session(group, member, now)
                reply.fail(error)

    def _await_joins(self, group: ClassicGroup, wait_ms: int, now: Now) -> None:
        self._timers.schedule(Timer(TimerKind.CLASSIC_JOIN, group.group_id), now.ms + wait_ms)

    def end_joins(self, group: ClassicGroup) -> None:
        self._timers.cancel(Timer(TimerKind.CLASSIC_JOIN, group.group_id))

    def joins_due(self, timer: Timer, now: Now) -> Outcome:
        """The wait for joins is over, unless an empty group is being filled right now."""
        group = self._groups.classic(timer.group_id)
        assert group is not None, "a group that goes takes its timers with it"
        wait_ms = min(self._settings.initial_rebalance_delay_ms, group.delay_left_ms)
        if group.joined_in_delay and wait_ms > 0:
            group.joined_in_delay = False
            group.delay_left_ms -= wait_ms
            self._await_joins(group, wait_ms, now)
            return Outcome()
        return Outcome(records=self.complete_join(group, now))

    # Out of the first barrier

    def complete_join_if_all_joined(self, group: ClassicGroup, now: Now) -> Records:
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing and not group.is_first_rebalance and group.has_everybody_joined:
            return self.complete_join(group, now)
        return []

    def complete_join(self, group: ClassicGroup, now: Now) -> Records:
        """End the wait for joins: whoever is not there is gone, static members excepted."""
        assert group.state is GroupState.PREPARING_REBALANCE, group.state
        self.end_joins(group)
        group.delay_left_ms = 0
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
            self._await_joins(group, max(group.rebalance_timeout_ms, RETRY_MS), now)
            return []
        group.begin_generation()
        for member in group.members.values():
            member.is_new = False
            reply = group.end_join(member)
            if reply is not None:
                reply.resolve(group.join_response(member))
            self.renew_session(group, member, now)
        deadline = now.ms + group.rebalance_timeout_ms
        self._timers.schedule(Timer(TimerKind.CLASSIC_SYNC, group.group_id), deadline)
        return []

    def _become_empty(self, group: ClassicGroup, now: Now) -> Records:
        # Replaying the record cancels this; without it the append was refused.
        self._await_joins(group, RETRY_MS, now)
        value = group.record_value(now.wall_ms, {})
        value.generation = group.next_generation
        value.protocol = value.leader = None
        return [CoordinatorRecord(GroupMetadataKey(group.group_id), value)]

    # The second barrier

    def syncs_due(self, timer: Timer, now: Now) -> Outcome:
        group = self._groups.classic(timer.group_id)
        assert group is not None, "a group that goes takes its timers with it"
        assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE), group.state
        if not group.awaited_syncs:
            return Outcome()
        for member_id in sorted(group.awaited_syncs):
            self.drop(group, member_id)
        return Outcome(records=self.prepare(group, "members did not sync in time", now))

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.awaited_syncs.discard(member_id)
        if not group.awaited_syncs:
            self._timers.cancel(Timer(TimerKind.CLASSIC_SYNC, group.group_id))

    # Sessions

    def renew_session(self, group: ClassicGroup, member: Member, now: Now) -> None:
        timer = member.session_timer
        if timer is None:
            timer = Timer(TimerKind.CLASSIC_SESSION, group.group_id, member.member_id)
            member.session_timer = timer
        self._timers.schedule(timer, now.ms + member.session_timeout_ms)

    def watch_new_member(self, group: ClassicGroup, member: Member, now: Now) -> None:
        self._watch(group, member.member_id, now.ms + NEW_MEMBER_TIMEOUT_MS)

    def promise_id(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Now
    ) -> None:
        """Keep a member id for a client that was told to come back with it."""
        group.promised_ids.add(member_id)
        self._watch(group, member_id, now.ms + session_timeout_ms)

    def _watch(self, group: ClassicGroup, member_id: str, deadline_ms: int) -> None:
        timer = Timer(TimerKind.CLASSIC_SESSION, group.group_id, member_id)
        self._timers.schedule(timer, deadline_ms)

    def session_due(self, timer: Timer, now: Now) -> Outcome:
        group, member_id = self._groups.classic(timer.group_id), timer.member_id
        assert group is not None, "a group that goes takes its timers with it"
        if member_id in group.promised_ids:
            group.promised_ids.discard(member_id)
            return Outcome(records=self.complete_join_if_all_joined(group, now))
        member = group.members[member_id]
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
        self.end_session(group, member_id)
        member = group.remove(member_id)
        if member is not None:
            member.fail_waits(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(Timer(TimerKind.CLASSIC_SESSION, group.group_id, member_id))

    def after_departure(self, group: ClassicGroup, reason: str, now: Now) -> Records:
        """Members have left: those who stay share what they owned."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare(group, reason, now)
        return self.complete_join_if_all_joined(group, now)
