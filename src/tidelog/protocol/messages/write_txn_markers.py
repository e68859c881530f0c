"""WriteTxnMarkers: a coordinator has the ends of transactions written to the partitions in them.

Version notes: 2 tells which version of the transactions' protocol the producer speaks.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int8, int16, int32, int64, string, structure


@structure
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array_of("int32")


@structure
class WritableTxnMarker:
    """The end of one transaction."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array_of(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


@api_message
class WriteTxnMarkersRequest:
    """The ends of some transactions."""

    markers: list[WritableTxnMarker] = array_of(WritableTxnMarker)


@structure
class WritableTxnMarkerPartitionResult:
    """Whether one partition has the marker."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class WritableTxnMarkerTopicResult:
    """The outcome for one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array_of(WritableTxnMarkerPartitionResult)


@structure
class WritableTxnMarkerResult:
    """The outcome for one transaction."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array_of(WritableTxnMarkerTopicResult)


@api_message
class WriteTxnMarkersResponse:
    """The outcome for every marker."""

    markers: list[WritableTxnMarkerResult] = array_of(WritableTxnMarkerResult)
