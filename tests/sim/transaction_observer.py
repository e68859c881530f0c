"""Looks at the transactions of a world after every step: I14 to I22, as the brokers' logs tell.

It goes along with the `Observer`, who knows what is committed. What clients are told and given they
tell it, and it holds that against the logs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

from tests.sim.ghost import Ghost, Key, Violation
from tests.sim.observer import Observer
from tests.sim.peek import leads, parts_of
from tests.sim.transaction_stories import (
    Decisions,
    Entry,
    Piece,
    Story,
    Truth,
    entries,
    learn,
    story_of,
)
from tidelog.cluster.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.cluster.planner import PRODUCER_IDS_PER_BLOCK
from tidelog.coordinators.transactions.records import decode_record
from tidelog.coordinators.transactions.transaction import State
from tidelog.model import TopicPartition
from tidelog.replication.partition import Partition
from tidelog.storage.log import Log
from tidelog.testing.simulation.machines import Machine, World

_BASE: Final = attrgetter("header.base_offset")
INTERNAL: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class Mirror:
    """The log of one broker in one life, in words of transactions."""

    def __init__(self, log: Log, truth: Truth) -> None:
        self._truth = truth
        self._seen: tuple[Any, ...] = ()
        self._log = log
        self.name = name = log.topic_partition
        self.key = (log.topic_id, name.partition)
        self.entries: list[Entry] = []
        self.story = story_of(name, truth)
        # What is known of the partition, and up to where it was committed at the last look.
        self.ghost: Ghost | None = None
        self.committed = -1
        # A leader that was replaced has written what its successor would not: until it is cut.
        self.is_doomed = False

    @property
    def is_behind(self) -> bool:
        """Whether more may be committed than at the last look."""
        return self.ghost is None or self.ghost.true_watermark != self.committed

    def follow(self, machine: Machine) -> list[Entry]:
        """Take in what has changed; the entries that were appended since."""
        log = self._log
        active = log.segments.active
        before = self._seen
        self._seen = (active, active.truncations, len(log.segments), active.size_bytes)
        if before == self._seen:
            return []
        goes_on = before and before[:3] == self._seen[:3] and before[3] < active.size_bytes
        if goes_on and self.is_doomed:
            return []
        self.is_doomed = False
        if goes_on:
            data = machine.disk.peek(active.log_file.path)
            new = list(entries(memoryview(bytes(data[before[3] : active.size_bytes]))))
        else:
            self.entries, self.story = [], story_of(self.name, self._truth)
            new = []
            for segment in log.segments:
                if segment.size_bytes:
                    data = machine.disk.peek(segment.log_file.path)
                    new += entries(memoryview(bytes(data[: segment.size_bytes])))
        self.entries += new
        for entry in new:
            self.story.take(entry)
        return new if goes_on else []


class TransactionObserver:
    """The transactions of a world, by its logs."""

    def __init__(self, world: World, observer: Observer, topics: Sequence[str]) -> None:
        self._world = world
        self._observer = observer
        self._topics = (*topics, *INTERNAL)
        self.truth = Truth()
        # By the identity of the log that each keeps: they are asked for after every step.
        self._mirrors: dict[int, Mirror] = {}
        # What is committed of each partition.
        self._committed: dict[Key, Story | Decisions] = {}
        # By machine: its life, its block of ids, and how much was committed when it was looked at.
        self._looked: dict[int, tuple[int, int, int]] = {}
        # Whose each block of producer ids is, by its end; and who was given which id and epoch.
        self._blocks: dict[int, tuple[int, int]] = {}
        self._ids: dict[int, str] = {}
        self._given: dict[tuple[int, int], str] = {}
        before = world.on_step

        def stepped(machine: Machine) -> None:
            before(machine)
            self._look(machine)

        world.on_step = stepped

    # -- the brokers ------------------------------------------------------------------------------

    def _look(self, machine: Machine) -> None:
        parts = parts_of(machine.broker)
        if parts is None:
            return
        block_end, observer = parts.transactions.coordinator.ids._end, self._observer
        now = (machine.life, block_end, observer.commits)
        before = self._looked.get(machine.broker_id)
        if before == now and not observer.moved:
            return
        self._looked[machine.broker_id] = now
        if before is None or before[:2] != now[:2]:
            self.has_ids(machine, block_end)
        by_name, mirrors, moved = parts.replicas._by_name, self._mirrors, observer.moved
        for topic in self._topics:
            for partition in by_name.get(topic, {}).values():
                mirror = mirrors.get(id(partition.log))
                if mirror is None or partition in moved or mirror.is_behind:
                    self._follow(machine, partition)

    def has_ids(self, machine: Machine, block_end: int) -> None:
        """I16: a block of producer ids is one broker's, in one life of it."""
        owner = (machine.broker_id, machine.life)
        if block_end and self._blocks.setdefault(block_end, owner) != owner:
            what = f"b{owner[0]} has the block of ids before {block_end}"
            raise Violation("I16 producer ids", f"{what}, as b{self._blocks[block_end][0]} had")
        for end, other in self._blocks.items():
            if other != owner and 0 < abs(end - block_end) < PRODUCER_IDS_PER_BLOCK:
                what = f"blocks of ids before {block_end} and {end} overlap"
                raise Violation("I16 producer ids", what)

    def _follow(self, machine: Machine, partition: Partition) -> None:
        log = partition.log
        mirror = self._mirrors.get(id(log))
        if mirror is None:
            mirror = self._mirrors[id(log)] = Mirror(log, self.truth)
        try:
            new = mirror.follow(machine)
        except Violation as violation:
            # It may lack a marker that its successor has, and take the next transaction behind.
            is_late = violation.invariant.startswith("I18")
            if not is_late or not self._is_replaced(partition, mirror):
                raise
            mirror.is_doomed = True
        if mirror.is_doomed:
            return
        if new:
            self._note(machine, mirror.name, new, "appended")
        ghost = mirror.ghost
        if ghost is None:
            ghost = mirror.ghost = self._observer.ghosts.get(mirror.key)
        if ghost is not None and ghost.true_watermark != mirror.committed:
            mirror.committed = ghost.true_watermark
            self._commit(machine, ghost, mirror)

    def _is_replaced(self, partition: Partition, mirror: Mirror) -> bool:
        """Whether it is the log of a leader that does not know of its successor."""
        ghost = self._observer.ghosts.get(mirror.key)
        if ghost is None or ghost.state is None:
            return False
        return leads(partition) and partition.leader_epoch < ghost.state.leader_epoch

    def _commit(self, machine: Machine, ghost: Ghost, mirror: Mirror) -> None:
        story = self._committed.get(ghost.key)
        if story is None:
            story = self._committed[ghost.key] = story_of(mirror.name, self.truth)
        if ghost.true_watermark <= story.end or mirror.story.end < ghost.true_watermark:
            return
        entries = mirror.entries
        first = bisect_left(entries, story.end, key=_BASE)
        new = entries[first : bisect_left(entries, ghost.true_watermark, key=_BASE)]
        for entry in new:
            if isinstance(story, Decisions):
                learn(self.truth, entry)
            story.take(entry)
        self._note(machine, mirror.name, new, "committed")

    def _note(
        self, machine: Machine, name: TopicPartition, new: Iterable[Entry], what: str
    ) -> None:
        """Tell the journal of decisions, ends and markers: schedules strike right after them."""
        for entry in new:
            if entry.marker is not None:
                self._world.journal.note(f"marker {what}", machine.name, str(name))
            elif name.topic == TRANSACTIONS_TOPIC:
                for each in entry.records:
                    record = decode_record(each.key, each.value)
                    if record is not None and record.value is not None:
                        state = State(record.value.transaction_status)
                        kind = f"{state.shown} {what}"
                        self._world.journal.note(kind, machine.name, record.transactional_id)

    # -- what clients are told --------------------------------------------------------------------

    def given(self, transactional_id: str, name: str, producer: tuple[int, int]) -> None:
        """I15, I16: an epoch is given out once its record is committed, and to one producer."""
        if producer not in self.truth.recorded.get(transactional_id, ()):
            what = f"{name} was given {producer} of {transactional_id}, of which no record is"
            raise Violation("I15 epochs", f"{what} committed")
        if self._ids.setdefault(producer[0], transactional_id) != transactional_id:
            what = f"{transactional_id} and {self._ids[producer[0]]} both have id {producer[0]}"
            raise Violation("I16 producer ids", what)
        if self._given.setdefault(producer, name) != name:
            what = f"{name} and {self._given[producer]} were both given {producer}"
            raise Violation("I15 epochs", what)

    def read(self, name: TopicPartition, since: int, found: Sequence[tuple[int, int]]) -> None:
        """I20: a reader of committed records has got these offsets and values, from one on."""
        story = self._story(name)
        if story is None or not found:
            return
        last = found[-1][0]
        if last >= story.stable:
            raise Violation("I20 committed reads", f"{name}@{last} is read, not {story.stable}")
        meant = sorted(
            (each.offset, each.value) for each in story.visible.values()
            if since <= each.offset <= last
        )  # fmt: skip
        if list(found) != meant:
            what = f"{name} from {since} to {last} reads {list(found)}, and is {meant}"
            raise Violation("I20 committed reads", what)

    def fetched(self, group: str, offset: int) -> None:
        """I22: a group's offset of a transaction shows once that is committed, and never before."""
        if offset >= 0 and offset not in {each.value for each in self.offsets(group)}:
            what = f"{group} is told {offset}, which no transaction has committed"
            raise Violation("I22 offsets", what)

    def offsets(self, group: str) -> list[Piece]:
        """What transactions have committed for a group, in the order of the log."""
        return [
            each
            for story in self._committed.values()
            if isinstance(story, Story) and story.name.topic == OFFSETS_TOPIC
            for each in story.visible.values()
            if each.group == group
        ]

    def open(self) -> str:
        """L4: a transaction that is open somewhere, in committed records."""
        for story in self._committed.values():
            if story.open:
                return f"{story.name}: {story.open}"
        return ""

    def _story(self, name: TopicPartition) -> Story | None:
        ghost = self._observer.find(name)
        story = None if ghost is None else self._committed.get(ghost.key)
        return story if isinstance(story, Story) else None
