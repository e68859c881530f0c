"""The invariants of RELIABILITY 4.2 that a simulated world is held to, one function each.

Each raises `Violation` with its name where it does not hold. When each is asked is the observer's
business: it looks only at what a step has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from tests.sim.ghost import Batch, Ghost, Replica, Violation
from tidelog.cluster import layout
from tidelog.cluster.image import PartitionState
from tidelog.model import TopicPartition
from tidelog.replication.in_sync import InSyncReplicas
from tidelog.store.port import Check, Create, Delete, Operation, Set

_CONTROLLED = (layout.TOPICS, layout.DELETED, "/config", "/producer_ids", layout.BROKERS_SEEN)


def i1_leader_completeness(ghost: Ghost, replica: Replica) -> None:
    """The leader that the store names has every committed batch from the log's start on."""
    missing = ghost.lacks(replica)
    if missing is not None:
        raise Violation(
            "I1 leader completeness",
            f"b{replica.broker_id} leads {ghost} in epoch {replica.epoch} without the committed"
            f" batch {missing}; it has {replica.holding(missing.base)}",
        )


def i2_candidate_completeness(ghost: Ghost, replica: Replica, since: int = 0) -> None:
    """Every running member of the store's ISR and ELR has every committed batch."""
    missing = ghost.lacks(replica, since)
    if missing is not None:
        is_lossy = replica.broker_id in ghost.unwhole
        name = "I10 unclean exclusion" if is_lossy else "I2 candidate completeness"
        raise Violation(
            name,
            f"b{replica.broker_id} may lead {ghost} ({ghost.state}) without the committed batch"
            f" {missing}; it has {replica.holding(missing.base)}",
        )


def i3_log_matching(ghost: Ghost, replica: Replica, new: Sequence[Batch]) -> None:
    """Two logs with a batch of one epoch at one offset are the same up to it."""
    for batch in new:
        index = _index(replica.batches, batch)
        before = replica.batches[index - 1] if index else None
        known, known_before = ghost.written.setdefault((batch.epoch, batch.base), (batch, before))
        if known != batch:
            raise Violation(
                "I3 log matching", f"b{replica.broker_id} has {batch} in {ghost}, others {known}"
            )
        if before is None or known_before is None or before.last < replica.log_start:
            # What was deleted need not be the same: nobody reads it any more.
            continue
        if before != known_before:
            raise Violation(
                "I3 log matching",
                f"b{replica.broker_id} has {before} in {ghost} before {batch}, others"
                f" {known_before}",
            )


def i3_agreement_below_the_watermark(ghost: Ghost, replica: Replica, before: int) -> None:
    """What a replica takes for committed is what was committed."""
    if ghost.is_loss_allowed:
        return
    low = max(before, ghost.log_start)
    for batch in reversed(ghost.committed):
        if batch.last < low:
            break
        if batch.base < replica.watermark and replica.holding(batch.base) != batch:
            raise Violation(
                "I3 log matching",
                f"b{replica.broker_id} of {ghost} has {replica.holding(batch.base)} below its"
                f" watermark, committed is {batch}",
            )


def i4_consistent_read(ghost: Ghost, offset: int, value: int) -> None:
    """What a consumer was given at an offset never changes."""
    before = ghost.given.setdefault(offset, value)
    if before != value and not ghost.is_loss_allowed:
        raise Violation(
            "I4 consistent read", f"{ghost}@{offset} was {before} and is {value} to consumers"
        )


def i5_one_writer(ghost: Ghost, replica: Replica, new: Iterable[Batch]) -> None:
    """The batches of an epoch are appended by one broker, in one life of it."""
    for batch in new:
        if (batch.epoch, batch.base) in ghost.written:
            continue
        me = (replica.broker_id, replica.life)
        writer = ghost.writers.setdefault(batch.epoch, me)
        if writer != me:
            raise Violation(
                "I5 one writer per epoch",
                f"{ghost}: {batch} was appended by b{me[0]} in life {me[1]}, others of the epoch by"
                f" b{writer[0]} in life {writer[1]}",
            )


def i5_epochs_rise(ghost: Ghost, before: PartitionState, after: PartitionState) -> None:
    """The store's leader epoch rises with every change of leader, and never falls."""
    rises = after.leader_epoch > before.leader_epoch
    if not rises and (after.leader != before.leader or after.leader_epoch != before.leader_epoch):
        raise Violation("I5 one writer per epoch", f"{ghost} went from {before} to {after}")


def i2_superset(ghost: Ghost, replica: Replica, in_sync: InSyncReplicas) -> None:
    """A leader that commits counts at least those who may lead after it."""
    state = ghost.state
    if state is None or len(in_sync.isr) < ghost.min_isr:
        return
    forgotten = {*state.isr, *state.elr} - _maximal_isr(in_sync)
    if forgotten:
        raise Violation(
            "I2 candidate completeness",
            f"b{replica.broker_id} commits in {ghost} without {sorted(forgotten)} of {state}",
        )


def _maximal_isr(in_sync: InSyncReplicas) -> set[int]:
    """The ISR as the leader knows it, with those whose admission it has asked for."""
    pending = in_sync.pending
    return {*in_sync.isr, *(() if pending is None else pending.broker_ids)}


def i6_watermark_rule(
    ghost: Ghost,
    replica: Replica,
    in_sync: InSyncReplicas,
    passed: Sequence[PartitionState] = (),
) -> None:
    """A leader moves its watermark only with enough in-sync replicas, and to where each of the
    maximal ISR has fetched in this epoch and its current life.

    Where it hears of several changes at once, it may move between two of them: `passed` are those
    that it no longer knows.
    """
    name = "I6 watermark rule"
    if len(in_sync.isr) < ghost.min_isr:
        for state in passed:
            ends = [ghost.replicas[each].end for each in state.isr if each in ghost.replicas]
            if len(state.isr) >= ghost.min_isr and min(ends) >= replica.watermark:
                return
        raise Violation(
            name,
            f"b{replica.broker_id} moved {ghost} to {replica.watermark} with ISR {in_sync.isr},"
            f" {ghost.min_isr} are needed",
        )
    for member in sorted(_maximal_isr(in_sync)):
        if member == replica.broker_id:
            continue
        follower = in_sync.followers[member]
        if follower.end < replica.watermark:
            raise Violation(
                name,
                f"b{replica.broker_id} moved {ghost} to {replica.watermark}, b{member} of the"
                f" maximal ISR has fetched from {follower.end}",
            )


def i6_synced_before_committed(
    ghost: Ghost, watermark: int, synced: Mapping[int, int], unwhole: Collection[int]
) -> None:
    """On a topic that syncs, what is committed is on the disks of the in-sync replicas."""
    for broker_id, offset in synced.items():
        if offset < watermark and broker_id not in unwhole:
            raise Violation(
                "I6 watermark rule",
                f"{ghost} is committed up to {watermark} and syncs, b{broker_id} has synced"
                f" {offset} of it",
            )


def i9_topic_ids(
    place: TopicPartition, value: int, home: tuple[str, UUID | None], now: UUID | None
) -> None:
    """What was written under the id of a topic is served under no other one."""
    topic, topic_id = home
    if topic != place.topic or (topic_id != now and None not in (topic_id, now)):
        raise Violation("I9 topic ids", f"{place} of {now} gave {value} of {topic}, {topic_id}")


def i11_last_known(ghost: Ghost, state: PartitionState) -> None:
    """When nobody is left who has everything, it is known who had it last."""
    if not state.isr and not state.elr and not state.last_known_elr:
        raise Violation("I11 last known leader", f"{ghost} forgot who had its records: {state}")


def i27_fenced_writes(operations: Sequence[Operation], epoch_version: int) -> None:
    """Every write of metadata depends on the writer's controller epoch being current."""
    fenced = any(
        each.path == layout.CONTROLLER_EPOCH
        and (isinstance(each, Create) or each.version in (epoch_version, epoch_version - 1))
        for each in operations
    )
    for each in operations:
        if isinstance(each, Check) or not each.path.startswith(_CONTROLLED):
            continue
        if not fenced and isinstance(each, Create | Set | Delete):
            raise Violation("I27 fenced writes", f"{each.path} was written by nobody in office")


def i28_images_do_not_go_back(name: str, before: Any, after: Any) -> None:
    """A broker's image never becomes older."""
    if (after.controller_epoch, after.version) < (before.controller_epoch, before.version):
        raise Violation(
            "I28 images do not go back",
            f"{name} went from version {before.version} of epoch {before.controller_epoch} to"
            f" {after.version} of {after.controller_epoch}",
        )


def i30_recovered_prefix(ghost: Ghost, before: Replica, after: Replica) -> None:
    """A recovered log is a prefix of what was written, and nothing else."""
    # A cut that the disk had yet to do may be undone.
    written = before.uncut if before.was_cutting and after.end > before.end else before.batches
    old = [each for each in written if not after.batches or each.base >= after.batches[0].base]
    if after.batches != old[: len(after.batches)]:
        strange = next(
            (new for new, known in zip(after.batches, old, strict=False) if new != known),
            after.batches[-1],
        )
        raise Violation(
            "I30 recovered prefix", f"b{after.broker_id} of {ghost} came back with {strange}"
        )


def i31_synced_stays(ghost: Ghost, before: Replica, after: Replica, kept: int) -> None:
    """What was synced before a power cut, or written before a kill, is in the recovered log.

    What was deleted before is not missed: a log of which no more than that was synced is empty.
    """
    if max(after.end, before.log_start) < min(kept, before.end):
        raise Violation(
            "I31 synced stays",
            f"b{after.broker_id} of {ghost} came back with {after.end} records, {kept} of"
            f" {before.end} were safe",
        )


def i33_loaded_bounds(ghost: Ghost, partition: Any) -> None:
    """What was loaded beside a log does not go beyond its end."""
    log = partition.log
    end = log.log_end_offset
    if partition.high_watermark > end or log.flushed_offset > end:
        raise Violation(
            "I33 loaded bounds",
            f"{ghost} ends at {end}, its watermark is {partition.high_watermark}, its recovery"
            f" point {log.flushed_offset}",
        )


def _index(batches: Sequence[Batch], batch: Batch) -> int:
    low, high = 0, len(batches)
    while low < high:
        middle = (low + high) // 2
        if batches[middle].base < batch.base:
            low = middle + 1
        else:
            high = middle
    return low
