"""Bytes as people write and read them: text, JSON, hex, base64; records as JSON objects.

A record as JSON has `topic`, `partition`, `offset`, `timestamp` (ms), `key`, `value` and `headers`
(a list of name and value). Bytes that are not UTF-8 stand under `key_base64`, `value_base64`
instead, so what `consume --format json` prints is what `produce --input json` takes. `topic` and
`offset` are read over then, because the broker and the command decide them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Any

from tidelog.cli.faults import CliError
from tidelog.client.batching import ProducerRecord
from tidelog.client.record_json import field_bytes, field_headers, field_integer
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record

ENCODINGS = ("text", "json", "hex", "base64")
_TIMESTAMP_MS_MAX = 2**63 - 1
_RECORD_NAMES = frozenset(
    {"topic", "partition", "offset", "timestamp", "headers"}
    | {"key", "key_base64", "value", "value_base64"}
)
_HEADER_NAMES = frozenset({"name", "value", "value_base64"})
_RECORD_HINT = (
    'a line is {"key": "k", "value": "v", "headers": [{"name": "n", "value": "v"}]}; to send each'
    " line as a value, add --whole"
)
Headers = list[tuple[str, bytes | None]]


def _check_json(data: bytes) -> bytes:
    json.loads(data)
    return data


_TO_BYTES: dict[str, Callable[[bytes], bytes]] = {
    "text": bytes,
    "json": _check_json,
    "hex": lambda data: bytes.fromhex(data.decode()),
    "base64": lambda data: b64decode(data, validate=True),
}


def to_bytes(data: bytes, encoding: str) -> bytes:
    """What was written, as the bytes it stands for; JSON is only checked to be JSON."""
    try:
        return _TO_BYTES[encoding](data)
    except (ValueError, Base64Error) as error:
        shown = data[:40].decode(errors="replace")
        message = f"'{shown}' is not {encoding}: {error}"
        raise CliError(message, "another encoding may fit") from None
    except RecursionError:
        raise CliError("the JSON is nested too deeply", "send it as text") from None


def from_bytes(data: bytes | None, encoding: str) -> bytes:
    """Bytes as they are printed; null prints as nothing, or as `null` in JSON."""
    if encoding == "hex":
        return (data or b"").hex().encode()
    if encoding == "base64":
        return b64encode(data or b"")
    if encoding == "json":
        return json.dumps(_readable(data), ensure_ascii=False).encode()
    return data or b""


def _readable(data: bytes | None) -> object:
    """JSON as it is, other text as a string, other bytes in base64."""
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return b64encode(data).decode()


def record_to_json(partition: TopicPartition, record: Record, *, parsed: bool = False) -> bytes:
    """A line of JSON; with `parsed` a value that is JSON is not a string but what it says."""
    entry: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(entry, "key", record.key)
    if parsed:
        entry["value"] = _readable(record.value)
    else:
        _put(entry, "value", record.value)
    if record.headers:
        entry["headers"] = [_header_to_json(name, value) for name, value in record.headers]
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _header_to_json(name: str, value: bytes | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name}
    _put(entry, "value", value)
    return entry


def _put(entry: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        entry[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        entry[f"{name}_base64"] = b64encode(data or b"").decode()


def record_from_json(line: bytes, topic: str) -> ProducerRecord:
    """A record from a line of JSON; it must say what its value is, and nothing that is not read."""
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict):
            raise ValueError("it is not an object")
        _check_names(entry, _RECORD_NAMES, "a record")
        if "value" not in entry and "value_base64" not in entry:
            raise ValueError("it has no 'value'; null is a value too")
        _check_headers(entry.get("headers"))
        return ProducerRecord(
            topic,
            field_bytes(entry, "value"),
            field_bytes(entry, "key"),
            field_integer(entry, "partition"),
            field_headers(entry),
            check_timestamp(field_integer(entry, "timestamp")),
        )
    except (ValueError, TypeError, KeyError, Base64Error) as error:
        raise CliError(f"'{_shown(line)}' is not a record: {error}", _RECORD_HINT) from None
    except RecursionError:
        reason = "it is nested too deeply"
        raise CliError(f"'{_shown(line)}' is not a record: {reason}", _RECORD_HINT) from None


def check_json(line: bytes) -> bytes:
    """A line that is JSON, as it is."""
    try:
        return _check_json(line)
    except (ValueError, RecursionError) as error:
        hint = "leave out -i json to send lines of any form"
        raise CliError(f"'{_shown(line)}' is not JSON: {error}", hint) from None


def check_timestamp(timestamp_ms: int | None) -> int | None:
    """A timestamp that a record can have; -1 stands for none. ValueError for others."""
    if timestamp_ms is not None and not -1 <= timestamp_ms <= _TIMESTAMP_MS_MAX:
        raise ValueError(f"the timestamp {timestamp_ms} is out of range")
    return timestamp_ms


def _check_headers(headers: object) -> None:
    if headers is None:
        return
    if not isinstance(headers, list) or not all(isinstance(each, dict) for each in headers):
        raise ValueError("'headers' is not a list of objects")
    for header in headers:
        _check_names(header, _HEADER_NAMES, "a header")
        if not isinstance(header.get("name"), str):
            raise ValueError("a header has no 'name'")
        if "value" not in header and "value_base64" not in header:
            raise ValueError(f"the header '{header['name']}' has no 'value'")


def _check_names(entry: dict[str, Any], names: frozenset[str], what: str) -> None:
    """ValueError where a name would be read over, or two names say the same thing."""
    for name in entry:
        if name not in names:
            raise ValueError(f"{what} has no '{name}'")
        if f"{name}_base64" in entry:
            raise ValueError(f"it has both '{name}' and '{name}_base64'")


def _shown(line: bytes) -> str:
    return line[:60].decode(errors="replace").rstrip()
