"""Logs that are damaged on this broker's disk become whole again from their leaders.

However damage is found (by a read from the disk, by the scrub, because a follower does not take
what it is given, or when the log is opened), nothing of it is served (`storage/damage`). Then:

1. The replica is given up: it leaves ISR and ELR, and another one leads, in a new leader epoch. One
   that leads gives up only if another one is in sync; until then it serves the rest of its log.
2. Once the metadata says so, it drops the damaged segment and all behind it. It has asked for
   nothing since the damage was found: in the new epoch its leader knows of no more than it has.
3. It fetches what is missing and joins the ISR by that, like any other replica.

A log that could not be opened has been walked, cut before the damage and opened by then, or, where
nothing of it can be used, put aside and begun anew. A partition with one replica stays as it is.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

from tidelog.audit import audit
from tidelog.cluster.commands import ReplicaKey
from tidelog.cluster.image import PartitionState
from tidelog.errors import KafkaError, PartitionBrokenError, StorageError
from tidelog.host.host import Host
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.replication.isr_changes import IsrChanges
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas
from tidelog.replication.scrubbing import Scrubber
from tidelog.storage.data_dir import DataDir
from tidelog.storage.partition_directory import partition_of
from tidelog.storage.segment import Segment

_log = logging.getLogger(__name__)

# A place that somebody could not read is looked at so often at most; and so many wait for that.
_LOOK_AGAIN_SECONDS: Final = 30.0
_SUSPECTS_MAX: Final = 1_000


@dataclass(slots=True)
class Case:
    """A damaged replica."""

    partition: Partition
    # The leader epoch in which it was found: what was shown to a leader until then is void.
    found_in_epoch: int
    was_cut: bool = False


class Mending:
    """The damaged replicas of one broker."""

    def __init__(
        self, replicas: Replicas, isr_changes: IsrChanges, data_dir: DataDir, host: Host
    ) -> None:
        self._replicas = replicas
        self._isr_changes = isr_changes
        self._own_id = replicas.standing.broker_id
        self._clock = host.clock
        self.scrubber = Scrubber(replicas.__iter__, host)
        # Filled by any thread.
        self._marked: deque[Segment] = deque()
        self._cases: dict[TopicPartition, Case] = {}
        self._suspects: dict[TopicPartition, int] = {}
        self._looked_at: dict[TopicPartition, float] = {}
        self._opened_badly: set[TopicPartition] = set()
        # How often damage was found, and how many replicas are whole again.
        self.found = self.repaired = 0
        data_dir.context.on_damage = self._marked.append
        replicas.standing.suspect = self._suspect

    @property
    def damaged(self) -> dict[TopicPartition, str]:
        """The replicas that lack something, as far as it was found, and what becomes of them."""
        found = dict.fromkeys(self._replicas.damaged, "it could not be opened")
        for key, case in self._cases.items():
            what = "what was damaged is being fetched" if case.was_cut else "not mended yet"
            if len(case.partition.replicas) == 1:
                what = "there is no other replica to mend it from"
            found[key] = what
        return found

    def _suspect(self, partition: TopicPartition, offset: int) -> None:
        if len(self._suspects) < _SUSPECTS_MAX:
            self._suspects[partition] = offset

    async def run(self) -> None:
        """Take the next step with everything that is damaged."""
        await self._look_at_suspects()
        self._open_cases()
        given_up: list[ReplicaKey] = []
        for key, case in tuple(self._cases.items()):
            if await self._is_closed(key, case):
                del self._cases[key]
            elif self._is_counted_on(case) and self._has_to_leave(case.partition.state):
                given_up.append(ReplicaKey(case.partition.topic_id, key.partition))
        for key, topic_id in tuple(self._replicas.damaged.items()):
            self.found += key not in self._opened_badly
            self._opened_badly.add(key)
            state = self._replicas.state_of(key)
            if state is not None and self._may_lose(state):
                await self._open_again(key)
            elif self._has_to_leave(state):
                given_up.append(ReplicaKey(topic_id, key.partition))
        await self._isr_changes.give_up(given_up, damaged=True)

    # -- what is found ----------------------------------------------------------------------------

    async def _look_at_suspects(self) -> None:
        suspects, self._suspects = self._suspects, {}
        now = self._clock.monotonic()
        self._looked_at = {
            key: at for key, at in self._looked_at.items() if now - at < _LOOK_AGAIN_SECONDS
        }
        for key, offset in suspects.items():
            partition = self._replicas.held(*key)
            if partition is None or key in self._looked_at:
                continue
            self._looked_at[key] = now
            try:
                await self.scrubber.look_at(partition.log, offset)
            except (StorageError, OSError) as error:
                _log.warning("cannot look into partition=%s error=%s", key, error)

    def _open_cases(self) -> None:
        while self._marked:
            segment = self._marked.popleft()
            key = partition_of(segment.directory.rpartition("/")[2])
            partition = None if key is None else self._replicas.held(*key)
            if partition is None or not partition.log.segments.has([segment]):
                continue
            self.found += 1
            damage = segment.damaged[-1]
            audit(
                "damage found in a log",
                partition=str(partition.topic_partition),
                segment=segment.log_file.path,
                byte=damage.start,
                fault=repr(damage.fault),
                replicas=len(partition.replicas),
            )
            # What was damaged before and is fetched by now is another case.
            case = Case(partition, partition.leader_epoch)
            partition.following.is_held = len(partition.replicas) > 1
            partition.following.fetch_watchers.notify()
            self._cases[partition.topic_partition] = case

    # -- step by step -----------------------------------------------------------------------------

    async def _is_closed(self, key: TopicPartition, case: Case) -> bool:
        """Do what can be done for a replica now; whether nothing is left to do."""
        partition = case.partition
        if self._replicas.held(*key) is not partition or partition.offline_reason is not None:
            return True
        if case.was_cut:
            return self._is_whole(case)
        damaged = next((each for each in partition.log.segments if each.damaged), None)
        if damaged is None:
            # Retention or a cut took it.
            self._release(partition)
            return True
        if not self._is_counted_on(case) and partition.following.is_active:
            await self._drop(case, damaged)
        return False

    def _is_counted_on(self, case: Case) -> bool:
        """Whether somebody takes it for whole: the metadata, or a leader that it has asked."""
        state = case.partition.state
        if case.was_cut:
            return False
        if state is None or case.found_in_epoch >= state.leader_epoch:
            return True
        return not self._may_lose(state)

    def _is_whole(self, case: Case) -> bool:
        partition = case.partition
        if self._own_id not in partition.isr:
            return False
        self.repaired += 1
        _log.warning(
            "damaged replica is whole again partition=%s log_end_offset=%d",
            partition.topic_partition, partition.log.log_end_offset,
        )  # fmt: skip
        return True

    async def _drop(self, case: Case, damaged: Segment) -> None:
        partition = case.partition
        audit(
            "dropped a damaged part of a replica, to be fetched from its leader",
            partition=str(partition.topic_partition),
            leader=partition.following.leader_id,
            first_offset=damaged.base_offset,
            last_offset=partition.log.log_end_offset - 1,
        )
        try:
            # The log's start never falls.
            start = max(damaged.base_offset, partition.log.log_start_offset)
            await partition.following.drop_from(start)
        except (KafkaError, PartitionBrokenError) as error:
            _log.error("not dropped partition=%s error=%s", partition.topic_partition, error)
            return
        case.was_cut = True
        self._release(partition)

    def _release(self, partition: Partition) -> None:
        partition.following.is_held = False
        partition.following.fetch_watchers.notify()

    async def _open_again(self, key: TopicPartition) -> None:
        partition = await self._replicas.open_again(key)
        if partition is not None:
            self._cases[key] = Case(partition, partition.leader_epoch, was_cut=True)

    # -- by the metadata --------------------------------------------------------------------------

    def _may_lose(self, state: PartitionState) -> bool:
        """Whether nobody counts on this replica, and another one leads."""
        counted = self._own_id in (*state.isr, *state.elr)
        return not counted and state.leader not in (self._own_id, NO_LEADER)

    def _has_to_leave(self, state: PartitionState | None) -> bool:
        """Whether the controller is to be asked: another one leads, or can."""
        if state is None or len(state.replicas) == 1:
            return False
        if state.leader != self._own_id:
            return state.leader != NO_LEADER
        return any(
            each != self._own_id and each in self._replicas.standing.eligible for each in state.isr
        )
