"""ListTransactions: the transactional ids that a broker coordinates.

Version notes: 1 asks for those that run longer than so many milliseconds, 2 for those whose id
matches a pattern.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, int64, string, structure


@api_message
class ListTransactionsRequest:
    """Which of them; without filters, all."""

    state_filters: list[str] = array_of("string")
    producer_id_filters: list[int] = array_of("int64")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", default=None, nullable="2+")


@structure
class TransactionState:
    """One transactional id."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@api_message
class ListTransactionsResponse:
    """Those that were asked for."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array_of("string")
    transaction_states: list[TransactionState] = array_of(TransactionState)
