"""The rules of transactions without which something is torn: each mutant patches the product."""

from __future__ import annotations

from typing import Any, Final

from tests.sim.mutant import Mutant, Patch
from tidelog.cluster import planner
from tidelog.cluster.commands import AllocateProducerIds, ProducerIdBlock
from tidelog.cluster.failover import Plan
from tidelog.cluster.image import ImageView
from tidelog.coordinators.gathering import Answer
from tidelog.coordinators.groups.records import CoordinatorRecord
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.slot import Slot
from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
from tidelog.coordinators.transactions.records import TransactionRecord
from tidelog.coordinators.transactions.shard import TransactionShard
from tidelog.coordinators.transactions.transaction import State
from tidelog.server.handlers import produce_admission
from tidelog.storage.compaction_filter import CleanedTransactions
from tidelog.storage.producers import EndMarker, ProducerStates


def nothing_is_verified() -> list[Patch]:
    """T10: in version 1 a leader takes what a producer says; in version 2 it must ask anyway."""
    begin = produce_admission._begin

    def only_adds(judged: Any, adds: bool) -> bool:
        return adds and begin(judged, adds)

    def take(self: ProducerStates, header: Any, verification: Any) -> None:
        """Whatever it is."""

    return [(produce_admission, "_begin", only_adds), (ProducerStates, "check_verified", take)]


def tokens_outlive_markers() -> list[Patch]:
    def keep(self: ProducerStates, producer_id: int, epoch: int, version: int) -> None:
        """What was verified stays so."""

    return [(ProducerStates, "void", keep)]


def markers_of_the_same_epoch() -> list[Patch]:
    """T13, KIP-1228."""
    check = ProducerStates.check_marker

    def as_in_version_1(self: ProducerStates, marker: EndMarker, version: int) -> None:
        check(self, marker, 1)

    return [(ProducerStates, "check_marker", as_in_version_1)]


def epochs_before_their_records() -> list[Patch]:
    """T16: an answer leaves as soon as its record is appended."""

    def leave(self: TransactionCoordinator, slot: Slot[Any], answer: Answer) -> None:
        answer.leave()

    return [(TransactionCoordinator, "_leave_when_committed", leave)]


def decisions_are_not_loaded() -> list[Patch]:
    """T14."""
    replay = TransactionShard.replay

    def forget(self: TransactionShard, record: TransactionRecord) -> None:
        value = record.value
        is_decision = value is not None and State(value.transaction_status).is_decided
        if self._is_loaded or not is_decision:
            replay(self, record)

    return [(TransactionShard, "replay", forget)]


def pending_offsets_show() -> list[Patch]:
    """T19."""
    pend = GroupShard.replay_pending

    def show(self: GroupShard, record: CoordinatorRecord, producer_id: int) -> None:
        self.replay(record)
        pend(self, record, producer_id)

    return [(GroupShard, "replay_pending", show)]


def blocks_of_ids_are_given_again() -> list[Patch]:
    """T6."""

    def again(image: ImageView, command: AllocateProducerIds) -> Plan:
        first = image.next_producer_id
        return Plan((), ProducerIdBlock(first, planner.PRODUCER_IDS_PER_BLOCK))

    return [(planner, "_allocate_producer_ids", again)]


def markers_are_cleaned_at_once() -> list[Patch]:
    """S17."""

    def unneeded(self: CleanedTransactions, batch: Any, header: Any) -> tuple[bool, None]:
        return True, None

    return [(CleanedTransactions, "end", unneeded)]


TRANSACTION_MUTANTS: Final = (
    Mutant(
        "nothing is verified", "handlers/produce_admission", nothing_is_verified,
        script="late produce, version 1",
    ),
    Mutant(
        "tokens outlive markers", "storage/producers: void", tokens_outlive_markers,
        script="late verification, version 1",
    ),
    Mutant(
        "markers of the same epoch", "storage/producers: check_marker", markers_of_the_same_epoch,
        script="late marker, version 2",
    ),
    Mutant(
        "epochs before their records", "coordinators/runtime", epochs_before_their_records,
        script="late record, version 2",
    ),
    Mutant(
        "decisions are not loaded", "transactions/shard: replay", decisions_are_not_loaded,
        script="late marker, version 2, coordinator changes",
    ),
    Mutant(
        "pending offsets show", "groups/pending_offsets", pending_offsets_show,
        script="whole transaction, version 2, commit",
    ),
    Mutant(
        "blocks of ids are given again", "cluster/planner", blocks_of_ids_are_given_again,
        script="late produce, version 2, coordinator changes",
    ),
    Mutant(
        "markers are cleaned at once", "storage/compaction_filter", markers_are_cleaned_at_once,
        test="tests/unit/storage/test_compaction.py::test_s17_a_marker_goes_only_after_its_data_and_its_horizon",
    ),
)  # fmt: skip
