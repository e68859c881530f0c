"""LeaveGroup: members leave without waiting for their session to end.

Version notes: 3 takes several members and static ones, 4 is flexible, 5 takes a reason.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, structure


@structure
class MemberIdentity:
    """A member that leaves, by its id or its instance id."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    reason: str | None = string("5+", default=None, nullable="5+", ignorable=True)


@api_message
class LeaveGroupRequest:
    """Who leaves."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array_of(MemberIdentity, "3+")


@structure
class MemberResponse:
    """Whether one member has left."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@api_message
class LeaveGroupResponse:
    """The outcome, from version 3 on for each member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array_of(MemberResponse, "3+")
