"""DescribeGroups: state and members of classic groups.

Version notes: 3 tells what the asker may do, 4 brings static members, 5 is flexible, 6 answers an
unknown group with an error.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, byte_string, int16, int32, string, structure


@api_message
class DescribeGroupsRequest:
    """The groups asked for."""

    groups: list[str] = array_of("string")
    include_authorized_operations: bool = boolean("3+")


@structure
class DescribedGroupMember:
    """One member, its subscription and its assignment."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", default=None, nullable="4+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    member_assignment: bytes = byte_string()


@structure
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = string("6+", default=None, nullable="6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array_of(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


@api_message
class DescribeGroupsResponse:
    """The groups."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array_of(DescribedGroup)
