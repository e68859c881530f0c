"""Which transactions hang, who holds the last stable offset, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.helpers import drive, known_cluster, metadata_response
from tidelog.cli.why import entry, explained
from tidelog.client.connection import Call
from tidelog.client.transaction_admin import (
    StableOffset,
    abort_hanging,
    coordinated,
    describe_producers,
    stable_offset,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Isolation, TopicPartition
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tidelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.list_transactions import ListTransactionsResponse
from tidelog.protocol.messages.list_transactions import TransactionState as Listed
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

PLACE = TopicPartition("orders", 0)
NOW_MS = 100_000


class Brokers:
    """Three brokers; producer 7 of the id `x` writes to the partition, and its start is known."""

    def __init__(self, state: str = "Ongoing", timeout_ms: int = 60_000) -> None:
        self.state = state
        self.timeout_ms = timeout_ms
        self.partitions = [0]
        self.knows = True
        self.stable = 5
        self.starts = [5]
        self.markers: list[Any] = []
        self.marker_code = ErrorCode.NONE
        self.cluster, self.clock = known_cluster()

    def run(self, operation: Any) -> Any:
        return drive(operation, self, self.clock)

    def __call__(self, call: Call) -> Any:
        return getattr(self, f"_{call.api}")(call)

    def _Metadata(self, _: Call) -> Any:
        return metadata_response()

    def _ListOffsets(self, call: Call) -> Any:
        committed = call.message.isolation_level == Isolation.READ_COMMITTED  # type: ignore[attr-defined]
        part = ListOffsetsPartitionResponse(0, offset=self.stable if committed else 9)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [part])])

    def _DescribeProducers(self, _: Call) -> Any:
        states = [
            ProducerState(7 + index, 2, last_timestamp=40_000, coordinator_epoch=-1,
                          current_txn_start_offset=start)
            for index, start in enumerate(self.starts)
        ]  # fmt: skip
        part = PartitionResponse(0, active_producers=states)
        return DescribeProducersResponse(topics=[TopicResponse("orders", [part])])

    def _ListTransactions(self, call: Call) -> Any:
        mine = call.node == 2 and self.knows
        return ListTransactionsResponse(transaction_states=[Listed("x", 7, "?")] if mine else [])

    def _FindCoordinator(self, call: Call) -> Any:
        keys = call.message.coordinator_keys  # type: ignore[attr-defined]
        return FindCoordinatorResponse(coordinators=[Coordinator(key, 2, "b", 1) for key in keys])

    def _DescribeTransactions(self, call: Call) -> Any:
        assert call.node == 2
        topics = [TopicData("orders", self.partitions)]
        state = TransactionState(0, "x", self.state, self.timeout_ms, 60_000, 7, 2, topics)
        return DescribeTransactionsResponse(transaction_states=[state])

    def _WriteTxnMarkers(self, call: Call) -> Any:
        self.markers += call.message.markers  # type: ignore[attr-defined]
        part = WritableTxnMarkerPartitionResult(0, self.marker_code)
        topic = WritableTxnMarkerTopicResult("orders", [part])
        return WriteTxnMarkersResponse([WritableTxnMarkerResult(7, [topic])])


def held(brokers: Brokers) -> StableOffset:
    found: StableOffset = brokers.run(stable_offset(brokers.cluster, PLACE))
    return found


@pytest.mark.parametrize(
    ("state", "partitions", "knows", "hangs"),
    [
        ("Ongoing", [0, 1], True, False),
        ("PrepareCommit", [0], True, False),
        ("PrepareAbort", [0], True, False),
        ("Ongoing", [1], True, True),
        ("CompleteCommit", [0], True, True),
        ("Empty", [], True, True),
        ("Ongoing", [0], False, True),
    ],
)
def test_a_transaction_hangs_where_no_coordinator_is_going_to_end_it_here(
    state: str, partitions: list[int], knows: bool, hangs: bool
) -> None:
    brokers = Brokers(state)
    brokers.partitions, brokers.knows = partitions, knows
    [producer] = brokers.run(describe_producers(brokers.cluster, [PLACE]))
    found = brokers.run(coordinated(brokers.cluster, [producer]))
    assert (producer not in found) is hangs
    assert ("it hangs" in explained(held(brokers), NOW_MS)[-1]) is hangs


@pytest.mark.parametrize(
    ("state", "timeout_ms", "ends"),
    [
        ("Ongoing", 60_000, "its time-out does in 20.0 s"),
        ("Ongoing", 1_000, "its time-out does in 0.0 s"),
        ("Ongoing", (1 << 31) - 1, "no time-out does"),
        ("PrepareCommit", 60_000, "it is committed already"),
        ("PrepareAbort", 60_000, "it is aborted already"),
    ],
)
def test_what_ends_it_is_said(state: str, timeout_ms: int, ends: str) -> None:
    brokers = Brokers(state, timeout_ms)
    brokers.starts = [5, 7, -1]
    found = held(brokers)
    lines = explained(found, NOW_MS)
    assert lines[0] == "orders-0: readers of committed records wait at offset 5, 4 before the end"
    assert lines[1].startswith("held by: 'x' (producer 7, epoch 2)")
    assert lines[2] == "open since: 1970-01-01T00:01:00.000Z, 40.0 s ago"
    assert lines[3].startswith("ends: ") and ends in lines[3]
    assert lines[4] == "behind it: 1 more open in this partition"
    told = entry(found, NOW_MS)
    assert (told["last_stable_offset"], told["high_watermark"]) == (5, 9)
    assert (told["held_by"]["seconds"], told["others_open"]) == (40.0, 1)


def test_where_nothing_holds_it_nothing_is_asked_of_coordinators() -> None:
    brokers = Brokers()
    brokers.stable = 9
    assert explained(held(brokers), NOW_MS) == [
        "orders-0: nothing holds it; all records up to offset 9 are readable"
    ]
    assert entry(held(brokers), NOW_MS)["ends"] is None


def test_an_end_that_is_written_and_not_yet_committed_has_no_holder() -> None:
    brokers = Brokers()
    brokers.starts = [-1]
    lines = explained(held(brokers), NOW_MS)
    assert "its end is written already" in lines[1]


def test_a_hanging_one_is_ended_with_its_own_epoch_and_a_refusal_is_raised() -> None:
    brokers = Brokers()
    [producer] = brokers.run(describe_producers(brokers.cluster, [PLACE]))
    brokers.run(abort_hanging(brokers.cluster, producer))
    [marker] = brokers.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 2, False)
    # Nobody has coordinated it, as far as the partition knows.
    assert (marker.coordinator_epoch, marker.transaction_version) == (0, 0)
    brokers.marker_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        brokers.run(abort_hanging(brokers.cluster, producer))
