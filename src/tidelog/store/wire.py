"""How a store is served to other processes of one machine: frames of JSON on a Unix socket.

A frame is its length in four bytes and a JSON object. A call is `{"id": 1, "call": "read", "path":
"/a"}`; its answer carries the same `id` and either `result` or `error`. The server speaks unasked
too: `{"watch": 3, "path": …, "revision": …}`. Values are base64. Both ends run the same version of
the package: the parent starts its children.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final

from tidelog.store.port import (
    Check,
    Conflict,
    ConflictReason,
    ConnectionLoss,
    Create,
    Delete,
    Operation,
    SessionExpired,
    Set,
    Stored,
    StoreError,
    StoreFull,
    TransactionTooLarge,
)

LENGTH: Final = struct.Struct(">I")
# A whole tree may be large; what a peer can make us hold is bounded all the same.
FRAME_BYTES_MAX: Final = 256 * 1024**2

Message = dict[str, Any]

_KINDS: Final[dict[str, type[Any]]] = {
    "check": Check, "create": Create, "set": Set, "delete": Delete,
}  # fmt: skip
_ERRORS: Final[dict[str, type[StoreError]]] = {
    each.__name__: each
    for each in (ConnectionLoss, SessionExpired, StoreFull, TransactionTooLarge, StoreError)
}


def frame(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def take_frames(buffer: bytearray) -> list[Message]:
    """The whole frames at the front of a buffer, taken out of it; StoreError for a huge one."""
    messages = []
    while len(buffer) >= LENGTH.size:
        (size,) = LENGTH.unpack_from(buffer)
        if size > FRAME_BYTES_MAX:
            raise StoreError(f"a frame of {size} bytes")
        end = LENGTH.size + size
        if len(buffer) < end:
            break
        messages.append(json.loads(bytes(buffer[LENGTH.size : end])))
        del buffer[:end]
    return messages


def encode_operations(operations: Sequence[Operation]) -> list[list[Any]]:
    return [[type(each).__name__.lower(), *(_text(field) for field in each)] for each in operations]


def decode_operations(encoded: Sequence[Sequence[Any]]) -> list[Operation]:
    operations = []
    for kind, path, *rest in encoded:
        if kind in ("create", "set"):
            rest[0] = b64decode(rest[0])
        operations.append(_KINDS[kind](path, *rest))
    return operations


def encode_node(node: Stored | None) -> list[Any] | None:
    return None if node is None else [_text(field) for field in node]


def decode_node(encoded: Sequence[Any] | None) -> Stored | None:
    return None if encoded is None else Stored(b64decode(encoded[0]), *encoded[1:])


def encode_error(error: StoreError) -> Message:
    if isinstance(error, Conflict):
        return {"kind": "Conflict", "index": error.index, "reason": error.reason.name}
    kind = type(error).__name__
    return {"kind": kind if kind in _ERRORS else "StoreError", "message": str(error)}


def decode_error(encoded: Message, operations: Sequence[Operation]) -> StoreError:
    if encoded["kind"] == "Conflict":
        index = encoded["index"]
        return Conflict(index, operations[index], ConflictReason[encoded["reason"]])
    return _ERRORS[encoded["kind"]](encoded["message"])


def _text(field: object) -> object:
    return b64encode(field).decode() if isinstance(field, bytes) else field
