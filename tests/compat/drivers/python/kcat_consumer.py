"""A kcat that consumes: its process, what it writes, and the errors in its words."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Iterator, Sequence

from tests.compat.drivers.python import loop
from tests.compat.drivers.python.loop import DriverError, JsonObject

# librdkafka's words for an error -> the code on the wire.
CODES = {
    "Broker: Offset out of range": 1,
    "Broker: Unknown topic or partition": 3,
    "Broker: Message size too large": 10,
    "Broker: Broker failed to validate record": 87,
}
KINDS = {
    "Local: Unknown topic": "unknown_topic",
    "Local: Unknown partition": "unknown_partition",
    "Local: Message timed out": "timeout",
    "Local: No offset stored": "no_offset",
}


def to_error(message: str | Exception) -> DriverError:
    text = str(message)
    for words, code in CODES.items():
        if words in text:
            return DriverError(text, code=code)
    return DriverError(text, kind=next((KINDS[word] for word in KINDS if word in text), "client"))


class KcatConsumer:
    """One process that writes its records as JSON, a line each, and what else it has to say."""

    def __init__(self, command: Sequence[str]) -> None:
        self._unread = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def lines(self, timeout_s: float) -> Iterator[str]:
        """Lines of its output until it ends or the time is over."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._unread:
                line, _, self._unread = self._unread.partition(b"\n")
                yield line.decode(errors="surrogateescape")
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return
            piece = self._process.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not piece:
                return
            self._unread += piece

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _as_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


def consumed(line: str) -> JsonObject:
    """The record of a line that begins with a brace."""
    shown = json.loads(line)
    flat = shown.get("headers", [])
    record = loop.consumed(
        shown["partition"],
        shown["offset"],
        shown["ts"],
        key=_as_bytes(shown["key"]),
        value=_as_bytes(shown["payload"]),
        headers=[(n, _as_bytes(v)) for n, v in zip(flat[::2], flat[1::2], strict=True)],
    )
    return {**record, "topic": shown["topic"]}
