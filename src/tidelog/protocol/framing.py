"""Frames: a four-byte length, a header and a message body.

Request header, big-endian: api key (int16), api version (int16), correlation id (int32), client id
(nullable string with an int16 length in every version), and from the API's first flexible version
on tagged fields. Response header: correlation id (int32), and tagged fields from the first
flexible version on, except for ApiVersions, whose response header never has them.

Promises: bad bytes raise `ProtocolError`; the header of a request for an API or version that is
not known is still read as far as it can be (key, version, correlation id, client id), so that the
caller can answer or log it. Whether a version is served is the caller's business, and so is the
largest frame that may arrive.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from tidelog.errors import ProtocolError
from tidelog.protocol.apis import API_BY_KEY, API_VERSIONS_KEY, Api
from tidelog.protocol.primitives import Buffer, Part, refuse_length, skip_tags
from tidelog.protocol.schema import ELEMENTS_MAX, decode, encode_sized

_REQUEST_HEADER = struct.Struct(">hhih")
_REQUEST_START = struct.Struct(">ihhih")
_RESPONSE_START = struct.Struct(">ii")
_RESPONSE_START_FLEXIBLE = struct.Struct(">iix")
_CORRELATION_ID = struct.Struct(">i")
_LENGTH_PREFIX_BYTES = 4

# A response comes from a broker that the caller chose, and describes as much as the cluster holds.
RESPONSE_ELEMENTS_MAX: Final = 10_000_000


@dataclass(slots=True)
class RequestHeader:
    """What precedes the body of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buffer: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """Read the header of a frame without its length prefix; returns it and the body's position."""
    try:
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(buffer, offset)
        position = offset + _REQUEST_HEADER.size
        client_id: str | None = None
        if length >= 0:
            end = position + length
            if end > len(buffer):
                refuse_length("client id", length)
            client_id = str(buffer[position:end], "utf-8")
            position = end
        elif length != -1:
            refuse_length("client id", length)
        api = API_BY_KEY.get(key)
        if api is not None and api.flexible <= version <= api.served[1]:
            position = _skip_header_tags(buffer, position)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"request header: {error}") from error
    return RequestHeader(key, version, correlation_id, client_id), position


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, message: object
) -> list[Part]:
    """A whole request frame, its length prefix included; the first part is always bytes."""
    name = b"" if client_id is None else client_id.encode()
    header = name + b"\0" if version >= api.flexible else name
    parts, body_size = encode_sized(message, version)
    size = _REQUEST_START.size - _LENGTH_PREFIX_BYTES + len(header) + body_size
    length = -1 if client_id is None else len(name)
    try:
        start = _REQUEST_START.pack(size, api.key, version, correlation_id, length)
    except struct.error as error:
        raise ProtocolError(f"{api.name} request header: {error}") from error
    return _with_header(start + header, parts)


def encode_response(api: Api, version: int, correlation_id: int, message: object) -> list[Part]:
    """A whole response frame, its length prefix included; the first part is always bytes."""
    parts, body_size = encode_sized(message, version)
    return frame_response(api, version, correlation_id, parts, body_size)


def frame_response(
    api: Api, version: int, correlation_id: int, parts: list[Part], body_size: int
) -> list[Part]:
    """As `encode_response`, for a body that is encoded already; its first part must be bytes."""
    layout = _RESPONSE_START_FLEXIBLE if _has_header_tags(api, version) else _RESPONSE_START
    size = layout.size - _LENGTH_PREFIX_BYTES + body_size
    try:
        start = layout.pack(size, correlation_id)
    except struct.error as error:
        raise ProtocolError(f"{api.name} response header: {error}") from error
    return _with_header(start, parts)


def decode_response(api: Api, version: int, buffer: Buffer) -> tuple[int, Any]:
    """Read a response frame without its length prefix: its correlation id and its message."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer)
        position = _CORRELATION_ID.size
        if _has_header_tags(api, version):
            position = _skip_header_tags(buffer, position)
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"{api.name} response header: {error}") from error
    message, _ = decode(api.response, version, buffer, position, RESPONSE_ELEMENTS_MAX)
    return correlation_id, message


def _has_header_tags(api: Api, version: int) -> bool:
    return version >= api.flexible and api.key != API_VERSIONS_KEY


def _skip_header_tags(buffer: Buffer, position: int) -> int:
    count = buffer[position]
    position += 1
    return skip_tags(buffer, position, count, ELEMENTS_MAX)[0] if count else position


def _with_header(header: bytes, parts: list[Part]) -> list[Part]:
    """Put the header in front of the first part, which encoders always make of bytes."""
    if not parts:
        return [header]
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = header + first
    return parts
