"""SaslHandshake: which mechanism a client authenticates by. SaslAuthenticate: its messages.

Version notes: SaslHandshake 1 says that the mechanism's messages travel in SaslAuthenticate.
SaslAuthenticate 1 tells how long the session lasts, 2 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, byte_string, int16, int64, string


@api_message
class SaslHandshakeRequest:
    """How the client wants to authenticate."""

    mechanism: str = string()


@api_message
class SaslHandshakeResponse:
    """Whether it may, and how it could."""

    error_code: int = int16()
    mechanisms: list[str] = array_of("string")


@api_message
class SaslAuthenticateRequest:
    """One message of the client."""

    auth_bytes: bytes = byte_string()


@api_message
class SaslAuthenticateResponse:
    """One message of the server."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64("1+", ignorable=True)
