"""Rules that no simulated world shows the absence of, each with the test that does.

They are the rows of CLUSTER 2 and the traps of CLUSTER 5 that cost time or memory, that a second
defence makes harmless, or that need a store or a disk in a state that the simulator never makes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from tests.sim.mutant import Mutant, Patch
from tidelog.cluster import failover, membership, office
from tidelog.cluster.controller import not_controller
from tidelog.cluster.controller_link import ControllerLink
from tidelog.cluster.image_feed import ImageFeed
from tidelog.cluster.membership import Membership
from tidelog.cluster.registration import register_broker
from tidelog.cluster.steps import Steps
from tidelog.coordinators.runtime import CoordinatorRuntime
from tidelog.replication.checkpoints import Checkpoints
from tidelog.replication.deletions import Deletions
from tidelog.replication.flushing import Flushing
from tidelog.replication.in_sync import UNKNOWN, Follower, InSyncReplicas, Look
from tidelog.replication.kept_start import KeptStart
from tidelog.replication.leading import Leading
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas
from tidelog.replication.truncations import Truncations
from tidelog.replication.watermark import Watermark
from tidelog.server.fetch_sessions import FetchSession
from tidelog.server.handlers.fetch import FetchAttempt
from tidelog.server.submitter import Submitter
from tidelog.storage.flush import FlushPlan, FlushState
from tidelog.storage.log import Log
from tidelog.storage.replicated import CheckedBatches, Continuation, Run
from tidelog.store.port import Store, StoreError

_UNIT: Final = "tests/unit"

# -- logs ----------------------------------------------------------------------------------------


def write_outs_prove_what_came_after() -> list[Patch]:
    done = FlushState.done

    def believe(self: FlushState, plan: FlushPlan) -> bool:
        plan.truncations = self.truncations
        return done(self, plan)

    return [(FlushState, "done", believe)]


def write_outs_outlive_a_cut() -> list[Patch]:
    committed_end = Flushing.committed_end

    def as_before(self: Flushing) -> Any:
        return committed_end(self) if self._committed_end is None else self._committed_end

    return [(Flushing, "committed_end", as_before)]


def epochs_of_the_future() -> list[Patch]:
    def any_epoch(self: Log, leader_epoch: int) -> Continuation:
        return Continuation(self.log_end_offset, self.epochs.latest, 2**31 - 1)

    return [(Log, "continuation", any_epoch)]


def epochs_that_fall() -> list[Patch]:
    def any_epoch(self: Log, leader_epoch: int) -> Continuation:
        return Continuation(self.log_end_offset, -1, leader_epoch)

    def goes_on(self: CheckedBatches, end_offset: int, last_epoch: int) -> None:
        """Whatever the last epoch is."""

    return [(Log, "continuation", any_epoch), (CheckedBatches, "must_continue", goes_on)]


def one_segment_for_a_chunk() -> list[Patch]:
    def all_of_it(self: CheckedBatches, row: int, segment: Any, segment_bytes: int) -> Run:
        return run(self, row, segment, 2**62)

    run = CheckedBatches.run
    return [(CheckedBatches, "run", all_of_it)]


def watermarks_start_over() -> list[Patch]:
    begin = Watermark.__init__

    def from_the_start(self: Watermark, log: Log) -> None:
        begin(self, log)
        self.offset = log.log_start_offset

    return [(Watermark, "__init__", from_the_start)]


def a_checkpoint_for_each_cut() -> list[Patch]:
    async def write(self: Checkpoints) -> None:
        await self._write_after(self._running)

    return [(Checkpoints, "write", write)]


def absent_topics_are_deleted() -> list[Patch]:
    async def delete(self: Deletions, partitions: Any) -> None:
        await self.retire(partitions, 0)

    return [(Deletions, "put_aside", delete)]


def moved_replicas_stay() -> list[Patch]:
    async def keep(self: Deletions, partitions: Any, delay_s: float) -> None:
        """Others have them; so does this broker."""

    return [(Deletions, "retire_moved", keep)]


def cuts_hold_up_the_loop() -> list[Patch]:
    async def cut_now(self: Truncations, log: Log, cut: Any, ended: Any) -> None:
        cut.run()
        log.cuts.done(cut)
        ended()

    return [(Truncations, "finish", cut_now)]


def register_then_recover() -> list[Patch]:
    start, serve = Replicas.start, Replicas.serve
    asked: dict[Replicas, tuple[Any, ...]] = {}

    async def later(self: Replicas, *args: Any) -> None:
        asked[self] = args

    async def now(self: Replicas, image: Any) -> None:
        await start(self, *asked.pop(self))
        await serve(self, image)

    return [(Replicas, "start", later), (Replicas, "serve", now)]


# -- partitions ----------------------------------------------------------------------------------


def ineligible_replicas_count() -> list[Patch]:
    def may_join(self: InSyncReplicas, replica: int, follower: Follower, look: Look) -> bool:
        lowest = max(self._high_watermark, self._epoch_start)
        return follower.end >= lowest and follower.end != UNKNOWN

    return [(InSyncReplicas, "_may_join", may_join)]


def starts_before_they_are_kept() -> list[Patch]:
    return [(KeptStart, "offset", property(lambda self: self._log.log_start_offset))]


def who_joins_may_start_earlier() -> list[Patch]:
    tell = Leading.start_to_tell

    def forget(self: Leading) -> int:
        start = tell(self)
        if self.in_sync is not None:
            self.in_sync.log_start_min = UNKNOWN
        return start

    return [(Leading, "start_to_tell", forget)]


def one_ack_waits_for_all() -> list[Patch]:
    return [(Partition, "on_disk", Partition.committed)]


def range_before_divergence() -> list[Patch]:
    check = FetchAttempt._check_divergence

    def look(self: FetchAttempt, partition: Partition, target: Any) -> None:
        partition.check_offset(target.fetch_offset)
        check(self, partition, target)

    return [(FetchAttempt, "_check_divergence", look)]


def every_partition_of_a_session_is_looked_at() -> list[Patch]:
    def stay(self: FetchSession, target: Any) -> None:
        """It is looked at again by every fetch."""

    return [(FetchSession, "rest", stay)]


# -- the metadata --------------------------------------------------------------------------------


def any_image_is_newer() -> list[Patch]:
    return [(ImageFeed, "_check", lambda self, update: None)]


def failed_subscribers_are_skipped() -> list[Patch]:
    move = ImageFeed._move_to

    def skip(self: ImageFeed, image: Any, changes: Any) -> None:
        def quiet(subscriber: Any) -> Any:
            def call(*args: Any) -> None:
                with suppress(Exception):
                    subscriber(*args)

            return call

        subscribers = self._subscribers
        self._subscribers = [quiet(each) for each in subscribers]
        try:
            move(self, image, changes)
        finally:
            self._subscribers = subscribers

    return [(ImageFeed, "_move_to", skip)]


def one_transaction_for_everything() -> list[Patch]:
    def add(self: Steps, operations: Any, change: Any = None) -> None:
        given = list(operations)
        self.count += len(given)
        self._last.operations += given
        if change is not None:
            self._last.changes.append(change)

    return [(Steps, "add", add)]


def later_lives_count_as_this_one() -> list[Patch]:
    def ineligible(image: Any, broker_id: int, broker_epoch: int) -> str | None:
        registration = image.brokers.get(broker_id)
        if registration is None:
            return "it is not registered"
        if registration.epoch < broker_epoch:
            return "it is of a life that is not known"
        return failover._SHUTS_DOWN if registration.shutting_down else None

    return [(failover, "_ineligible", ineligible)]


def the_dead_stay_in_sync() -> list[Patch]:
    return [(failover, "leaves", lambda state, brokers, circumstances: None)]


def read_before_the_claim() -> list[Patch]:
    claim, take_over = office._claim, office._take_over
    before: dict[int, Any] = {}

    class ReadBefore:
        """The store as it was, but for what says who has the office."""

        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def tree(self, path: str) -> Any:
            now = await self._store.tree(path)
            old = before[self._store.session]
            return {**old, **{name: now[name] for name in now if name.startswith("/controller")}}

    async def read_and_claim(store: Store, place: Any) -> int | None:
        before[store.session] = await store.tree("/")
        return await claim(store, place)

    async def take_over_anyway(store: Store, *rest: Any) -> Any:
        return await take_over(ReadBefore(store), *rest)  # type: ignore[arg-type]

    return [(office, "_claim", read_and_claim), (office, "_take_over", take_over_anyway)]


def the_office_is_seen_where_it_was() -> list[Patch]:
    see = Membership._see_owner

    class Lagging:
        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def sync(self) -> None:
            """What the server has is good enough."""

    async def look(self: Membership, store: Store) -> bool:
        return await see(self, Lagging(store))  # type: ignore[arg-type]

    return [(Membership, "_see_owner", look)]


def an_id_is_never_waited_for() -> list[Patch]:
    async def refuse(store: Store, broker_id: int, session_timeout_s: float) -> None:
        """Whoever has it, has it."""

    return [(membership, "wait_for_id", refuse), (membership, "register_broker", register_broker)]


def a_lost_session_ends_the_broker() -> list[Patch]:
    live = Membership._live

    async def live_once(self: Membership, store: Store) -> None:
        await live(self, store)
        raise StoreError("the session with the metadata store was lost")

    return [(Membership, "_live", live_once)]


def answers_come_before_the_own_image() -> list[Patch]:
    async def submit_all(
        self: Submitter, commands: Any, principal: str = "", timeout_s: float = 20.0
    ) -> Any:
        return (await self._link.decide(commands, principal, timeout_s)).outcomes

    return [(Submitter, "submit_all", submit_all)]


def commands_are_not_forwarded() -> list[Patch]:
    decide = ControllerLink._decide_once

    async def here_only(self: ControllerLink, commands: Any, principal: str, left_s: float) -> Any:
        if self._membership.controller is None:
            raise not_controller()
        return await decide(self, commands, principal, left_s)

    return [(ControllerLink, "_decide_once", here_only)]


def commands_have_no_principal() -> list[Patch]:
    decide = ControllerLink._decide_once

    async def anyone(self: ControllerLink, commands: Any, principal: str, left_s: float) -> Any:
        return await decide(self, commands, "", left_s)

    return [(ControllerLink, "_decide_once", anyone)]


# -- coordinators --------------------------------------------------------------------------------


def a_loaded_tail_counts_as_committed() -> list[Patch]:
    work = CoordinatorRuntime._work

    def trust(self: Any, slot: Any, outcomes: Any, what: str) -> None:
        if what == "take up a shard":
            slot.last_core_offset = -1
        work(self, slot, outcomes, what)

    return [(CoordinatorRuntime, "_work", trust)]


def heartbeats_wait_for_everything() -> list[Patch]:
    call = CoordinatorRuntime.call

    def all_of_it(self: Any, key: str, handler: Any, *, core_only: bool = False) -> Any:
        return call(self, key, handler)

    return [(CoordinatorRuntime, "call", all_of_it)]


def _mutant(name: str, rule: str, patches: Any, test: str) -> Mutant:
    return Mutant(name, rule, patches, test=f"{_UNIT}/{test}")


UNITS: Final = (
    _mutant(
        "write-outs prove what came after", "trap 2", write_outs_prove_what_came_after,
        "storage/test_truncation.py::test_rule_16_a_write_out_overtaken_by_a_truncation_proves_nothing",
    ),
    _mutant(
        "write-outs outlive a cut", "trap 2, storage/flush", write_outs_outlive_a_cut,
        "replication/test_truncations.py::test_rule_16_a_cut_takes_back_what_write_outs_had_reached",
    ),
    _mutant(
        "absent topics are deleted", "trap 4", absent_topics_are_deleted,
        "replication/test_strays.py::test_r24_what_nobody_deleted_is_put_aside_with_all_its_records",
    ),
    _mutant(
        "register, then recover", "replication/replicas", register_then_recover,
        "server/test_membership.py::test_a_broker_has_recovered_its_logs_when_it_registers",
    ),
    _mutant(
        "moved replicas stay", "replication/replicas", moved_replicas_stay,
        "replication/test_replicas.py::test_a_replica_moved_away_while_logs_are_recovered_leaves_no_files",
    ),
    _mutant(
        "any image is newer", "trap 5", any_image_is_newer,
        "cluster/test_image_feed.py::test_i28_the_image_never_goes_back",
    ),
    _mutant(
        "failed subscribers are skipped", "trap 5", failed_subscribers_are_skipped,
        "cluster/test_image_feed.py::test_a_subscriber_that_fails_is_not_passed_over",
    ),
    _mutant(
        "a loaded tail counts as committed", "trap 9", a_loaded_tail_counts_as_committed,
        "coordinators/test_runtime.py::test_a_loaded_shard_is_answered_for_when_its_tail_is_committed",
    ),
    _mutant(
        "one transaction for everything", "trap 10", one_transaction_for_everything,
        "cluster/test_steps.py::test_a_large_topic_and_the_death_of_its_broker_take_no_transaction_above_the_bound",
    ),
    _mutant(
        "later lives count as this one", "trap 11, KAFKA-15221", later_lives_count_as_this_one,
        "cluster/test_failover.py::test_a_proposal_is_refused_as_kafka_refuses_it",
    ),
    _mutant(
        "ineligible replicas count", "trap 12, KAFKA-15021", ineligible_replicas_count,
        "replication/test_in_sync.py::test_a_fenced_replica_neither_joins_nor_holds_the_watermark_back",
    ),
    _mutant(
        "epochs of the future", "trap 13", epochs_of_the_future,
        "storage/test_replicated.py::test_trap_13_an_epoch_above_the_leaders_is_refused",
    ),
    _mutant(
        "epochs that fall", "trap 13", epochs_that_fall,
        "storage/test_replicated.py::test_trap_13_an_epoch_below_the_last_one_is_refused",
    ),
    _mutant(
        "one segment for a chunk", "trap 13", one_segment_for_a_chunk,
        "storage/test_replicated.py::test_a_chunk_larger_than_a_segment_is_split_at_batches",
    ),
    _mutant(
        "watermarks start over", "replication/partition", watermarks_start_over,
        "replication/test_partition.py::test_a_partition_begins_with_what_the_checkpoint_says_is_committed",
    ),
    _mutant(
        "range before divergence", "handlers/fetch, KAFKA-12996", range_before_divergence,
        "server/test_cluster_reads.py::test_who_diverges_is_told_so_though_it_stands_beyond_the_end",
    ),
    _mutant(
        "a session's partitions never rest", "handlers/fetch",
        every_partition_of_a_session_is_looked_at,
        "server/test_fetch_sessions.py::test_a_partition_without_news_rests_until_it_has_some",
    ),
    _mutant(
        "starts before they are kept", "R22, I8", starts_before_they_are_kept,
        "replication/test_replicated.py::test_r22_a_follower_tells_no_start_that_its_next_life_would_not_find",
    ),
    _mutant(
        "who joins may start earlier", "I8", who_joins_may_start_earlier,
        "server/test_log_starts_told.py::test_nobody_joins_the_isr_with_an_earlier_start_than_was_told",
    ),
    _mutant(
        "one ack waits for all", "handlers/produce", one_ack_waits_for_all,
        "replication/test_replicated.py::test_acks_of_one_on_an_fsync_topic_wait_for_the_own_disk_alone",
    ),
    _mutant(
        "a checkpoint for each cut", "storage/data_dir", a_checkpoint_for_each_cut,
        "replication/test_truncations.py::test_cuts_that_are_asked_for_together_share_their_checkpoints",
    ),
    _mutant(
        "cuts hold up the loop", "storage/data_dir", cuts_hold_up_the_loop,
        "replication/test_truncations.py::test_a_log_is_shorter_before_the_cut_waits_for_the_disk",
    ),
    _mutant(
        "the dead stay in sync", "cluster/controller", the_dead_stay_in_sync,
        "cluster/test_failover.py::test_a_broker_that_is_gone_leaves_the_isr_and_is_eligible_below_the_minimum",
    ),
    _mutant(
        "read before the claim", "cluster/controller_loop", read_before_the_claim,
        "cluster/test_controller_faults.py::test_c7_what_was_written_before_the_claim_is_read_after_it",
    ),
    _mutant(
        "the office is seen where it was", "store/port: sync", the_office_is_seen_where_it_was,
        "server/test_membership_faults.py::test_c7_brokers_that_all_see_an_outdated_store_still_find_the_office_vacant",
    ),
    _mutant(
        "an id is never waited for", "cluster/registration", an_id_is_never_waited_for,
        "server/test_membership_faults.py::test_c5_a_restarted_broker_waits_until_its_old_session_is_over",
    ),
    _mutant(
        "a lost session ends the broker", "server/broker", a_lost_session_ends_the_broker,
        "server/test_membership_faults.py::test_a_controller_that_lost_its_session_loses_the_office_and_nothing_else",
    ),
    _mutant(
        "answers before the own image", "server/context", answers_come_before_the_own_image,
        "server/test_membership.py::test_a_topic_created_through_any_broker_is_known_to_it_at_once_and_to_all_soon",
    ),
    _mutant(
        "commands are not forwarded", "server/context", commands_are_not_forwarded,
        "server/test_membership.py::test_a_topic_created_through_any_broker_is_known_to_it_at_once_and_to_all_soon",
    ),
    _mutant(
        "commands have no principal", "server/context", commands_have_no_principal,
        "cluster/test_controller_link.py::test_a_command_goes_with_its_principal_and_comes_back_with_a_version",
    ),
    _mutant(
        "heartbeats wait for everything", "coordinators/runtime", heartbeats_wait_for_everything,
        "coordinators/test_runtime.py::test_an_answer_of_the_core_waits_for_no_notes",
    ),
)  # fmt: skip
