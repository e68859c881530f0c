"""UnregisterBroker: forgets a broker that is gone for good. Its one version is flexible."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import int16, int32, string


@api_message
class UnregisterBrokerRequest:
    """Which broker to forget."""

    broker_id: int = int32()


@api_message
class UnregisterBrokerResponse:
    """Whether it is forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
