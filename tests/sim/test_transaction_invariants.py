"""Each invariant of transactions fires on logs that break it, and on none that do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from tests.sim.ghost import Ghost, Violation
from tests.sim.observer import Observer
from tests.sim.transaction_clients import Fate, Written
from tests.sim.transaction_observer import TransactionObserver
from tests.sim.transaction_readers import judge
from tests.sim.transaction_stories import (
    Decided,
    Decisions,
    Entry,
    Story,
    Truth,
    entries,
    learn,
)
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.coordinators.groups import records as group_records
from tidelog.coordinators.transactions.records import (
    TransactionLogValue,
    TransactionRecord,
    encode_record,
)
from tidelog.coordinators.transactions.transaction import State
from tidelog.model import TopicPartition
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    Record,
    encode_batch,
    encode_control_batch,
    read_header,
    write_header,
)

P, V1, V2 = 7, 0, 2
PLACE = TopicPartition("bank", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


class Log:
    """A log that is told batch by batch, and what all logs must agree on."""

    def __init__(self, name: TopicPartition = PLACE, truth: Truth | None = None) -> None:
        self.truth = Truth() if truth is None else truth
        self.story = Story(name, self.truth)
        self.end = 0

    def _take(self, batch: bytearray) -> Log:
        header = read_header(batch)
        header.base_offset = self.end
        write_header(batch, 0, header)
        self.end += header.last_offset_delta + 1
        for entry in entries(batch):
            self.story.take(entry)
        return self

    def data(self, transaction: str, *, epoch: int = 0, sequence: int = 0) -> Log:
        record = Record(key=transaction.encode(), value=b"%d" % (100 + self.end))
        return self._take(
            encode_batch(
                [record], producer_id=P, producer_epoch=epoch, base_sequence=sequence,
                transactional=True,
            )
        )  # fmt: skip

    def offset(self, transaction: str, offset: int) -> Log:
        key = group_records.OffsetCommitKey("g", "bank", 0)
        value = group_records.OffsetCommitValue(offset, metadata=transaction)
        record = group_records.encode_record(group_records.CoordinatorRecord(key, value))
        return self._take(
            encode_batch(
                [Record(0, 0, *record)], producer_id=P, producer_epoch=0, base_sequence=-1,
                transactional=True,
            )
        )  # fmt: skip

    def decide(self, committed: bool, *, epoch: int, version: int = V2) -> Log:
        self.truth.decided.setdefault((P, epoch), set()).add(Decided(committed, version))
        return self

    def end_in(self, epoch: int, *, committed: bool = True, coordinator: int = 1) -> Log:
        kind = CONTROL_COMMIT if committed else CONTROL_ABORT
        batch = encode_control_batch(
            kind, producer_id=P, producer_epoch=epoch, coordinator_epoch=coordinator, timestamp=0
        )
        return self._take(bytearray(batch))


def breaks(name: str, check: Any, *args: Any, **named: Any) -> None:
    with pytest.raises(Violation) as caught:
        check(*args, **named)
    assert caught.value.invariant.split()[0] == name


def test_i14_a_sequence_is_missing_or_there_twice() -> None:
    log = Log().data("a").data("a", sequence=1)
    for wrong in (1, 3):
        breaks("I14", log.data, "a", sequence=wrong)
    breaks("I14", Log().data, "a", sequence=1)
    breaks("I14", judge, [Written("a", [(0, 1)], fate=Fate.COMMITTED)], {0: [1, 1]}, {})


def test_i15_an_epoch_falls() -> None:
    log = Log().decide(True, epoch=2).data("a", epoch=1).end_in(2)
    breaks("I15", log.data, "b", epoch=1)
    log.data("b", epoch=2)


def test_i17_a_transaction_ends_in_two_ways_or_as_nobody_decided() -> None:
    truth = Truth()
    one, other = Log(truth=truth), Log(TopicPartition("bank", 1), truth)
    one.decide(True, epoch=1).decide(False, epoch=1).data("a").end_in(1)
    breaks("I17", other.data("a").end_in, 1, committed=False)
    breaks("I17", Log().data("a").end_in, 1)
    breaks("I17", Log().decide(True, epoch=1).data("a").end_in, 1, committed=False)
    for fate in (Fate.COMMITTED, Fate.UNKNOWN):
        torn = [Written("a", [(0, 1), (1, 2)], fate=fate)]
        breaks("I17", judge, torn, {0: [1], 1: []}, {})
    judge([Written("a", [(0, 1), (1, 2)], fate=Fate.UNKNOWN)], {0: [], 1: []}, {})


def test_i18_something_follows_its_end_or_gets_into_the_next_transaction() -> None:
    late = Log().decide(False, epoch=0, version=V1).data("a").end_in(0, committed=False)
    breaks("I18", late.data, "a", sequence=1)
    mixed = Log().data("a")
    breaks("I18", mixed.data, "b", sequence=1)
    breaks("I18", Log().data("a").data, "a", epoch=1)


def test_i19_an_old_coordinator_writes_or_a_marker_has_the_epoch_of_the_data() -> None:
    log = Log().decide(True, epoch=1).data("a").end_in(1, coordinator=4)
    breaks("I19", log.end_in, 1, coordinator=3)
    log.end_in(1, coordinator=4)
    breaks("I19", Log().decide(True, epoch=0).data("a").end_in, 0)
    Log().decide(True, epoch=0, version=V1).data("a").end_in(0)


def watching(*logs: Log) -> TransactionObserver:
    """An observer for whom all of these is committed."""
    world = SimpleNamespace(on_step=lambda machine: None)
    ghosts = {log.story.name: Ghost("t", (UUID(int=n), 0)) for n, log in enumerate(logs)}
    watched = TransactionObserver(
        cast(Any, world), cast(Observer, SimpleNamespace(find=ghosts.get)), ["bank"]
    )
    for log in logs:
        watched._committed[ghosts[log.story.name].key] = log.story
    return watched


def test_i16_a_block_of_ids_or_an_id_is_given_twice() -> None:
    watched = watching()
    first, second = (SimpleNamespace(broker_id=each, life=1) for each in (0, 1))
    watched.has_ids(cast(Any, first), 1_000)
    watched.has_ids(cast(Any, first), 1_000)
    watched.has_ids(cast(Any, second), 2_000)
    breaks("I16", watched.has_ids, second, 1_000)
    breaks("I16", watched.has_ids, second, 1_500)
    # Nor does it come back with the same block in its next life.
    breaks("I16", watched.has_ids, SimpleNamespace(broker_id=0, life=2), 1_000)
    watched.truth.recorded = {"x": {(7, 0), (7, 1)}, "y": {(7, 0)}}
    watched.given("x", "one", (7, 0))
    breaks("I16", watched.given, "y", "two", (7, 0))


def test_i15_an_epoch_is_given_out_before_its_record_or_to_two() -> None:
    watched = watching()
    watched.truth.recorded = {"x": {(7, 0)}}
    watched.given("x", "one", (7, 0))
    breaks("I15", watched.given, "x", "one", (7, 1))
    breaks("I15", watched.given, "x", "two", (7, 0))


def test_i20_readers_get_what_they_must_not_or_miss_something() -> None:
    log = Log().decide(True, epoch=1).decide(False, epoch=2)
    log.data("a").end_in(1).data("b", epoch=1).end_in(2, committed=False).data("c", epoch=2)
    watched = watching(log)
    watched.read(PLACE, 0, [(0, 100)])
    for wrong in ([(0, 100), (2, 102)], [(2, 102)], [(0, 101)], [(4, 104)]):
        breaks("I20", watched.read, PLACE, 0, wrong)
    aborted = [Written("b", [(0, 1)])]
    breaks("I20", judge, aborted, {0: [1]}, {})
    breaks("I20", judge, [], {0: [1]}, {})


def value(state: State, *, epoch: int = 0, version: int = V2) -> TransactionLogValue:
    return TransactionLogValue(
        P, producer_epoch=epoch, transaction_status=state, transaction_partitions=[],
        client_transaction_version=version,
    )  # fmt: skip


def recorded(said: TransactionLogValue | None) -> Entry:
    record = Record(0, 0, *encode_record(TransactionRecord("x", said)))
    return next(entries(encode_batch([record])))


def test_i21_a_decision_is_taken_back_or_forgotten() -> None:
    opened = (State.EMPTY, State.ONGOING)
    for prepared, ended in (
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
        (State.PREPARE_ABORT, State.COMPLETE_ABORT),
    ):
        for last in State:
            log = Decisions(PLACE)
            for state in (*opened, prepared):
                log.take(recorded(value(state)))
            if last is ended:
                log.take(recorded(value(last)))
                log.take(recorded(None))
            else:
                breaks("I21", log.take, recorded(value(last)))
        log = Decisions(PLACE)
        for state in (*opened, prepared):
            log.take(recorded(value(state)))
        breaks("I21", log.take, recorded(None))
    log = Decisions(PLACE)
    for state in opened:
        log.take(recorded(value(state, epoch=1)))
    for lost in (None, value(State.EMPTY, epoch=1), value(State.COMPLETE_ABORT, epoch=1)):
        breaks("I21", log.take, recorded(lost))
    breaks("I15", log.take, recorded(value(State.PREPARE_COMMIT, epoch=0)))


def test_what_is_committed_of_a_coordinators_log_is_what_markers_rest_on() -> None:
    truth = Truth()
    learn(truth, recorded(value(State.ONGOING)))
    assert not truth.decided
    last = value(State.PREPARE_COMMIT, epoch=1)
    last.next_producer_id = 9
    learn(truth, recorded(last))
    assert truth.decided == {(P, 1): {Decided(True, V2)}}
    assert truth.recorded == {"x": {(P, 0), (P, 1), (9, 0)}}


def test_i22_an_offset_shows_that_is_not_committed_or_does_not_show() -> None:
    log = Log(OFFSETS).decide(True, epoch=1)
    log.offset("a", 41)
    watched = watching(log)
    watched.fetched("g", -1)
    breaks("I22", watched.fetched, "g", 41)
    log.end_in(1)
    watched.fetched("g", 41)
    breaks("I22", watched.fetched, "other", 41)
    written = Written("a", [(0, 1)], offset=41, group="g", fate=Fate.UNKNOWN)
    judge([written], {0: [1]}, {"g": 41})
    breaks("I22", judge, [written], {0: [1]}, {"g": 40})
    breaks("I22", judge, [written], {0: []}, {"g": 41})


def test_l4_a_transaction_stays_open() -> None:
    log = Log().decide(True, epoch=1).data("a")
    assert watching(log).open()
    log.end_in(1)
    assert not watching(log).open()
    for state in State:
        decisions = Decisions(PLACE)
        decisions.states["x"] = value(state)
        is_open = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
        assert bool(decisions.open) == is_open
