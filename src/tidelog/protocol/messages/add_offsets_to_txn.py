"""AddOffsetsToTxn: the offsets of a group become part of a transaction."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import int16, int32, int64, string


@api_message
class AddOffsetsToTxnRequest:
    """The group whose offsets a producer is about to commit."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@api_message
class AddOffsetsToTxnResponse:
    """The outcome."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
