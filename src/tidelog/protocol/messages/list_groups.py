"""ListGroups: every group that this broker coordinates.

Version notes: 3 is flexible, 4 filters by state, 5 by type.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, structure


@api_message
class ListGroupsRequest:
    """Which states and types are wanted; all where nothing is said."""

    states_filter: list[str] = array_of("string", "4+")
    types_filter: list[str] = array_of("string", "5+")


@structure
class ListedGroup:
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@api_message
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array_of(ListedGroup)
