"""DescribeTransactions: the state of transactional ids."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, int64, string, structure


@api_message
class DescribeTransactionsRequest:
    """Which ids are asked about."""

    transactional_ids: list[str] = array_of("string")


@structure
class TopicData:
    """Partitions of one topic that are in the transaction."""

    topic: str = string()
    partitions: list[int] = array_of("int32")


@structure
class TransactionState:
    """What is known of one transactional id."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array_of(TopicData)


@api_message
class DescribeTransactionsResponse:
    """What is known of them."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array_of(TransactionState)
