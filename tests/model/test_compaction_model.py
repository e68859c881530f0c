"""Compaction against a list of records: seeded random lives of a compacted log, with crashes.

The model knows every record that was appended, whether its transaction was aborted, and when a
tombstone was first met by a clean. After each clean a consumer of committed data must see of what
was cleaned exactly the newest record of each key, tombstones for as long as they are due, and of
the rest everything; all at the offsets that they were given. The machine may go down at any call
to the disk of a clean: then something between the log before and the log after is found, and the
next clean brings it to the same end.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.unit.storage.compaction_helpers import (
    COMPACT,
    clean,
    headers,
    keyed,
    stored,
    visible,
)
from tests.unit.storage.helpers import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    World,
    create_log,
    marker,
    offset_for_timestamp,
)
from tidelog.model import Codec
from tidelog.protocol.batches import Record
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.verification import COORDINATOR
from tidelog.testing.disk import CrashMode, PowerCut, SimulatedDisk

WALKS = 2000 if os.environ.get("TIDELOG_LONG") else 100
STEPS = 50
RETENTION_MS = COMPACT.delete_retention_ms
Fact = tuple[int, str, str | None]


@dataclass
class Written:
    """One record of the model."""

    offset: int
    key: str
    value: str | None
    timestamp: int
    batch: int
    producer_id: int
    aborted: bool = False

    @property
    def fact(self) -> Fact:
        return self.offset, self.key, self.value


@dataclass
class Producer:
    sequence: int = 0
    in_transaction: bool = False


class Walk:
    """One random life of a compacted log."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.world = World(SimulatedDisk(seed))
        self.world.config = replace(
            COMPACT,
            segment_bytes=chance.choice((500, 900, 3000)),
            index_interval_bytes=chance.choice((1, 200)),
        )
        self.buffer_bytes = chance.choice((192 * 3, 192 * 10, 1 << 20))
        self.records: list[Written] = []
        self.producers = {producer_id: Producer() for producer_id in (1, 2, 3)}
        # The earliest time at which a clean may have given a batch its horizon.
        self.met_ms: dict[int, int] = {}
        self.cleans = self.crashes = self.finished_after_crash = self.replays = 0
        self.epoch = 0
        self.open()

    @property
    def log(self) -> Log:
        return self.data_dir.logs[PARTITION]

    def open(self) -> None:
        self.world.restart()
        self.data_dir = DataDir.open("/data", self.world.context)
        self.data_dir.identify("cluster", 1)
        new = NewLog(TOPIC_ID, self.world.config)
        assert not self.data_dir.load_logs({PARTITION: new}).offline
        if PARTITION not in self.data_dir.logs:
            create_log(self.data_dir, PARTITION, new)
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)
        self.log.producers.high_watermark_moved(self.log.log_end_offset)

    def run(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (30, self.append),
            (8, self.end_transaction),
            (6, self.clean),
            (4, self.clean_and_crash),
            (6, self.wait),
            (2, self.restart_cleanly),
            (2, self.look_up_times),
            (1, self.advance_log_start),
        ]
        weights = [weight for weight, _ in steps]
        for _ in range(STEPS):
            self.chance.choices(steps, weights)[0][1]()
        self.clean()

    # Steps

    def append(self) -> None:
        chance = self.chance
        pairs = [
            (
                f"k{chance.randrange(8)}" * chance.choice((1, 1, 12)),
                None if chance.random() < 0.2 else f"v{chance.getrandbits(30)}" + "x" * 40,
            )
            for _ in range(chance.randint(1, 4))
        ]
        fields: dict[str, int] = {}
        producer_id = chance.choice((-1, -1, 1, 2, 3))
        if producer_id > 0:
            producer = self.producers[producer_id]
            state = self.log.producers.states.get(producer_id)
            if state is not None and state.last_sequence < 0:
                # Its data lay before the log's start, and only a marker is left.
                producer.sequence = 0
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": producer.sequence,
            }
            producer.sequence += len(pairs)
            producer.in_transaction = producer.in_transaction or chance.random() < 0.5
            fields["transactional"] = producer.in_transaction
        timestamp = self.world.clock.now_ms + chance.randint(-300, 300)
        item = keyed(pairs, timestamp=timestamp, codec=chance.choice(list(Codec)), **fields)
        base = self.log.append(item, self.epoch, self.world.clock.now_ms).base_offset
        for number, (key, value) in enumerate(pairs):
            self.records.append(
                Written(base + number, key, value, timestamp + number, base, producer_id)
            )
        if chance.random() < 0.15:
            self.log.roll_if_due(NOW_MS + 10**15)

    def end_transaction(self) -> None:
        open_ones = [each for each, producer in self.producers.items() if producer.in_transaction]
        if not open_ones:
            return
        producer_id = self.chance.choice(open_ones)
        state = self.log.producers.states.get(producer_id)
        if state is None:
            # All that it wrote lies before the log's start and was forgotten with it.
            self.producers[producer_id].in_transaction = False
            return
        control_type = self.chance.randint(0, 1)
        if control_type == 0:
            for record in self.records:
                in_it = record.offset >= state.transaction_first_offset
                record.aborted = record.aborted or (in_it and record.producer_id == producer_id)
        item = marker(control_type, producer_id=producer_id)
        self.log.append(item, self.epoch, NOW_MS, COORDINATOR)
        self.producers[producer_id].in_transaction = False

    def wait(self) -> None:
        self.world.clock.advance(self.chance.choice((10, 400, 1100)))
        self.world.run_deferred()

    def restart_cleanly(self) -> None:
        assert self.data_dir.close({PARTITION: self.log.log_end_offset})
        assert self.world.disk.open_files == []
        self.open()
        self.check_between()

    def advance_log_start(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.advance_log_start(self.chance.randint(start, start + (end - start) // 4))
        self.log.apply_retention(NOW_MS, self.log.log_end_offset)
        self.data_dir.checkpoint(None).run()

    def flush(self) -> None:
        self.log.roll_if_due(NOW_MS + 10**15)
        plan = self.log.flush_plan()
        plan.run()
        self.log.flushed(plan)
        self.log.producers.high_watermark_moved(self.log.log_end_offset)
        if self.chance.random() < 0.7:
            self.data_dir.checkpoint({PARTITION: self.log.log_end_offset}).run()

    def clean(self) -> None:
        self.flush()
        before = self.horizons()
        now_ms = self.world.clock.now_ms
        self.meet(now_ms)
        self.clean_durably()
        self.cleans += 1
        self.check_cleaned(before, now_ms)
        self.check_producers_replayed()

    def clean_durably(self) -> None:
        """As the broker does it: how far a log is clean is written down once that is durable."""
        clean(self.log, buffer_bytes=self.buffer_bytes)
        plan = self.log.flush_plan()
        plan.run()
        self.log.flushed(plan)
        self.data_dir.cleaner_checkpoint().run()

    def clean_and_crash(self) -> None:
        """The machine goes down at some call of a clean, or when it is done."""
        self.flush()
        self.meet(self.world.clock.now_ms)
        disk = self.world.disk
        disk.fail_at(disk.calls + self.chance.randint(1, 120), "crash")
        try:
            self.clean_durably()
            self.world.run_deferred()
            self.finished_after_crash += 1
        except PowerCut:
            pass
        self.crashes += 1
        self.world.disk = disk.crash(self.chance.choice(list(CrashMode)))
        self.world.deferred.clear()
        self.open()
        assert self.log.log_end_offset >= max([r.offset + 1 for r in self.records], default=0)
        self.check_between()

    # What must hold

    def committed(self) -> list[Written]:
        unstable = self.log.producers.first_unstable_offset
        end = self.log.log_end_offset if unstable < 0 else unstable
        start = self.log.log_start_offset
        return [r for r in self.records if not r.aborted and start <= r.offset < end]

    def seen(self) -> list[Record]:
        unstable = self.log.producers.first_unstable_offset
        return [r for r in visible(self.log) if unstable < 0 or r.offset < unstable]

    def meet(self, now_ms: int) -> None:
        for record in self.records:
            if record.value is None:
                self.met_ms.setdefault(record.batch, now_ms)

    def horizons(self) -> dict[int, int]:
        return {
            header.base_offset: header.first_timestamp
            for header in headers(self.log)
            if header.has_delete_horizon
        }

    def newest(self, below: int) -> dict[str, Written]:
        """By key the newest record, as every clean up to `below` must leave it.

        What lies below the log's start counts too: it may still be in the first segment.
        """
        return {r.key: r for r in self.records if not r.aborted and r.offset < below}

    def check_cleaned(self, horizons: dict[int, int], now_ms: int) -> None:
        cleaned_to = self.log.first_dirty_offset
        newest = self.newest(cleaned_to)
        expected = [
            record.fact
            for record in self.committed()
            if record.offset >= cleaned_to
            or (
                newest[record.key] is record
                and (record.value is not None or horizons.get(record.batch, now_ms + 1) > now_ms)
            )
        ]
        found = [_fact(record) for record in self.seen()]
        # A tombstone that is gone already does not come back.
        gone = {fact for fact in expected if fact[2] is None and fact[0] < cleaned_to} - set(found)
        for offset, _, _ in gone:
            record = next(each for each in self.records if each.offset == offset)
            assert self.met_ms[record.batch] + RETENTION_MS <= now_ms, "a tombstone went too early"
        assert [fact for fact in expected if fact not in gone] == found
        for header in headers(self.log):
            if header.has_delete_horizon and not header.is_control:
                assert header.first_timestamp >= self.met_ms[header.base_offset] + RETENTION_MS
        assert not {r.offset for r in stored(self.log) if r.offset < cleaned_to} & {
            r.offset for r in self.records if r.aborted
        }

    def check_between(self) -> None:
        """Nothing is lost and nothing is invented, however far a clean came."""
        found = {_fact(record) for record in self.seen()}
        assert found <= {record.fact for record in self.committed()}
        now_ms = self.world.clock.now_ms
        newest = self.newest(self.log.log_end_offset)
        for record in self.committed():
            met = self.met_ms.get(record.batch)
            if record.value is None and met is not None and met + RETENTION_MS <= now_ms:
                continue
            assert newest[record.key] is not record or record.fact in found, record

    def check_producers_replayed(self) -> None:
        """Without any snapshot the batches that are left tell the same of every producer."""
        disk = self.world.disk
        log = self.log
        states = {
            each.producer_id: (each.epoch, each.last_sequence, each.transaction_first_offset)
            for each in log.producers.states.values()
        }
        unstable = log.producers.first_unstable_offset
        copy = disk.crash(CrashMode.KEEP_ALL)
        self.world.disk = copy
        for name in copy.list_dir("/data/orders-0"):
            if name.endswith(".snapshot"):
                copy.unlink(f"/data/orders-0/{name}")
        self.world.deferred.clear()
        self.open()
        assert self.log.repairs.truncated_bytes == 0
        replayed = {
            each.producer_id: (each.epoch, each.last_sequence, each.transaction_first_offset)
            for each in self.log.producers.states.values()
        }
        if not self.log.log_start_offset:
            # What told of them may lie before the log's start, and be gone.
            assert {key: replayed.get(key) for key in states} == states
            assert self.log.producers.first_unstable_offset == unstable
            self.replays += 1

    def look_up_times(self) -> None:
        timestamp = self.world.clock.now_ms + self.chance.randint(-600, 600)
        found = offset_for_timestamp(self.log, timestamp)
        fitting = [
            (record.offset, record.timestamp)
            for record in stored(self.log)
            if record.timestamp >= timestamp and record.offset >= self.log.log_start_offset
        ]
        if found is None:
            assert not fitting
        else:
            # The marker of a transaction is found by its time too.
            assert fitting[:1] == [found[:2]] or found[:2] not in fitting


def _fact(record: Record) -> Fact:
    value = None if record.value is None else record.value.decode()
    return record.offset, (record.key or b"").decode(), value


def test_any_life_of_a_compacted_log_shows_the_newest_of_each_key() -> None:
    cleans = crashes = midway = replays = emptied = horizons = aborted = 0
    for seed in range(WALKS):
        walk = Walk(seed)
        try:
            walk.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        cleans += walk.cleans
        crashes += walk.crashes
        replays += walk.replays
        midway += walk.crashes - walk.finished_after_crash
        emptied += sum(not header.record_count for header in headers(walk.log))
        horizons += len(walk.horizons())
        aborted += sum(record.aborted for record in walk.records)
    assert cleans >= 4 * WALKS
    assert crashes >= 2 * WALKS
    assert midway >= WALKS
    assert replays >= WALKS
    # A life is worth little without tombstones, aborted data and batches left empty.
    assert min(emptied, horizons) >= WALKS // 2
    assert aborted >= 4 * WALKS
