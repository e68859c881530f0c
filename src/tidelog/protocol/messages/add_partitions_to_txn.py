"""AddPartitionsToTxn: partitions become part of a transaction, or are looked for in it.

Version notes: 3 is flexible, 4 is for brokers alone and asks about several transactions at once,
some of them only to verify; 5 brings TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int16, int32, int64, string, structure


@structure
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array_of("int32")


@structure
class AddPartitionsToTxnTransaction:
    """What is asked about one transaction."""

    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array_of(AddPartitionsToTxnTopic, "4+")


@api_message
class AddPartitionsToTxnRequest:
    """Partitions that a producer is about to write to."""

    transactions: list[AddPartitionsToTxnTransaction] = array_of(
        AddPartitionsToTxnTransaction, "4+"
    )
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array_of(AddPartitionsToTxnTopic, "0-3")


@structure
class AddPartitionsToTxnPartitionResult:
    """Whether one partition is in the transaction."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@structure
class AddPartitionsToTxnTopicResult:
    """The outcome for one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array_of(
        AddPartitionsToTxnPartitionResult
    )


@structure
class AddPartitionsToTxnResult:
    """The outcome for one transaction."""

    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array_of(
        AddPartitionsToTxnTopicResult, "4+"
    )


@api_message
class AddPartitionsToTxnResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array_of(
        AddPartitionsToTxnResult, "4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array_of(
        AddPartitionsToTxnTopicResult, "0-3"
    )
