"""Which topics are the broker's own, and what is said of a name that none may have."""

from __future__ import annotations

from typing import Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.topic_names import topic_name_fault

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
# Written by coordinators alone: clients may read and describe them.
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


def check_topic_name(name: str) -> None:
    """KafkaError unless a topic may have this name."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
