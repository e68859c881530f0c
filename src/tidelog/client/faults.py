"""Faults that a client meets before a broker gives an answer with an error code."""

from __future__ import annotations

from collections.abc import Sequence

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


class HandshakeError(ConnectError):
    """Something listens, but the TLS handshake was broken off; that may pass, or not."""


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


class SecurityError(KafkaError):
    """A broker was reached, and the connection could not be secured; final, unlike a lost one."""

    def __init__(self, address: str, reason: str, code: ErrorCode) -> None:
        super().__init__(code, f"{address}: {reason}")
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return self.message


class TlsError(SecurityError):
    """The TLS handshake failed; `problem` names what is wrong, `hint` what to do about it.

    No code of Kafka's is about TLS. Java's clients, too, take this for a failed authentication.
    """

    def __init__(self, address: str, problem: str, hint: str) -> None:
        super().__init__(address, f"TLS: {problem}", ErrorCode.SASL_AUTHENTICATION_FAILED)
        self.problem = problem
        self.hint = hint


class MechanismError(SecurityError):
    """The broker does not offer the SASL mechanism, or no SASL at all."""

    def __init__(self, address: str, mechanism: str, offered: Sequence[str], code: int) -> None:
        self.mechanism = mechanism
        self.offered = sorted(offered)
        known = error_code(code)
        if known is ErrorCode.ILLEGAL_SASL_STATE:
            reason = "SASL: this listener does not authenticate by SASL"
        else:
            there = ", ".join(self.offered) or "none"
            reason = f"SASL: the mechanism {mechanism} is not offered; offered: {there}"
        super().__init__(address, reason, known)


class AuthenticationError(SecurityError):
    """The broker refuses the name, password or token; or it could not prove who it is."""

    def __init__(self, address: str, mechanism: str, reason: str) -> None:
        # Brokers begin with words of this kind themselves.
        for said in (f"Authentication by {mechanism} failed: ", "Authentication failed: "):
            reason = reason.removeprefix(said)
        text = f"SASL: {mechanism} authentication failed: {reason or 'the broker says no more'}"
        super().__init__(address, text, ErrorCode.SASL_AUTHENTICATION_FAILED)
        self.mechanism = mechanism


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
