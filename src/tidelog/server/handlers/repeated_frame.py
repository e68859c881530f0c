"""A request without its correlation id: the next one that is otherwise the same says the same."""

from __future__ import annotations

from typing import Final

# Where the correlation id of a request begins, and ends.
CORRELATION_ID: Final = slice(4, 8)


class RepeatedFrame:
    """What comes before and behind the correlation id."""

    __slots__ = ("_rest", "_start")

    def __init__(self, frame: memoryview) -> None:
        self._start = bytes(frame[: CORRELATION_ID.start])
        self._rest = bytes(frame[CORRELATION_ID.stop :])

    def is_repeated_by(self, frame: memoryview) -> bool:
        return (
            frame[CORRELATION_ID.stop :].tobytes() == self._rest
            and frame[: CORRELATION_ID.start] == self._start
        )
