"""The limits and times of the client, in one place; names follow Kafka's client settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tidelog.client.security import OPEN, ClientSecurity
from tidelog.model import Codec, Isolation


@dataclass(slots=True)
class ClientSettings:
    """How connections behave, whoever uses them."""

    client_id: str = "tidelog"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    operation_timeout_ms: int = 60_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    # Give up at once where no bootstrap server can be reached, as a person at a terminal wants.
    fail_fast: bool = False
    max_frame_bytes: int = 256 << 20
    receive_bytes: int = 256 << 10
    security: ClientSecurity = OPEN

    @classmethod
    def impatient(
        cls, client_id: str, timeout_ms: int, security: ClientSecurity = OPEN
    ) -> ClientSettings:
        """For a person who waits: a broker that is not there is an error at once."""
        return cls(client_id, timeout_ms, timeout_ms, timeout_ms, fail_fast=True, security=security)


@dataclass(slots=True)
class ProducerSettings:
    """How records are gathered into batches and delivered."""

    acks: int = -1
    idempotent: bool = True
    linger_ms: int = 5
    batch_bytes: int = 64 << 10
    request_bytes: int = 1 << 20
    buffer_bytes: int = 32 << 20
    codec: Codec = Codec.NONE
    # None is the codec's own.
    compression_level: int | None = None
    in_flight_max: int = 5
    delivery_timeout_ms: int = 120_000
    auto_create_topics: bool = True
    client: ClientSettings = field(default_factory=ClientSettings)

    def __post_init__(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise ValueError("acks is 0, 1 or -1 (all)")
        if self.acks != -1:
            # A broker remembers sequences only of batches that it acknowledges in full.
            self.idempotent = False


@dataclass(slots=True)
class TransactionSettings:
    """Under which id a producer's transactions run, and how long one may stay open.

    With `two_phase` (KIP-939, Tidelog alone) as long as it takes: somebody else decides about it.
    """

    transactional_id: str
    timeout_ms: int = 60_000
    two_phase: bool = False

    def __post_init__(self) -> None:
        if not self.transactional_id:
            raise ValueError("a transactional id is not empty")
        if self.timeout_ms <= 0:
            raise ValueError("a transaction's time-out is a positive number of milliseconds")


@dataclass(slots=True)
class ConsumerSettings:
    """How much is fetched at once, how long a fetch waits, and what happens off the log's end."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    max_decompressed_bytes: int = 256 << 20
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    check_crcs: bool = True
    out_of_range: Literal["error", "earliest", "latest"] = "error"
    client: ClientSettings = field(default_factory=ClientSettings)
