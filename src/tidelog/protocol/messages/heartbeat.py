"""Heartbeat: a member says that it is alive, and hears whether the group rebalances.

Version notes: 3 brings static members, 4 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import int16, int32, string


@api_message
class HeartbeatRequest:
    """A sign of life."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", default=None, nullable="3+")


@api_message
class HeartbeatResponse:
    """Whether all is as the member thinks."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
