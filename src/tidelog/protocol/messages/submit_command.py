"""SubmitCommand: commands that a broker hands on to the controller. Tidelog's own."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import byte_string, int16, int32, int64, string


@api_message
class SubmitCommandRequest:
    """Commands as `cluster/wire` writes them, and for whom they are done."""

    principal: str = string()
    timeout_ms: int = int32()
    commands: bytes = byte_string()


@api_message
class SubmitCommandResponse:
    """What each command came to, as `cluster/wire` writes it.

    `version` is that of the metadata in which all of it can be seen.
    """

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    version: int = int64()
    outcomes: bytes = byte_string()
