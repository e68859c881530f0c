"""The fields of a record that is written as a JSON object.

Bytes stand as text under `key` and `value`, in base64 under `key_base64` and `value_base64`; what
is neither text nor null is the JSON that it is. Headers are a list of `name` and `value`. A field
that does not fit raises ValueError, TypeError or KeyError.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any


def field_bytes(entry: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes of a field; None where it is null or missing."""
    coded = entry.get(f"{name}_base64")
    if coded is not None:
        return b64decode(coded, validate=True)
    value = entry.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def field_integer(entry: Mapping[str, Any], name: str) -> int | None:
    """A whole number; None where it is null or missing."""
    value = entry.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{name} is not an integer")
    return value


def field_headers(entry: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    """The headers in their order."""
    return [(str(head["name"]), field_bytes(head, "value")) for head in entry.get("headers") or ()]
