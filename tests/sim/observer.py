"""Looks at the brokers after every step and asks the invariants about what has changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from uuid import UUID

from tests.sim import invariants
from tests.sim.ghost import Ghost, Key, Replica, Violation
from tests.sim.peek import epoch_of, find, held, in_sync_of, leads, parts_of
from tidelog.cluster import layout
from tidelog.cluster.image import MetadataImage, PartitionState
from tidelog.cluster.layout import load
from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.model import TopicPartition
from tidelog.replication.partition import Partition
from tidelog.server.parts import Parts
from tidelog.storage.checkpoint import parse_id
from tidelog.store.port import Operation
from tidelog.testing.disk import CrashMode
from tidelog.testing.simulation.machines import SESSION_S, Machine, World

# What a message may take on its way, at most, beside the session's time.
_SLACK_S = 2.0
_BASE = attrgetter("base")


class Observer:
    """The ghost state of a world, kept in step with it."""

    def __init__(self, world: World, min_isr: int) -> None:
        self._world = world
        self._journal = world.journal
        self._min_isr = min_isr
        self.ghosts: dict[Key, Ghost] = {}
        self.image = MetadataImage()
        self.violation: Violation | None = None
        self._images: dict[tuple[int, int], MetadataImage] = {}
        # By partition of a broker in one life: what it is looked at for.
        self._watched: dict[Partition, tuple[Ghost, Replica]] = {}
        # By broker: what of each log was safe when its last life ended.
        self._kept: dict[int, dict[Key, int]] = {}
        # Brokers whose logs may hold what was written in the call in which the power went.
        self._cut_in_a_call: set[int] = set()
        # More machines lost records at a time than the budget allows.
        self.is_budget_broken = False
        # The partitions of the last machine looked at whose logs or standing its step changed; and
        # how often anything was committed anywhere. Where neither says so, there is nothing new.
        self.moved: list[Partition] = []
        self.commits = 0
        # Looks as well, where there is more to look at.
        self.also: Callable[[Machine, Parts], None] | None = None
        world.on_step = self._stepped
        world.on_end = self._ended
        world.tree.on_transaction = self._transaction
        for machine in world.machines.values():
            machine.disk.on_removal = lambda source, target, at=machine: self._removed(
                at, source, target
            )

    # -- what is told -----------------------------------------------------------------------------

    def may_lose(self, machine: Machine) -> bool:
        """Whether another machine may lose what it has not synced."""
        unwhole = {broker for ghost in self.ghosts.values() for broker in ghost.unwhole}
        unwhole |= {
            each.broker_id for each in self._world.machines.values()
            if (each.disk.is_doomed or each.has_bad_disk) and each is not machine
        }  # fmt: skip
        if len(self._world.machines) == 1:
            # Its topics sync before they acknowledge.
            return True
        return len(unwhole - {machine.broker_id}) < self._min_isr - 1

    def find(self, topic_partition: TopicPartition) -> Ghost | None:
        """The partition of that name as the store has it now."""
        topic = self.image.topics.get(topic_partition.topic)
        if topic is None:
            return None
        return self.ghosts.get((topic.topic_id, topic_partition.partition))

    def acknowledged(self, topic_partition: TopicPartition, offset: int, value: int) -> None:
        """A producer was told that all in-sync replicas have a record."""
        ghost = self.find(topic_partition)
        if ghost is None or ghost.is_loss_allowed:
            return
        ghost.acked[offset] = value
        if offset < ghost.true_watermark:
            return
        state = ghost.state
        leader = None if state is None else self._running(ghost, state.leader)
        if leader is None or state is None or leader.epoch != state.leader_epoch:
            return
        if leader.holding(offset) is None:
            what = f"{ghost}@{offset} is acknowledged and b{leader.broker_id} does not have it"
            self.fail(Violation("I1 leader completeness", what))

    def acknowledged_by_one(self, topic_partition: TopicPartition, offset: int, by: int) -> None:
        """I12: a leader that has been replaced acknowledges acks=1 no longer than a session."""
        ghost = self.find(topic_partition)
        replica = None if ghost is None else ghost.replicas.get(by)
        batch = None if replica is None else replica.holding(offset)
        if ghost is None or batch is None:
            return
        since = ghost.superseded_at.get(batch.epoch)
        if since is not None and self._world.loop.now - since > SESSION_S + _SLACK_S:
            what = (
                f"b{by} acknowledged {ghost}@{offset} in epoch {batch.epoch}"
                f" {self._world.loop.now - since:.1f} s after it was replaced"
            )
            self.fail(Violation("I12 zombie leader", what))

    def given(self, topic_partition: TopicPartition, offset: int, value: int) -> None:
        ghost = self.find(topic_partition)
        if ghost is not None:
            try:
                invariants.i4_consistent_read(ghost, offset, value)
            except Violation as violation:
                self.fail(violation)

    def fail(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation

    def check(self) -> None:
        """Raise what was found where nobody could hear it."""
        if self.violation is not None:
            raise self.violation

    # -- the store --------------------------------------------------------------------------------

    def _transaction(self, operations: Sequence[Operation], session: int) -> None:
        tree = self._world.tree
        try:
            epoch = tree.nodes.get(layout.CONTROLLER_EPOCH)
            if epoch is None:
                return
            invariants.i27_fenced_writes(operations, epoch.version)
            if any(each.path == layout.CONTROLLER_EPOCH for each in operations[:3]):
                self._follow_store()
        except Violation as violation:
            self.fail(violation)

    def _follow_store(self) -> None:
        before, self.image = self.image, load(self._world.tree.nodes).image
        if self.image.controller_epoch != before.controller_epoch:
            if self.image.controller_epoch < before.controller_epoch:
                raise Violation("I27 fenced writes", "the controller epoch fell")
            self._journal.note("controller", f"b{self.image.controller_id}")
        for name, topic in self.image.topics.items():
            old = before.topics.get(name)
            for index, state in enumerate(topic.partitions):
                was = None
                if (
                    old is not None
                    and old.topic_id == topic.topic_id
                    and index < len(old.partitions)
                ):
                    was = old.partitions[index]
                if state != was:
                    self._state_changed(self._ghost(topic.topic_id, name, index), was, state)

    def _ghost(self, topic_id: UUID, topic: str, partition: int) -> Ghost:
        ghost = self.ghosts.get((topic_id, partition))
        if ghost is None:
            ghost = self.ghosts[topic_id, partition] = Ghost(topic, (topic_id, partition))
            ghost.min_isr = self._min_isr
        return ghost

    def _state_changed(
        self, ghost: Ghost, before: PartitionState | None, state: PartitionState
    ) -> None:
        ghost.state = state
        ghost.states.append(state)
        if ghost.topic in INTERNAL_TOPICS:
            # Nobody sets it for them, and an operator may leave them with two replicas.
            ghost.min_isr = self._min_isr if state.replication_factor >= 3 else 1
        for broker in set(ghost.replicas) - set(state.replicas):
            # It may drop its log. What it has when it comes again is judged by then.
            ghost.moved_from.add(broker)
            del ghost.replicas[broker]
            ghost.unwhole.pop(broker, None)
            self._kept.get(broker, {}).pop(ghost.key, None)
        if before is not None:
            invariants.i5_epochs_rise(ghost, before, state)
            if state.leader_epoch != before.leader_epoch:
                ghost.superseded_at[before.leader_epoch] = self._world.loop.now
                self._journal.note(
                    "leader epoch", f"b{state.leader}", f"{ghost} epoch {state.leader_epoch}"
                )
            if state.isr != before.isr:
                kind = "isr shrunk" if len(state.isr) < len(before.isr) else "isr grown"
                self._journal.note("isr", f"b{state.leader}", f"{ghost} {before.isr}>{state.isr}")
                self._journal.counts[kind] += 1
            if state.elr != before.elr:
                self._journal.note("elr", f"b{state.leader}", f"{ghost} {before.elr}>{state.elr}")
            is_elected = state.leader >= 0 and state.leader_epoch != before.leader_epoch
            ghost.elections_out_of_sync += is_elected and state.leader not in before.isr
            if before.elr and state.leader in before.elr:
                self._journal.note("elected from elr", f"b{state.leader}", str(ghost))
        invariants.i11_last_known(ghost, state)
        for broker in (*state.isr, *state.elr):
            replica = self._running(ghost, broker)
            if replica is not None:
                invariants.i2_candidate_completeness(ghost, replica)

    def _running(self, ghost: Ghost, broker_id: int) -> Replica | None:
        """A replica whose broker is up, in the life that the store knows."""
        machine = self._world.machines.get(broker_id)
        replica = ghost.replicas.get(broker_id)
        if machine is None or replica is None or machine.broker is None:
            return None
        known = self.image.brokers.get(broker_id)
        if known is None or replica.life != machine.life:
            return None
        return replica if epoch_of(machine.broker) == known.epoch else None

    # -- the brokers ------------------------------------------------------------------------------

    def _stepped(self, machine: Machine) -> None:
        if self.violation is not None:
            raise self.violation
        broker = machine.broker
        parts = parts_of(broker)
        if parts is None:
            return
        image = parts.metadata.image
        key = (machine.broker_id, machine.life)
        before = self._images.get(key)
        if image is not before:
            if before is not None:
                invariants.i28_images_do_not_go_back(machine.name, before, image)
            self._images[key] = image
        self.moved.clear()
        self._look(machine, parts)
        if self.also is not None:
            self.also(machine, parts)

    def _look(self, machine: Machine, parts: Parts) -> None:
        broker_id, watched = machine.broker_id, self._watched
        for partitions in held(parts):
            for partition in partitions.values():
                known = watched.get(partition)
                if known is None or known[0].replicas.get(broker_id) is not known[1]:
                    known = watched[partition] = self._meet(machine, partition)
                    self.moved.append(partition)
                ghost, replica = known
                log, seen = partition.log, replica.seen
                segments = log.segments
                active = segments.active
                # Asked for every partition of a broker after every step of it.
                if (
                    seen[0] is not active
                    or seen[1] != active.size_bytes
                    or seen[2] != active.truncations
                    or partition.watermark.offset != replica.watermark
                    or log.log_start_offset != replica.log_start
                    or partition.leader_epoch != replica.epoch
                ):
                    self.moved.append(partition)
                    self._changed(machine, ghost, replica, partition)
                elif seen[3] != len(segments.bases):
                    self.moved.append(partition)
                replica.state = partition.state

    def _meet(self, machine: Machine, partition: Partition) -> tuple[Ghost, Replica]:
        """What is known of a partition that is there since the last look, or there again."""
        log = partition.log
        ghost = self._ghost(log.topic_id, log.topic_partition.topic, log.topic_partition.partition)
        replica = ghost.replicas.get(machine.broker_id)
        if replica is None or replica.life != machine.life:
            replica = self._appeared(machine, ghost, partition)
        return ghost, replica

    def _appeared(self, machine: Machine, ghost: Ghost, partition: Partition) -> Replica:
        """A log is seen for the first time in this life of its broker."""
        before = ghost.replicas.get(machine.broker_id)
        replica = ghost.replicas[machine.broker_id] = Replica(machine.broker_id, machine.life)
        new, _ = replica.take(partition.log, machine.disk)
        replica.log_start = partition.log.log_start_offset
        invariants.i33_loaded_bounds(ghost, partition)
        kept = self._kept.get(machine.broker_id, {}).get(ghost.key)
        if before is not None and kept is not None and machine.empty_life != machine.life:
            if machine.broker_id not in self._cut_in_a_call:
                invariants.i30_recovered_prefix(ghost, before, replica)
            invariants.i31_synced_stays(ghost, before, replica, kept)
            self._journal.note("recovered", machine.name, f"{ghost} {replica.end} of {before.end}")
        invariants.i3_log_matching(ghost, replica, new)
        # What a checkpoint remembered was committed in an earlier life.
        replica.watermark = partition.high_watermark
        return replica

    def _changed(
        self, machine: Machine, ghost: Ghost, replica: Replica, partition: Partition
    ) -> None:
        new, is_cut = replica.take(partition.log, machine.disk)
        replica.log_start = partition.log.log_start_offset
        invariants.i5_one_writer(ghost, replica, new)
        invariants.i3_log_matching(ghost, replica, new)
        if is_cut:
            self._journal.note("truncated", machine.name, f"{ghost} to {replica.end}")
        is_new_epoch = partition.leader_epoch != replica.epoch
        replica.epoch = partition.leader_epoch
        before, replica.watermark = replica.watermark, partition.high_watermark
        state = ghost.state
        if state is None:
            return
        is_leader = state.leader == machine.broker_id and state.leader_epoch == replica.epoch
        if is_leader and leads(partition):
            ghost.log_start = max(ghost.log_start, partition.log.log_start_offset)
            if is_new_epoch or is_cut:
                invariants.i1_leader_completeness(ghost, replica)
            if replica.watermark > before:
                self._committed(ghost, replica, partition)
        elif is_cut and self._is_candidate(ghost, machine.broker_id):
            invariants.i2_candidate_completeness(ghost, replica)
        if replica.watermark > before:
            if replica.watermark > ghost.true_watermark:
                # A leader that was replaced may move on for a moment: with what all others have.
                self._commit_up_to(ghost, replica)
            invariants.i3_agreement_below_the_watermark(ghost, replica, before)
        if ghost.unwhole:
            self._is_whole_again(ghost, replica)

    def _committed(self, ghost: Ghost, replica: Replica, partition: Partition) -> None:
        """A current leader has moved its watermark."""
        in_sync = in_sync_of(partition)
        if in_sync is not None:
            invariants.i6_watermark_rule(
                ghost, replica, in_sync, _passed(ghost, replica, partition)
            )
            invariants.i2_superset(ghost, replica, in_sync)
            if partition.config.durability_fsync:
                synced = self._synced(ghost, in_sync.isr)
                invariants.i6_synced_before_committed(
                    ghost, replica.watermark, synced, ghost.unwhole
                )
        if replica.watermark > ghost.true_watermark:
            self._commit_up_to(ghost, replica)

    def _synced(self, ghost: Ghost, members: Iterable[int]) -> dict[int, int]:
        """Up to where the logs of those that run are on their disks."""
        found = {}
        for broker in members:
            parts = parts_of(self._world.machines[broker].broker)
            if self._running(ghost, broker) is not None and parts is not None:
                partition = find(parts, ghost.topic, ghost.key)
                if partition is not None:
                    found[broker] = partition.log.flushed_offset
        return found

    def _commit_up_to(self, ghost: Ghost, replica: Replica) -> None:
        since = len(ghost.committed)
        batches = replica.batches
        first = bisect_left(batches, ghost.true_watermark, key=_BASE)
        ghost.committed += batches[first : bisect_left(batches, replica.watermark, key=_BASE)]
        ghost.true_watermark = replica.watermark
        self.commits += 1
        self._journal.note("committed", f"b{replica.broker_id}", f"{ghost} {replica.watermark}")
        assert ghost.state is not None
        for broker in (*ghost.state.isr, *ghost.state.elr):
            other = self._running(ghost, broker)
            if other is not None:
                invariants.i2_candidate_completeness(ghost, other, since)

    def _is_whole_again(self, ghost: Ghost, replica: Replica) -> None:
        lost_in = ghost.unwhole.get(replica.broker_id)
        state = ghost.state
        if lost_in is None or replica.life <= lost_in or state is None:
            return
        is_in_sync = replica.broker_id in state.isr and self._is_candidate(ghost, replica.broker_id)
        if is_in_sync and ghost.lacks(replica) is None:
            del ghost.unwhole[replica.broker_id]

    def _is_candidate(self, ghost: Ghost, broker_id: int) -> bool:
        state = ghost.state
        if state is None or broker_id not in (*state.isr, *state.elr):
            return False
        return self._running(ghost, broker_id) is not None

    # -- the ends of lives ------------------------------------------------------------------------

    def _ended(self, machine: Machine, mode: CrashMode) -> None:
        broker = machine.broker
        parts = parts_of(broker)
        kept = self._kept.setdefault(machine.broker_id, {})
        was_in_a_call = machine.disk.down
        self._cut_in_a_call.discard(machine.broker_id)
        if was_in_a_call:
            self._cut_in_a_call.add(machine.broker_id)
        is_empty = machine.empty_life == machine.life
        for ghost in self.ghosts.values():
            replica = ghost.replicas.get(machine.broker_id)
            if replica is None:
                continue
            if mode is not CrashMode.KEEP_ALL or machine.has_bad_disk:
                ghost.unwhole[machine.broker_id] = machine.life
            if replica.life != machine.life and (is_empty or mode is not CrashMode.KEEP_ALL):
                # It was not loaded in this life: what its page cache had is gone.
                kept[ghost.key] = 0
        if parts is None:
            return
        for partitions in held(parts):
            for partition in partitions.values():
                log = partition.log
                is_lost = mode is not CrashMode.KEEP_ALL
                key = (log.topic_id, log.topic_partition.partition)
                safe = log.flushed_offset if is_lost else log.log_end_offset
                kept[key] = min(safe, log.log_end_offset)
                ghost = self.ghosts.get(key)
                if ghost is not None and machine.broker_id in ghost.replicas:
                    ghost.replicas[machine.broker_id].was_cutting = log.cuts.under_way

    def _removed(self, machine: Machine, source: str, target: str) -> None:
        """I29: a partition's directory goes only against a tombstone of its topic, or by a move."""
        name = source.rpartition("/")[2]
        if not target.endswith("-delete"):
            return
        try:
            text = machine.disk.content(f"{source}/partition.metadata").decode()
        except OSError:
            return
        topic_id = parse_id(text.rpartition("topic_id: ")[2])
        if f"{layout.DELETED}/{topic_id.hex}" in self._world.tree.nodes:
            return
        state = self.image.topic_names.get(topic_id)
        topic = None if state is None else self.image.topics[state]
        partition = int(name.rpartition("-")[2])
        if topic is not None:
            now = topic.partitions[partition]
            moved_from = self._ghost(topic_id, topic.name, partition).moved_from
            if machine.broker_id not in now.replicas:
                return
            # It was taken from here, and is to come again: nobody counts on it before it has.
            if machine.broker_id in moved_from and machine.broker_id not in (*now.isr, *now.elr):
                return
        what = f"{machine.name} removes {source} though its topic was not deleted"
        self.fail(Violation("I29 tombstones", what))


def _passed(ghost: Ghost, replica: Replica, partition: Partition) -> list[PartitionState]:
    """What a leader has known of its partition between the last look and this one."""
    if replica.state is None:
        return []
    before, now = replica.state.partition_epoch, partition.state.partition_epoch
    return [each for each in ghost.states if before < each.partition_epoch < now]
