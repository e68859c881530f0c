"""Transactions asked for step by step on a raw connection; what a broker said is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.e2e.produce_requests import batch, create_topic
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

Producer = tuple[int, int]
PARTITIONS = 4
LATEST = -1
READ_COMMITTED = 1
# Which of them comes, and how often, depends on how fast the markers are.
PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


class TransactionScript:
    """One broker, asked step by step; `answers` is what it said."""

    def __init__(self, client: RawClient, topic: str = "t") -> None:
        self.client = client
        self.topic = topic
        self.answers: list[object] = []
        self._producers: dict[int, str] = {}
        create_topic(client, topic, PARTITIONS)
        for key_type, key in ((1, "one"), (0, "g")):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            eventually(lambda find=find: not self._find(find), seconds=60)  # type: ignore[misc]

    def _find(self, request: FindCoordinatorRequest) -> int:
        answer = self.client.call("FindCoordinator", 4, request)
        code: int = answer.coordinators[0].error_code
        return code

    def find_coordinator(self) -> None:
        for key_type in (1, 3):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["one"])
            self._say(f"find coordinator {key_type}", ErrorCode(self._find(find)).name)

    def _say(self, what: str, *answer: object) -> None:
        self.answers.append((what, *answer))

    def _name(self, producer: Producer) -> tuple[str, int]:
        """Ids differ from broker to broker: they are told apart by when they first came."""
        known = self._producers.setdefault(producer[0], f"producer {len(self._producers)}")
        return known, producer[1]

    def _settled(self, ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
        """The answer that is not about a moment's state."""
        found: list[Any] = []

        def is_told() -> bool:
            found[:] = [ask()]
            return ErrorCode(code_of(found[0])) not in PASSING

        eventually(is_told, lambda: found, seconds=20)
        return found[0]

    def init(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        expected: Producer = (-1, -1),
        version: int = 5,
    ) -> Producer:
        request = InitProducerIdRequest(transactional_id, timeout_ms, *expected)
        answer = self._settled(
            lambda: self.client.call("InitProducerId", version, request),
            lambda answer: answer.error_code,
        )
        producer = answer.producer_id, answer.producer_epoch
        self._say(
            f"init {transactional_id} {timeout_ms} in {version}",
            ErrorCode(answer.error_code).name, self._name(producer),
        )  # fmt: skip
        return producer

    init_when_settled = init

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        topic: str | None = None,
        partitions: Sequence[int] = (0,),
        version: int = 3,
    ) -> None:
        topics = [AddPartitionsToTxnTopic(topic or self.topic, list(partitions))]
        request = AddPartitionsToTxnRequest([], transactional_id, *producer, topics)

        def codes(answer: Any) -> list[int]:
            return [
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in sorted(topic.results_by_partition, key=lambda one: one.partition_index)
            ]

        answer = self._settled(
            lambda: self.client.call("AddPartitionsToTxn", version, request),
            lambda answer: codes(answer)[0],
        )
        self._say(
            f"add {transactional_id} {topic} {partitions} in {version}",
            [ErrorCode(each).name for each in codes(answer)],
        )

    def add_offsets(self, transactional_id: str, producer: Producer, version: int = 3) -> None:
        request = AddOffsetsToTxnRequest(transactional_id, *producer, "g")
        answer = self._settled(
            lambda: self.client.call("AddOffsetsToTxn", version, request),
            lambda answer: answer.error_code,
        )
        self._say(f"add offsets {transactional_id}", ErrorCode(answer.error_code).name)

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        committed: bool = True,
        version: int = 5,
    ) -> Producer:
        request = EndTxnRequest(transactional_id, *producer, committed)
        answer = self._settled(
            lambda: self.client.call("EndTxn", version, request),
            lambda answer: answer.error_code,
        )
        goes_on = answer.producer_id, answer.producer_epoch
        self._say(
            f"end {transactional_id} {committed} in {version}",
            ErrorCode(answer.error_code).name, self._name(goes_on),
        )  # fmt: skip
        return goes_on

    def settle(self, transactional_id: str) -> None:
        """Wait until the decision was carried out."""
        request = DescribeTransactionsRequest([transactional_id])

        def is_over() -> bool:
            answer = self.client.call("DescribeTransactions", 0, request)
            return str(answer.transaction_states[0].transaction_state).startswith("Complete")

        eventually(is_over)

    def produce(
        self,
        transactional_id: str | None,
        producer: Producer,
        sequence: int,
        *,
        version: int,
        partition: int = 0,
        transactional: bool = True,
    ) -> int:
        records = batch(
            [b"value"],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=transactional,
        )
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(partition, records)]
        )
        request = ProduceRequest(transactional_id, -1, 10_000, [data])

        def code_of(answer: Any) -> int:
            code: int = answer.responses[0].partition_responses[0].error_code
            return code

        answer = self._settled(lambda: self.client.call("Produce", version, request), code_of)
        code = ErrorCode(code_of(answer))
        self._say(
            f"produce {transactional_id} {sequence} to {partition} in {version}", code.name,
            answer.responses[0].partition_responses[0].base_offset,
        )  # fmt: skip
        return code

    def offsets(self) -> None:
        """Where readers of all, and of what is committed, find the end."""
        ends = []
        for isolation in (0, READ_COMMITTED):
            parts = [ListOffsetsPartition(each, -1, LATEST) for each in range(PARTITIONS)]
            topics = [ListOffsetsTopic(self.topic, parts)]
            answer = self.client.call("ListOffsets", 5, ListOffsetsRequest(-1, isolation, topics))
            ends.append(sorted((e.partition_index, e.offset) for e in answer.topics[0].partitions))
        self._say("ends", ends)

    def commit_offsets(
        self,
        transactional_id: str,
        producer: Producer,
        offset: int,
        *,
        version: int,
        topic: str | None = None,
        partition: int = 0,
        member: str = "",
        generation: int = -1,
    ) -> None:
        parts = [TxnOffsetCommitRequestPartition(partition, offset, -1, "note")]
        request = TxnOffsetCommitRequest(
            transactional_id, "g", *producer, generation, member, None,
            [TxnOffsetCommitRequestTopic(topic or self.topic, parts)],
        )  # fmt: skip

        def code_of(answer: Any) -> int:
            code: int = answer.topics[0].partitions[0].error_code
            return code

        answer = self._settled(
            lambda: self.client.call("TxnOffsetCommit", version, request), code_of
        )
        what = f"commit offset {offset} of {transactional_id} {topic} {partition} in {version}"
        self._say(what, ErrorCode(code_of(answer)).name)

    def fetch_offsets(self) -> None:
        told = []
        for is_stable in (False, True):
            topics = [OffsetFetchRequestTopics(self.topic, partition_indexes=[0, 1])]
            group = OffsetFetchRequestGroup("g", topics=topics)
            request = OffsetFetchRequest(groups=[group], require_stable=is_stable)
            answer = self.client.call("OffsetFetch", 8, request).groups[0]
            told += [
                (each.committed_offset, each.metadata, ErrorCode(each.error_code).name)
                for topic in answer.topics
                for each in topic.partitions
            ]
        self._say("fetch offsets", told)

    def delete_group(self) -> None:
        answer = self.client.call("DeleteGroups", 2, DeleteGroupsRequest(["g"]))
        self._say("delete group", ErrorCode(answer.results[0].error_code).name)

    def mark(
        self,
        producer: Producer,
        *,
        coordinator_epoch: int,
        version: int,
        topic: str | None = None,
        partition: int = 3,
        committed: bool = False,
    ) -> None:
        topics = [WritableTxnMarkerTopic(topic or self.topic, [partition])]
        marker = WritableTxnMarker(*producer, committed, topics, coordinator_epoch, version)
        request = WriteTxnMarkersRequest([marker])
        answer = self.client.call("WriteTxnMarkers", version, request)
        code = answer.markers[0].topics[0].partitions[0].error_code
        what = f"mark {producer[1]} {topic} {partition} {coordinator_epoch} in {version}"
        self._say(what, ErrorCode(code).name)

    def describe(self, transactional_id: str) -> None:
        request = DescribeTransactionsRequest([transactional_id])
        found = self.client.call("DescribeTransactions", 0, request).transaction_states[0]
        self._say(
            f"describe {transactional_id}", ErrorCode(found.error_code).name,
            found.transaction_state, found.transaction_timeout_ms,
            found.transaction_start_time_ms > 0,
            self._name((found.producer_id, found.producer_epoch)),
            sorted((each.topic, sorted(each.partitions)) for each in found.topics),
        )  # fmt: skip

    def describe_producers(self, partition: int = 0, topic: str | None = None) -> None:
        topics = [TopicRequest(topic or self.topic, [partition])]
        answer = self.client.call("DescribeProducers", 0, DescribeProducersRequest(topics))
        found = answer.topics[0].partitions[0]
        self._say(
            "describe producers", ErrorCode(found.error_code).name,
            [
                (
                    self._name((each.producer_id, each.producer_epoch)), each.last_sequence,
                    each.coordinator_epoch, each.current_txn_start_offset,
                )
                for each in sorted(found.active_producers, key=lambda each: each.producer_id)
            ],
        )  # fmt: skip

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producers: Sequence[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> None:
        request = ListTransactionsRequest(list(states), list(producers), duration_ms, pattern)
        answer = self.client.call("ListTransactions", 2, request)
        listed = sorted(answer.transaction_states, key=lambda each: each.transactional_id)
        self._say(
            f"list {states} {duration_ms} {pattern}", ErrorCode(answer.error_code).name,
            answer.unknown_state_filters,
            [
                (each.transactional_id, self._name((each.producer_id, 0)), each.transaction_state)
                for each in listed
            ],
        )  # fmt: skip
