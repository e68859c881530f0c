"""FollowMetadata: what a broker asks the controller again and again. Tidelog's own.

The answer waits until there is something newer than the broker has, or until the time is over.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import byte_string, int16, int32, int64, string


@api_message
class FollowMetadataRequest:
    """The version that the broker has, and of which controller's epoch."""

    broker_id: int = int32()
    version: int = int64()
    controller_epoch: int = int32()
    timeout_ms: int = int32()


@api_message
class FollowMetadataResponse:
    """An `Update` as `cluster/wire` writes it."""

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    update: bytes = byte_string()
