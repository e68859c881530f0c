"""Faults that a client meets before a broker gives an answer with an error code."""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError, TidelogError


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
