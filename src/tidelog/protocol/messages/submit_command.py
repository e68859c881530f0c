"""SubmitCommand: commands that a broker hands on to the controller. Tidelog's own.

Version notes: 1 asks the controller to hold a client to its quota of mutations (KIP-599).
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, byte_string, int16, int32, int64, string


@api_message
class SubmitCommandRequest:
    """Commands as `cluster/wire` writes them, and for whom they are done."""

    principal: str = string()
    timeout_ms: int = int32()
    commands: bytes = byte_string()
    # Partitions that a client wants to create and delete, one number for each topic.
    quota_user: str = string("1+", ignorable=True)
    quota_client_id: str = string("1+", ignorable=True)
    quota_is_strict: bool = boolean("1+", ignorable=True)
    mutations: list[int] = array_of("int32", "1+", ignorable=True)


@api_message
class SubmitCommandResponse:
    """What each command came to, as `cluster/wire` writes it.

    `version` is that of the metadata in which all of it can be seen.
    """

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    version: int = int64()
    outcomes: bytes = byte_string()
    # How many of the mutations the quota allows, from the first on; -1 where nobody has looked.
    mutations_taken: int = int32("1+", default=-1)
    throttle_time_ms: int = int32("1+")
