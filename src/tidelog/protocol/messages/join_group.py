"""JoinGroup: a consumer asks to be a member of the next generation of a group.

Version notes: 1 brings the rebalance timeout, 4 the round in which a member id is handed out first,
5 static members, 6 is flexible, 8 takes a reason, 9 lets a leader skip the assignment.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, byte_string, int16, int32, string, structure


@structure
class JoinGroupRequestProtocol:
    """One way of assigning that the member knows, with its subscription."""

    name: str = string()
    metadata: bytes = byte_string()


@api_message
class JoinGroupRequest:
    """Who wants to join, and on which terms."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array_of(JoinGroupRequestProtocol)
    reason: str | None = string("8+", default=None, nullable="8+", ignorable=True)


@structure
class JoinGroupResponseMember:
    """A member as the leader needs it to assign partitions."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = byte_string()


@api_message
class JoinGroupResponse:
    """The new generation; only its leader is told of the other members."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array_of(JoinGroupResponseMember)
