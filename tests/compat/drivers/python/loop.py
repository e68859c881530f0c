"""The driver side of the JSON-lines protocol, shared by the drivers written in Python.

A driver is started with the bootstrap servers as its only argument. It writes one line that names
the client and its version, then reads one request a line, ``{"operation", "arguments"}``, and
answers each with one line: ``{"result"}`` or ``{"error": {"code", "kind", "message"}}``. `code` is
the error code the broker sent, or null; `kind` names an error that the client found out by itself
(``unknown_topic``, ``unknown_partition``, ``no_offset``, ``fenced``, ``has_members``, ``timeout``,
``client``), or is ``unnamed`` for a code that the client has no name for and does not show. Keys,
values and header values are base64, null where they are null. End of input ends the driver.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn

JsonObject = dict[str, Any]


class DriverError(Exception):
    """What the client reported, in the terms of the protocol."""

    def __init__(self, message: str, code: int | None = None, kind: str = "client") -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind

    def to_json(self) -> JsonObject:
        kind = None if self.code is not None else self.kind
        return {"code": self.code, "kind": kind, "message": str(self)}


def text_of(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def headers_of(record: JsonObject) -> list[tuple[str, bytes | None]]:
    return [(name, bytes_of(value)) for name, value in record["headers"]]


def consumed(partition: int, offset: int, timestamp_ms: int, **content: Any) -> JsonObject:
    """One consumed record; `content` holds key, value and headers as the client gave them."""
    headers = [[name, text_of(value)] for name, value in content["headers"] or ()]
    return {
        "partition": partition,
        "offset": offset,
        "timestamp_ms": timestamp_ms,
        "key": text_of(content["key"]),
        "value": text_of(content["value"]),
        "headers": headers,
    }


def _write(message: JsonObject) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def announce(client: str, version: str) -> None:
    _write({"client": client, "version": version})


def serve(client: object, to_error: Callable[[Exception], DriverError]) -> None:
    """Carry out requests on the methods of `client` until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            operation = getattr(client, request["operation"])
            _write({"result": operation(**request["arguments"])})
        except DriverError as error:
            _write({"error": error.to_json()})
        except Exception as error:
            _write({"error": to_error(error).to_json()})


def unknown_start(start: JsonObject) -> NoReturn:
    raise ValueError(f"cannot start at {start!r}")
