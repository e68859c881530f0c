"""The log against a list, with crashes: a seeded random walk over all that can be done to it.

The model is the list of batches that were appended. Whatever the walk does and whenever the machine
goes down (everything unsynced lost, kept, or torn and reordered sector by sector), the log that is
found afterwards must be a prefix of the list, hold all that was flushed, and know the producers,
transactions, leader epochs and times that its batches tell of.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.unit.storage.helpers import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    World,
    batch,
    create_log,
    finish_cut,
    marker,
    offset_for_timestamp,
    stored_batches,
)
from tidelog.config import TopicConfig
from tidelog.model import Codec
from tidelog.protocol.batches import BatchHeader, decode_records, read_header
from tidelog.storage.admission import Admitted
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.verification import CLIENT, COORDINATOR, Origin
from tidelog.testing.disk import CrashMode, SimulatedDisk

WALKS = 4000 if os.environ.get("TIDELOG_LONG") else 100
STEPS = 60
DATA = "/data"


@dataclass
class Sent:
    """A batch of the model."""

    header: BatchHeader
    data: bytes

    @property
    def end(self) -> int:
        return self.header.last_offset + 1


@dataclass
class Producer:
    sequence: int = 0
    in_transaction: bool = False


class Walk:
    """One random life of a log."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(SimulatedDisk(seed))
        self.world.config = TopicConfig(
            segment_bytes=self.chance.choice((1800, 2500, 6000)),
            index_interval_bytes=self.chance.choice((1, 200, 1000)),
            file_delete_delay_ms=0,
        )
        self.sent: list[Sent] = []
        self.flushed = 0
        self.log_start = 0
        self.durable_log_start = 0
        self.producers: dict[int, Producer] = {}
        self.epoch = 0
        self.crashes = 0
        self.open()

    @property
    def log(self) -> Log:
        return self.data_dir.logs[PARTITION]

    def open(self) -> None:
        self.world.restart()
        self.data_dir = DataDir.open(DATA, self.world.context)
        self.data_dir.identify("cluster", 1)
        new = NewLog(TOPIC_ID, self.world.config)
        assert not self.data_dir.load_logs({PARTITION: new}).offline
        if PARTITION not in self.data_dir.logs:
            # A log that was never flushed may be lost with its directory, its start included.
            assert not self.flushed
            self.durable_log_start = 0
            create_log(self.data_dir, PARTITION, new)
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)

    # Steps

    def run(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (30, self.append),
            (6, self.flush),
            (3, self.flush_while_appending),
            (4, self.read_somewhere),
            (3, self.look_up_times),
            (3, self.checkpoint),
            (2, self.roll),
            (2, self.advance_log_start),
            (2, self.retain),
            (2, self.truncate),
            (2, self.restart_cleanly),
            (6, self.crash),
        ]
        weights = [weight for weight, _ in steps]
        for _ in range(STEPS):
            _, step = self.chance.choices(steps, weights)[0]
            step()
            self.check_content()
        self.crash()

    def append(self) -> None:
        chance = self.chance
        kind = chance.random()
        count = chance.randint(1, 4)
        if kind < 0.5:
            item = batch(
                count,
                size=chance.choice((0, 10, 100, 400)),
                fill=chance.getrandbits(20),
                timestamp=NOW_MS + chance.randint(-500, 500),
                codec=chance.choice(list(Codec)),
            )
            self.appended(item)
            return
        producer_id = chance.randint(1, 3)
        producer = self.producers.setdefault(producer_id, Producer())
        if producer.in_transaction and chance.random() < 0.4:
            producer.in_transaction = False
            self.appended(marker(chance.randint(0, 1), producer_id=producer_id), COORDINATOR)
            return
        if chance.random() < 0.3:
            producer.in_transaction = True
        item = batch(
            count,
            fill=chance.getrandbits(20),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=producer.sequence,
            transactional=producer.in_transaction,
        )
        producer.sequence += count
        self.appended(item)

    def appended(self, item: Admitted, origin: Origin = CLIENT) -> None:
        end = self.log.log_end_offset
        result = self.log.append(item, self.epoch, NOW_MS, origin)
        assert result.base_offset == end
        assert not result.duplicate
        data = bytes(item.buffer)
        self.sent.append(Sent(read_header(data), data))

    def flush(self) -> None:
        plan = self.log.flush_plan()
        plan.run()
        self.log.flushed(plan)
        self.flushed = self.log.log_end_offset
        assert self.log.flushed_offset == self.flushed

    def flush_while_appending(self) -> None:
        first = self.log.flush_plan()
        end = self.log.log_end_offset
        for _ in range(self.chance.randint(0, 4)):
            self.append()
        second = self.log.flush_plan() if self.chance.random() < 0.5 else None
        first.run()
        self.append()
        if second is not None:
            second.run()
            end = second.end_offset
            self.log.flushed(second)
        self.log.flushed(first)
        assert self.log.flushed_offset >= end
        self.flushed = self.log.flushed_offset

    def read_somewhere(self) -> None:
        live = self.live()
        if not live:
            return
        place = self.chance.randrange(len(live))
        offset = self.chance.randint(live[place].header.base_offset, live[place].end - 1)
        offset = max(offset, self.log.log_start_offset)
        max_bytes = self.chance.choice((1, 300, 2000, 100_000))
        slices = self.log.read(offset, max_bytes, self.log.end_position)
        data = slices.read_all()
        slices.release()
        wanted = b"".join(sent.data for sent in live[place:])
        assert wanted.startswith(data)
        assert len(data) >= len(live[place].data)
        assert len(data) <= max(max_bytes, len(live[place].data))

    def look_up_times(self) -> None:
        timestamp = NOW_MS + self.chance.randint(-600, 600)
        start = self.log.log_start_offset
        records = [
            record
            for sent in self.live()
            for record in decode_records(sent.data)
            if record.offset >= start
        ]
        found = next((record for record in records if record.timestamp >= timestamp), None)
        answer = offset_for_timestamp(self.log, timestamp)
        if found is None:
            assert answer is None
        else:
            assert answer is not None
            assert answer[:2] == (found.offset, found.timestamp)

    def checkpoint(self) -> None:
        self.data_dir.checkpoint({PARTITION: self.log.flushed_offset}).run()
        self.durable_log_start = self.log.log_start_offset

    def roll(self) -> None:
        self.log.roll_if_due(NOW_MS + 10**12)

    def advance_log_start(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.advance_log_start(self.chance.randint(start, (start + end) // 2))
        self.log_start = self.log.log_start_offset

    def retain(self) -> None:
        self.log.apply_retention(NOW_MS, self.log.log_end_offset)
        assert self.log.log_start_offset == self.log_start
        self.world.run_deferred()

    def truncate(self) -> None:
        end = self.log.log_end_offset
        offset = self.chance.randint(max(self.log.log_start_offset, end - 6), end)
        cut = self.log.cuts.truncation(offset)
        if cut is None:
            assert offset == end
            return
        finish_cut(self.log, cut, self.data_dir)
        kept = [sent for sent in self.sent if sent.end <= self.log.log_end_offset]
        assert self.log.log_end_offset <= offset
        assert all(sent.end > offset for sent in self.sent[len(kept) :])
        self.sent = kept
        self.flushed = self.log.log_end_offset
        self.durable_log_start = self.log.log_start_offset
        self.settle_producers()
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)

    def restart_cleanly(self) -> None:
        assert self.data_dir.close({PARTITION: self.log.log_end_offset})
        assert self.world.disk.open_files == []
        self.flushed = self.log.log_end_offset
        self.damage()
        self.open()
        self.check_recovered(len(self.sent))

    def crash(self) -> None:
        self.crashes += 1
        mode = self.chance.choice(list(CrashMode))
        self.world.disk = self.world.disk.crash(mode)
        self.world.deferred.clear()
        self.damage()
        self.open()
        sure = sum(1 for sent in self.sent if sent.end <= self.flushed)
        if mode is CrashMode.KEEP_ALL:
            sure = len(self.sent)
        self.check_recovered(sure)

    def damage(self) -> None:
        """Harm what is only a cache, or cut a checkpoint: a recovery must get over both."""
        if self.chance.random() < 0.5:
            return
        disk = self.world.disk
        caches = (".index", ".timeindex", ".snapshot", "-checkpoint")
        paths = [
            f"{folder}/{name}"
            for folder in (DATA, f"{DATA}/{PARTITION}")
            if disk.exists(folder)
            for name in disk.list_dir(folder)
            # Without its checkpoint the log's start may fall back, which the walk looks at apart.
            if name.endswith(caches) and not name.startswith("log-start")
        ]
        if not paths:
            return
        path = self.chance.choice(paths)
        content = disk.content(path)
        kind = self.chance.randrange(4)
        if kind == 0 or not content:
            disk.unlink(path)
        elif kind == 1:
            # A time index that ends early at a whole entry cannot be told from a good one.
            size = self.chance.randrange(len(content))
            disk.replace(path, content[: size - (path.endswith("timeindex") and size % 12 == 0)])
        elif kind == 2:
            disk.corrupt(path, self.chance.randrange(len(content)), self.chance.randint(1, 255))
        else:
            disk.replace(path, b"")

    # What must hold

    def live(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.end > self.log.log_start_offset]

    def check_content(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.flushed_offset <= log.log_end_offset or (
            log.flushed_offset <= log.log_start_offset
        )
        live = self.live()
        if live:
            assert log.log_end_offset == live[-1].end
        assert stored_batches(log) == [sent.data for sent in live]

    def check_recovered(self, sure: int) -> None:
        """The log is a prefix of the model that holds the first `sure` batches."""
        log = self.log
        kept = sum(1 for sent in self.sent if sent.end <= log.log_end_offset)
        if self.sent and log.log_end_offset > self.sent[0].header.base_offset:
            assert kept >= sure, f"kept {kept} of {len(self.sent)}, {sure} were flushed"
        assert log.log_start_offset >= self.durable_log_start
        assert log.log_end_offset >= min(self.flushed, self.sent[-1].end if self.sent else 0)
        self.sent = self.sent[:kept]
        self.log_start = log.log_start_offset
        self.flushed = log.flushed_offset
        assert self.flushed == log.log_end_offset
        self.check_content()
        self.check_epochs()
        self.settle_producers()

    def check_epochs(self) -> None:
        for sent in self.live():
            wanted = sent.header
            assert self.log.epochs.epoch_for(max(wanted.base_offset, self.log_start)) == (
                wanted.leader_epoch
            )
        assert self.log.epochs.latest == self.epoch

    def settle_producers(self) -> None:
        """The log knows of each producer what its batches say; the walk goes on from there."""
        for producer_id, producer in list(self.producers.items()):
            own = [sent.header for sent in self.sent if sent.header.producer_id == producer_id]
            if not own:
                del self.producers[producer_id]
                self.log.producers.states.pop(producer_id, None)
                continue
            data = [header for header in own if not header.is_control]
            producer.in_transaction = own[-1].is_transactional and not own[-1].is_control
            if data:
                producer.sequence = data[-1].last_sequence + 1
            state = self.log.producers.states.get(producer_id)
            if state is None:
                # Only what was behind the log's start may be forgotten.
                assert own[-1].last_offset < self.log_start
                del self.producers[producer_id]
                continue
            if data and data[-1].last_offset >= self.log_start:
                assert state.batches[-1].last_offset == data[-1].last_offset
                assert state.last_sequence == data[-1].last_sequence
            if own[-1].last_offset >= self.log_start:
                assert (state.transaction_first_offset >= 0) == producer.in_transaction
        self.check_aborted()

    def check_aborted(self) -> None:
        wanted = []
        first: dict[int, int] = {}
        for sent in self.sent:
            header = sent.header
            if header.is_control:
                start = first.pop(header.producer_id, None)
                (record,) = decode_records(sent.data)
                if start is not None and record.key == b"\0\0\0\0":
                    wanted.append((header.producer_id, start, header.base_offset))
            elif header.is_transactional:
                first.setdefault(header.producer_id, header.base_offset)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        found = self.log.segments.aborted_transactions(start, end)
        for producer_id, first_offset, marker_offset in wanted:
            if first_offset >= start:
                assert (producer_id, first_offset) in found, (marker_offset, found)
        assert len(found) <= len(wanted)


def test_any_life_of_a_log_leaves_a_prefix_with_all_that_was_flushed() -> None:
    crashes = 0
    for seed in range(WALKS):
        walk = Walk(seed)
        try:
            walk.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        crashes += walk.crashes
    assert crashes >= 4 * WALKS
