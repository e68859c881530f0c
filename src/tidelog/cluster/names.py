"""Which topics are the broker's own, and what is said of names that mean no topic or broker."""

from __future__ import annotations

import re
from typing import Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.topic_names import topic_name_fault

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
# Written by coordinators alone: clients may read and describe them.
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

_BROKER_ID: Final = re.compile(r"[+-]?[0-9]{1,10}")


def check_topic_name(name: str) -> None:
    """KafkaError unless a topic may have this name."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def named_broker(name: str, what: str = "Node") -> int:
    """The id of the broker that the name of a config resource means; KafkaError where none can be.

    `what` is Kafka's word for it, which depends on the request.
    """
    if _BROKER_ID.fullmatch(name) is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}"
        )
    return int(name)
