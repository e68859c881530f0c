"""DeleteGroups: groups without members are forgotten, with their offsets.

Version notes: 2 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, structure


@api_message
class DeleteGroupsRequest:
    """The groups to delete."""

    groups_names: list[str] = array_of("string")


@structure
class DeletableGroupResult:
    """Whether one group is gone."""

    group_id: str = string()
    error_code: int = int16()


@api_message
class DeleteGroupsResponse:
    """The outcome for every group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array_of(DeletableGroupResult)
