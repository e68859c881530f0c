"""FindCoordinator: the broker that coordinates a group or a transaction.

The key type is 0 for groups, 1 for transactions, 2 for share groups.
Version notes: 3 is flexible, 4 asks for many keys at once, 6 knows share groups.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int8, int16, int32, string, structure


@api_message
class FindCoordinatorRequest:
    """The keys whose coordinators are asked for."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array_of("string", "4+")


@structure
class Coordinator:
    """The coordinator of one key."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@api_message
class FindCoordinatorResponse:
    """The coordinator, or from version 4 on the list of them."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array_of(Coordinator, "4+")
