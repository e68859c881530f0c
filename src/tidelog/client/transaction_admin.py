"""Transactions as operations for those who look after them: list, describe, find what hangs, abort.

A transaction hangs where a partition has records of it that no coordinator is going to end: then
nobody reads on behind them with `read_committed`. Brokers verify every transaction since Kafka 3.6,
so a hanging one is left over from before, or from a broker that does not.
Works against any broker of Kafka 3.0 or newer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.client.admin import by_leader
from tidelog.client.batching import Identity
from tidelog.client.connection import Call
from tidelog.client.faults import raise_for
from tidelog.client.group_admin import CoordinatorKind
from tidelog.client.metadata import ANY, Cluster
from tidelog.client.offsets import list_offsets
from tidelog.client.operation import Operation, answered, ask, by_topic, refresh, retried
from tidelog.client.transaction_view import DescribedTransaction, described
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Isolation, ListedOffset, TopicPartition

_FIND_MANY_VERSION: Final = 4
_KEYS_AT_ONCE: Final = 1_000


@dataclass(slots=True, frozen=True)
class TransactionFilter:
    """Which transactional ids are wanted; by default all."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    # Open for at least this long; -1 where that does not matter.
    open_for_ms: int = -1
    # A regular expression (RE2) that the whole id matches.
    pattern: str | None = None


@dataclass(slots=True, frozen=True, order=True)
class ListedTransaction:
    """A transactional id in a list, and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(slots=True, frozen=True)
class ActiveProducer:
    """A producer as the leader of a partition knows it; no start where no transaction is open."""

    partition: TopicPartition
    producer: Identity
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int | None


@retried
def list_transactions(
    cluster: Cluster, wanted: TransactionFilter | None = None
) -> Operation[list[ListedTransaction]]:
    """The transactional ids of all coordinators, by name."""
    from tidelog.protocol.messages.list_transactions import ListTransactionsRequest

    wanted = wanted or TransactionFilter()
    oldest = 2 if wanted.pattern else 1 if wanted.open_for_ms >= 0 else 0
    request = ListTransactionsRequest(
        list(wanted.states), list(wanted.producer_ids), wanted.open_for_ms, wanted.pattern
    )
    yield from refresh(cluster, [])
    nodes = list(cluster.brokers)
    outcomes = yield [Call(node, "ListTransactions", request, min_version=oldest) for node in nodes]
    found = []
    for node, response in zip(nodes, outcomes, strict=True):
        if isinstance(response, TidelogError):
            raise response
        raise_for(response.error_code)
        found += [
            ListedTransaction(each.transactional_id, node, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]
    return sorted(found)


@retried
def describe_transactions(
    cluster: Cluster, transactional_ids: Collection[str]
) -> Operation[dict[str, DescribedTransaction]]:
    """What the coordinators know of the ids; those that nobody knows are left out."""
    from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest

    names = sorted(set(transactional_ids))
    found: dict[str, DescribedTransaction] = {}
    for start in range(0, len(names), _KEYS_AT_ONCE):
        nodes = yield from _coordinators(cluster, names[start : start + _KEYS_AT_ONCE])
        calls = [
            Call(node, "DescribeTransactions", DescribeTransactionsRequest(some))
            for node, some in nodes.items()
        ]
        outcomes = yield calls
        for call, response in zip(calls, outcomes, strict=True):
            if isinstance(response, TidelogError):
                raise response
            for each in response.transaction_states:
                if each.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise_for(each.error_code)
                    found[each.transactional_id] = described(each, call.node)
    return found


def _coordinators(cluster: Cluster, names: Sequence[str]) -> Operation[dict[int, list[str]]]:
    """The ids by the broker that coordinates them."""
    from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest

    request = FindCoordinatorRequest(
        key_type=CoordinatorKind.TRANSACTION, coordinator_keys=list(names)
    )
    call = Call(ANY, "FindCoordinator", request, min_version=_FIND_MANY_VERSION)
    response = yield from ask(call)
    nodes: dict[int, list[str]] = {}
    for each in response.coordinators:
        raise_for(each.error_code, each.error_message)
        nodes.setdefault(each.node_id, []).append(each.key)
    if not nodes.keys() <= cluster.brokers.keys():
        yield from refresh(cluster, [])
    return nodes


@retried
def describe_producers(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> Operation[list[ActiveProducer]]:
    """The producers that the leaders of the partitions remember, in the order of partitions."""
    from tidelog.protocol.messages.describe_producers import (
        DescribeProducersRequest,
        TopicRequest,
    )

    def build(some: Sequence[TopicPartition]) -> object:
        return DescribeProducersRequest(
            [
                TopicRequest(topic, [tp.partition for tp in group])
                for topic, group in by_topic(some).items()
            ]
        )

    responses = yield from by_leader(cluster, partitions, "DescribeProducers", build)
    found = [
        _producer(tp, each)
        for response in responses
        for tp, part in answered(response)
        for each in part.active_producers
    ]
    return sorted(found, key=lambda each: (each.partition, each.producer.producer_id))


def _producer(tp: TopicPartition, state: Any) -> ActiveProducer:
    start = state.current_txn_start_offset
    return ActiveProducer(
        tp,
        Identity(state.producer_id, state.producer_epoch),
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        start if start >= 0 else None,
    )


def coordinated(
    cluster: Cluster, producers: Collection[ActiveProducer]
) -> Operation[dict[ActiveProducer, DescribedTransaction]]:
    """Of producers with an open transaction, those whose coordinator is going to end it.

    The others hang.
    """
    ids = tuple(sorted({each.producer.producer_id for each in producers}))
    if not ids:
        return {}
    listed = yield from list_transactions(cluster, TransactionFilter(producer_ids=ids))
    names = {each.producer_id: each.transactional_id for each in listed}
    known = yield from describe_transactions(cluster, names.values())
    found = {}
    for each in producers:
        transaction = known.get(names.get(each.producer.producer_id, ""))
        if (
            transaction is not None
            and transaction.is_open
            and each.partition in transaction.partitions
        ):
            found[each] = transaction
    return found


@retried
def abort_hanging(cluster: Cluster, producer: ActiveProducer) -> Operation[None]:
    """Write the end of a hanging transaction to its partition, over its coordinator's head."""
    from tidelog.protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    tp = producer.partition

    def build(_: Sequence[TopicPartition]) -> object:
        marker = WritableTxnMarker(
            producer.producer.producer_id,
            producer.producer.producer_epoch,
            False,
            [WritableTxnMarkerTopic(tp.topic, [tp.partition])],
            max(producer.coordinator_epoch, 0),
        )
        return WriteTxnMarkersRequest([marker])

    for response in (yield from by_leader(cluster, [tp], "WriteTxnMarkers", build)):
        for result in response.markers:
            for topic in result.topics:
                for part in topic.partitions:
                    raise_for(part.error_code)


@dataclass(slots=True)
class StableOffset:
    """How far readers of committed records get in a partition, and whose transaction holds them.

    The holder is None where they get to the end, and where its end is not committed yet; its
    transaction is None where no coordinator has it: it hangs.
    """

    partition: TopicPartition
    offset: int
    high_watermark: int
    holder: ActiveProducer | None = None
    transaction: DescribedTransaction | None = None
    others_open: int = 0

    @property
    def since_ms(self) -> int:
        """When the holder's transaction began or, where nobody knows, its last record."""
        assert self.holder is not None
        return self.transaction.started_ms if self.transaction else self.holder.last_timestamp_ms


def stable_offset(cluster: Cluster, partition: TopicPartition) -> Operation[StableOffset]:
    """Who holds the last stable offset of a partition."""
    wanted = {partition: ListedOffset.LATEST}
    # In this order: what ends in between is then seen as at its end, never as behind it.
    stable = yield from list_offsets(cluster, wanted, Isolation.READ_COMMITTED)
    ends = yield from list_offsets(cluster, wanted)
    found = StableOffset(partition, stable[partition].offset, ends[partition].offset)
    if found.offset >= found.high_watermark:
        return found
    active = yield from describe_producers(cluster, [partition])
    holding = [each for each in active if each.transaction_start is not None]
    for each in holding:
        if each.transaction_start == found.offset:
            known = yield from coordinated(cluster, [each])
            found.holder, found.transaction = each, known.get(each)
            found.others_open = len(holding) - 1
    return found
