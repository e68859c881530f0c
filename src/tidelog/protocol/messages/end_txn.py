"""EndTxn: a transaction is committed or aborted.

Version notes: 3 is flexible, 4 brings TRANSACTION_ABORTABLE, 5 raises the producer's epoch and
answers with the id and epoch to go on with (KIP-890).
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import boolean, int16, int32, int64, string


@api_message
class EndTxnRequest:
    """How a transaction ends."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@api_message
class EndTxnResponse:
    """The outcome, and with which id and epoch the producer goes on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
