"""Which Kafka messages the bytes of a simulated connection are, so that one of them can be held.

Both directions are streams of frames: four bytes of length, then for a request its API key, version
and correlation id, for an answer the correlation id alone. A chunk that is written may begin
anywhere in a frame; what begins in it is what it is taken for.
"""

from __future__ import annotations

import struct
from typing import Final

_REQUEST: Final = struct.Struct(">hhi")
_LENGTH_BYTES: Final = 4
_HEADER_BYTES: Final = _LENGTH_BYTES + _REQUEST.size


class Frames:
    """One connection, seen from outside."""

    def __init__(self) -> None:
        self._apis: dict[int, int] = {}
        self._requests = _Stream()
        self._answers = _Stream()

    def request(self, chunk: bytes) -> list[int]:
        """The API keys of the requests that begin in a chunk."""
        found = []
        for header in self._requests.headers(chunk):
            api, _, correlation = _REQUEST.unpack_from(header, _LENGTH_BYTES)
            self._apis[correlation] = api
            found.append(api)
        return found

    def answer(self, chunk: bytes) -> list[int]:
        """The API keys of the requests that are answered from this chunk on."""
        found = []
        for header in self._answers.headers(chunk):
            correlation = int.from_bytes(header[_LENGTH_BYTES : 2 * _LENGTH_BYTES], "big")
            found.append(self._apis.pop(correlation, -1))
        return found


class _Stream:
    """Where the frames of one direction begin."""

    def __init__(self) -> None:
        self._begun = b""
        # Bytes of the frame under way that are still to come, once its header is there.
        self._left = 0

    def headers(self, chunk: bytes) -> list[bytes]:
        found = []
        data = self._begun + chunk
        position = 0
        if not self._begun:
            position = min(self._left, len(data))
            self._left -= position
        while len(data) - position >= _HEADER_BYTES:
            size = _LENGTH_BYTES + int.from_bytes(data[position : position + _LENGTH_BYTES], "big")
            found.append(data[position : position + _HEADER_BYTES])
            taken = min(max(size, _HEADER_BYTES), len(data) - position)
            self._left = max(size - taken, 0)
            position += taken
        self._begun = b"" if self._left else data[position:]
        return found
