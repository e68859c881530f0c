"""InitProducerId: hands out the producer id and epoch of an idempotent producer.

Version notes: 2 is flexible, 3 lets a producer name the id and epoch it holds, 4 and 5 differ in
the error codes that the client understands, 6 (KIP-939) is for transactions that somebody else
ends, and not stable in Kafka.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import boolean, int16, int32, int64, string


@api_message
class InitProducerIdRequest:
    """Asks for a producer id, for a transactional id or, with null, for none."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


@api_message
class InitProducerIdResponse:
    """The producer id and epoch."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
