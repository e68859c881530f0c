"""A transactional id as its coordinator describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.client.batching import Identity
from tidelog.client.coordinator import Coordinator
from tidelog.client.faults import NetworkError, UnsupportedApiError
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Operation, retrying
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition

# The time-out of a two-phase transaction, as brokers tell it.
_NO_TIMEOUT_MS: Final = (1 << 31) - 1
# States in which a coordinator ends the transaction, sooner or later.
OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
ABORTED_STATES: Final = frozenset({"PrepareAbort", "CompleteAbort"})
COMMITTED_STATES: Final = frozenset({"PrepareCommit", "CompleteCommit"})


@dataclass(slots=True)
class DescribedTransaction:
    """A transactional id as its coordinator describes it; the start is -1 where none is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer: Identity
    timeout_ms: int
    started_ms: int
    partitions: list[TopicPartition] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """True where it has begun, and not yet ended in all of its partitions."""
        return self.state in OPEN_STATES

    @property
    def has_timeout(self) -> bool:
        return self.timeout_ms != _NO_TIMEOUT_MS

    def ends_in_ms(self, now_ms: float) -> float | None:
        """How long until its time-out aborts it; None where none does."""
        if self.state != "Ongoing" or not self.has_timeout:
            return None
        return max(0.0, self.started_ms + self.timeout_ms - now_ms)


def describe_transaction(
    cluster: Cluster, transactional_id: str
) -> Operation[DescribedTransaction | None]:
    """What the coordinator knows of the id; None where it knows none."""
    from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest

    coordinator = Coordinator(transactional_id)

    def attempt() -> Operation[DescribedTransaction | None]:
        request = DescribeTransactionsRequest([transactional_id])
        response = yield from coordinator.ask(cluster, "DescribeTransactions", request)
        [found] = response.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        coordinator.check(found.error_code)
        assert coordinator.node is not None
        return described(found, coordinator.node)

    return (yield from retrying(cluster, attempt))


def described(found: Any, coordinator: int) -> DescribedTransaction:
    """An entry of a DescribeTransactions response."""
    return DescribedTransaction(
        found.transactional_id,
        coordinator,
        found.transaction_state,
        Identity(found.producer_id, found.producer_epoch),
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        [TopicPartition(each.topic, one) for each in found.topics for one in each.partitions],
    )


def try_describe(cluster: Cluster, transactional_id: str) -> Operation[DescribedTransaction | None]:
    """As `describe_transaction`; None too where the coordinator cannot or will not say."""
    try:
        return (yield from describe_transaction(cluster, transactional_id))
    except (NetworkError, KafkaError, UnsupportedApiError):
        return None
