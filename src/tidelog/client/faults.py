"""Faults that a client meets before a broker gives an answer with an error code."""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import TopicPartition
from tidelog.protocol.batches import BatchHeader


class NetworkError(TidelogError):
    """A broker could not be reached, or went away with a request unanswered; worth a retry."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class ConnectError(NetworkError):
    """No connection came about, so nothing was sent."""


class RequestTimeoutError(NetworkError):
    """A broker took longer to answer than the client waits."""


class UnreadableBatchError(KafkaError):
    """A stored batch cannot be read; `next_offset` is where a reader that gives it up goes on."""

    def __init__(
        self, partition: TopicPartition, header: BatchHeader, reason: TidelogError
    ) -> None:
        code = reason.code if isinstance(reason, KafkaError) else ErrorCode.CORRUPT_MESSAGE
        text = reason.message if isinstance(reason, KafkaError) else str(reason)
        first, last = header.base_offset, header.last_offset
        super().__init__(
            code, f"{partition}: the batch of offsets {first} to {last} cannot be read: {text}"
        )
        self.partition = partition
        self.first_offset = first
        self.next_offset = last + 1


class UnsupportedApiError(TidelogError):
    """The broker and this client share no version of an API."""


class NoBrokerError(NetworkError):
    """None of the brokers that could serve a request was reached."""


def error_code(code: int) -> ErrorCode:
    """The error code of a response; one that this client does not know is a server error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def raise_for(code: int, message: str | None = None) -> None:
    """Raise the `KafkaError` of a response's error code unless it is NONE."""
    if code:
        known = error_code(code)
        raise KafkaError(known, message or (known.message if known == code else f"error {code}"))
