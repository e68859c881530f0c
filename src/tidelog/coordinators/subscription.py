"""What a consumer subscribed to, read from the metadata of its join.

The metadata belongs to the clients: bytes that cannot be read mean that nobody knows, never an
error. Format: int16 version, int32 count of topics, each an int16 length and UTF-8; what follows
in later versions is not needed here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all subscriptions together; None where one of them cannot be read."""
    topics: set[str] = set()
    for metadata in subscriptions:
        found = read_topics(metadata)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def read_topics(metadata: bytes) -> list[str] | None:
    """The topics of one subscription."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        position = _HEAD.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
