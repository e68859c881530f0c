"""Answers kept in encoded form for as long as the metadata image they were made from.

Every client asks for metadata again and again, and nearly always gets what the one before got.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from tidelog.cluster.image import MetadataImage
from tidelog.model import TopicPartition
from tidelog.protocol.primitives import Part

_BYTES_MAX = 32 * 1024 * 1024
# A large answer leaves in pieces of this size, as fast as its reader reads.
_PIECE_BYTES = 64 * 1024


class EncodedAnswer:
    """The body of an answer as bytes; only the header with the correlation id is still missing."""

    __slots__ = ("body", "is_kept")

    def __init__(self, body: bytes, *, is_kept: bool = False) -> None:
        self.body = body
        # True where the cache owns the body, so that answers of many connections share it.
        self.is_kept = is_kept

    def parts(self) -> list[Part]:
        """The body as parts of an answer; the first is always bytes."""
        body = self.body
        if len(body) <= _PIECE_BYTES:
            return [body]
        view = memoryview(body)
        rest = range(_PIECE_BYTES, len(body), _PIECE_BYTES)
        return [body[:_PIECE_BYTES], *(view[start : start + _PIECE_BYTES] for start in rest)]


class AnswerCache:
    """Bounded in bytes, emptied whenever the image changes."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._answers: dict[Hashable, EncodedAnswer] = {}
        self._bytes = 0
        # What is told with the metadata and is not in the image.
        self.offline: Collection[TopicPartition] = ()

    def tell_offline(self, offline: Collection[TopicPartition]) -> None:
        """Have answers name these partitions of this broker as offline."""
        if offline != self.offline:
            self.offline = offline
            self._clear()

    def find(self, image: MetadataImage, key: Hashable) -> EncodedAnswer | None:
        if image is not self._image:
            self._image = image
            self._clear()
        return self._answers.get(key)

    def keep(self, image: MetadataImage, key: Hashable, body: bytes) -> EncodedAnswer:
        """Remember an answer that was made from `image`."""
        answer = EncodedAnswer(body, is_kept=image is self._image)
        if image is self._image:
            if self._bytes + len(body) > _BYTES_MAX:
                self._clear()
            self._answers[key] = answer
            self._bytes += len(body)
        return answer

    def _clear(self) -> None:
        self._answers.clear()
        self._bytes = 0
