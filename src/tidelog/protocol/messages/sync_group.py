"""SyncGroup: the leader hands in the assignments, every member takes its own.

Version notes: 3 brings static members, 4 is flexible, 5 names the protocol for a cross-check.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, byte_string, int16, int32, string, structure


@structure
class SyncGroupRequestAssignment:
    """What one member is to own."""

    member_id: str = string()
    assignment: bytes = byte_string()


@api_message
class SyncGroupRequest:
    """A member's wish for its assignment; the leader's holds those of all."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array_of(SyncGroupRequestAssignment)


@api_message
class SyncGroupResponse:
    """What this member owns in the generation."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = byte_string()
