"""A coordinator and its partitions in a few lines, behind a network that loses and delays."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.client.helpers import ManualClock, metadata_response
from tests.unit.client.producing import response
from tidelog.client.connection import Call
from tidelog.client.faults import ConnectError, NetworkError
from tidelog.errors import ErrorCode
from tidelog.protocol.batches import decode_records, read_header
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidelog.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.protocol.messages.end_txn import EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdResponse
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
OFFSETS = -1


@dataclass
class ModelCoordinator:
    """One transactional id and the partitions that its producers write to; OFFSETS is a group's.

    A decision is carried out at some later call; until then all is CONCURRENT_TRANSACTIONS.
    """

    level: int
    clock: ManualClock
    producer_id: int = 0
    epoch: int = -1
    last_epoch: int = -1
    timeout_ms: int = 60_000
    state: str = "Empty"
    started: float = 0.0
    members: set[int] = field(default_factory=set)
    # By partition: values whose transaction is open, and those that are committed, in order.
    open: dict[int, list[bytes]] = field(default_factory=dict)
    stored: dict[int, list[bytes]] = field(default_factory=dict)
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    ended: list[bool] = field(default_factory=list)

    def init(self, timeout_ms: int, producer_id: int, epoch: int) -> tuple[ErrorCode, int, int]:
        if self.state.startswith("Prepare"):
            return CONCURRENT, -1, -1
        if epoch >= 0 and (producer_id, epoch) not in (
            (self.producer_id, self.epoch),
            (self.producer_id, self.last_epoch),
        ):
            return FENCED, -1, -1
        if self.state == "Ongoing":
            self.fence()
            return CONCURRENT, -1, -1
        if epoch < 0 or epoch == self.epoch:
            self.last_epoch = -1 if epoch < 0 else epoch
            self.epoch += 1
        self.state, self.timeout_ms = "Empty", timeout_ms
        return NONE, self.producer_id, self.epoch

    def fence(self) -> None:
        self.epoch += 1
        self.last_epoch = -1
        self.decide(False)

    def decide(self, commit: bool) -> None:
        self.state = "PrepareCommit" if commit else "PrepareAbort"
        self.ended.append(commit)

    def settle(self) -> None:
        """Carry out what is decided."""
        if not self.state.startswith("Prepare"):
            return
        commit = self.state == "PrepareCommit"
        for partition, values in self.open.items():
            if commit:
                self.stored.setdefault(partition, []).extend(values)
        self.open.clear()
        self.members.clear()
        self.state = "CompleteCommit" if commit else "CompleteAbort"

    def tick(self) -> None:
        late = (self.clock.now - self.started) * 1000 > self.timeout_ms
        if self.state == "Ongoing" and late:
            self.fence()

    def standing(self, producer_id: int, epoch: int) -> ErrorCode:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            return FENCED
        return CONCURRENT if self.state.startswith("Prepare") else NONE

    def add(self, producer_id: int, epoch: int, members: set[int]) -> ErrorCode:
        code = self.standing(producer_id, epoch)
        if code is NONE:
            if self.state != "Ongoing":
                self.state, self.started = "Ongoing", self.clock.now
            self.members |= members
        return code

    def append(self, partition: int, batch: Any, adds: bool) -> ErrorCode:
        header = read_header(batch)
        assert header.is_transactional
        who = header.producer_id, header.producer_epoch
        code = self.add(*who, {partition}) if adds else self.standing(*who)
        if code is FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is NONE and (self.state != "Ongoing" or partition not in self.members):
            return ErrorCode.INVALID_TXN_STATE
        if code is not NONE:
            return code if adds else ErrorCode.NOT_ENOUGH_REPLICAS
        key = (partition, *who)
        if header.last_sequence < self.sequences.get(key, 0):
            return NONE
        if header.base_sequence != self.sequences.get(key, 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.sequences[key] = header.last_sequence + 1
        self.write(partition, [record.value or b"" for record in decode_records(batch)])
        return NONE

    def write(self, partition: int, values: list[bytes]) -> None:
        self.open.setdefault(partition, []).extend(values)

    def end(
        self, producer_id: int, epoch: int, commit: bool, level: int
    ) -> tuple[ErrorCode, int, int]:
        if self.state.startswith("Prepare"):
            return CONCURRENT, -1, -1
        is_current = (producer_id, epoch) == (self.producer_id, self.epoch)
        is_again = level >= 2 and (producer_id, epoch + 1) == (self.producer_id, self.epoch)
        if self.state == "Ongoing" and is_current:
            self.decide(commit)
        elif (is_again if level >= 2 else is_current) and self.state.startswith("Complete"):
            same = (self.state == "CompleteCommit") == commit
            return (NONE if same else ErrorCode.INVALID_TXN_STATE), self.producer_id, self.epoch
        elif not is_current:
            return FENCED, -1, -1
        elif level >= 2 and not commit:
            self.decide(False)
        else:
            return ErrorCode.INVALID_TXN_STATE, -1, -1
        self.epoch += level >= 2
        return NONE, self.producer_id, self.epoch


class Network:
    """Brings calls to the coordinator, or not, or late, or without the answer.

    `faults` is how many calls of a hundred meet one. The coordinator is broker 1, 2 or 3.
    """

    def __init__(self, seed: int, coordinator: ModelCoordinator, faults: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = coordinator
        self.faults = faults
        self.node = 1
        self.late: list[Callable[[], Any]] = []
        self.counts = {"lost": 0, "unanswered": 0, "late": 0, "moved": 0, "overtaken": 0}
        self.asked: list[str] = []
        # What to answer next, whoever asks for that API.
        self.scripted: dict[str, list[object]] = {}

    def __call__(self, call: Call) -> Any:
        self.asked.append(call.api)
        if self.scripted.get(call.api):
            return self.scripted[call.api].pop(0)
        self.deliver_late()
        chance = self.random.random() * 400
        if chance < self.faults:
            self.counts["lost"] += 1
            return ConnectError("b", "refused")
        if chance < 2 * self.faults:
            self.counts["unanswered"] += 1
            self.serve(call)
            return NetworkError("b", "reset")
        if chance < 3 * self.faults:
            self.counts["late"] += 1
            self.late.append(lambda: self.serve(call))
            return NetworkError("b", "reset")
        if chance < 3.5 * self.faults:
            self.counts["moved"] += 1
            self.node = self.random.choice([1, 2, 3])
        return self.serve(call)

    def deliver_late(self) -> None:
        while self.late and self.random.random() < 0.3:
            self.counts["overtaken"] += 1
            self.late.pop(self.random.randrange(len(self.late)))()

    def serve(self, call: Call) -> Any:
        self.coordinator.tick()
        if self.random.random() < 0.5:
            self.coordinator.settle()
        answer = getattr(self, f"_{call.api}")(call)
        self.coordinator.settle() if not self.faults else None
        return answer

    def _moved(self, call: Call, code: ErrorCode) -> ErrorCode:
        return code if call.node == self.node else ErrorCode.NOT_COORDINATOR

    def _Metadata(self, call: Call) -> Any:
        return metadata_response(leaders={0: 1, 1: 2})

    def _FindCoordinator(self, call: Call) -> Any:
        return FindCoordinatorResponse(node_id=self.node, host="b", port=9092)

    def _ApiVersions(self, call: Call) -> Any:
        level = self.coordinator.level
        return ApiVersionsResponse(
            finalized_features=[FinalizedFeatureKey("transaction.version", level, level)]
        )

    def _InitProducerId(self, call: Call) -> Any:
        message: Any = call.message
        if call.node != self.node:
            return InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
        code, producer_id, epoch = self.coordinator.init(
            message.transaction_timeout_ms, message.producer_id, message.producer_epoch
        )
        return InitProducerIdResponse(0, code, producer_id, epoch)

    def _AddPartitionsToTxn(self, call: Call) -> Any:
        assert call.max_version == 3
        message: Any = call.message
        [topic] = message.v3_and_below_topics
        code = ErrorCode.NOT_COORDINATOR
        if call.node == self.node:
            code = self.coordinator.add(
                message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch,
                set(topic.partitions),
            )
        results = [AddPartitionsToTxnPartitionResult(each, code) for each in topic.partitions]
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(topic.name, results)]
        )

    def _AddOffsetsToTxn(self, call: Call) -> Any:
        message: Any = call.message
        code = ErrorCode.NOT_COORDINATOR
        if call.node == self.node:
            code = self.coordinator.add(message.producer_id, message.producer_epoch, {OFFSETS})
        return AddOffsetsToTxnResponse(error_code=code)

    def _TxnOffsetCommit(self, call: Call) -> Any:
        message: Any = call.message
        who = message.producer_id, message.producer_epoch
        code = ErrorCode.NOT_COORDINATOR
        if call.node == self.node:
            adds = call.min_version >= 5
            code = (self.coordinator.add(*who, {OFFSETS})) if adds else NONE
            code = code or self.coordinator.standing(*who)
            if code is NONE and OFFSETS not in self.coordinator.members:
                code = ErrorCode.INVALID_TXN_STATE
        [topic] = message.topics
        [part] = topic.partitions
        if code is NONE and self.coordinator.open.get(OFFSETS) != [b"%d" % part.committed_offset]:
            self.coordinator.write(OFFSETS, [b"%d" % part.committed_offset])
        result = TxnOffsetCommitResponsePartition(part.partition_index, code)
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(topic.name, [result])])

    def _EndTxn(self, call: Call) -> Any:
        message: Any = call.message
        if call.node != self.node:
            return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
        level = 2 if call.min_version >= 5 else 1
        assert level == 2 or call.max_version == 4
        code, producer_id, epoch = self.coordinator.end(
            message.producer_id, message.producer_epoch, message.committed, level
        )
        return EndTxnResponse(0, code, *((producer_id, epoch) if level == 2 else (-1, -1)))

    def _DescribeTransactions(self, call: Call) -> Any:
        model = self.coordinator
        code = self._moved(call, NONE)
        found = TransactionState(
            code, "x", model.state, model.timeout_ms, 0, model.producer_id, model.epoch, []
        )
        return DescribeTransactionsResponse(transaction_states=[found])

    def _Produce(self, call: Call) -> Any:
        message: Any = call.message
        assert message.transactional_id == "x"
        adds = call.min_version >= 12
        assert adds or call.max_version == 11
        return response(
            {
                part.index: (int(self.coordinator.append(part.index, part.records, adds)), 0)
                for part in message.topic_data[0].partition_data
            }
        )
