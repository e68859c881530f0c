"""Templates: how a record is printed (`consume -f`) and how a line is read (`produce -f`).

    %t topic   %p partition   %o offset   %T timestamp   %k key   %v or %s value   %h headers
    %K key length   %V or %S value length   %% a percent sign   \\n \\t \\0 \\xHH \\\\ as in C

A field may name an encoding: %v{hex}, %k{base64}, %v{json}, and %T{iso}. Reading, only %k %v %s %p
%T %h mean something; each takes what stands before the text that follows it, the last one the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.cli.faults import EXIT_USAGE, CliError
from tidelog.cli.values import check_timestamp, from_bytes, to_bytes
from tidelog.client.batching import ProducerRecord
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record

_TOKEN = re.compile(
    r"%(?P<field>[a-zA-Z%])(?:\{(?P<encoding>[a-z0-9]+)\})?|\\x(?P<hex>[0-9a-fA-F]{2})"
    r"|\\(?P<escape>.)|(?P<text>[^%\\]+|%|\\)",
    re.DOTALL,
)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_BYTES_FIELDS = frozenset("kvs")
_PRINTED = frozenset("tpoTkvshKVS")
_READ = frozenset("kvspTh")
_HINT = (
    "fields are %t %p %o %T %k %v %h %K %V, with %v{hex}, {base64}, {json}; %% is a percent sign"
)


@dataclass(slots=True, frozen=True)
class Field:
    """One % of a template."""

    name: str
    encoding: str


Piece = bytes | Field


def parse(template: str) -> list[Piece]:
    """The template's literal text and fields, in order."""
    pieces: list[Piece] = []
    for match in _TOKEN.finditer(template):
        piece = _piece(match, template)
        if pieces and isinstance(piece, bytes) and isinstance(pieces[-1], bytes):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return pieces


def _piece(match: re.Match[str], template: str) -> Piece:
    field = match["field"]
    if field == "%":
        return b"%"
    if field:
        return _field(field, match["encoding"] or "", template)
    if match["hex"]:
        return bytes.fromhex(match["hex"])
    if match["escape"]:
        escape = match["escape"]
        return _ESCAPES.get(escape) or ("\\" + escape).encode()
    if match["text"] == "%":
        raise CliError(f"a lone % in '{template}'", _HINT, EXIT_USAGE)
    return str(match["text"]).encode()


def _field(name: str, encoding: str, template: str) -> Field:
    allowed: tuple[str, ...] = ("text", "json", "hex", "base64") if name in _BYTES_FIELDS else ()
    if name == "T":
        allowed = ("iso",)
    if name not in _PRINTED or (encoding and encoding not in allowed):
        shown = f"%{name}{{{encoding}}}" if encoding else f"%{name}"
        raise CliError(f"{shown} in '{template}' means nothing", _HINT, EXIT_USAGE)
    return Field(name, encoding or "text")


def printer(template: str) -> Callable[[TopicPartition, Record], bytes]:
    """A function that prints a record as the template says."""
    pieces = parse(template)

    def render(partition: TopicPartition, record: Record) -> bytes:
        return b"".join(
            piece if isinstance(piece, bytes) else _render(piece, partition, record)
            for piece in pieces
        )

    return render


def _render(field: Field, partition: TopicPartition, record: Record) -> bytes:
    match field.name:
        case "t":
            return partition.topic.encode()
        case "p":
            return str(partition.partition).encode()
        case "o":
            return str(record.offset).encode()
        case "T":
            return _timestamp(record.timestamp, field.encoding).encode()
        case "k":
            return from_bytes(record.key, field.encoding)
        case "K":
            return str(-1 if record.key is None else len(record.key)).encode()
        case "V" | "S":
            return str(-1 if record.value is None else len(record.value)).encode()
        case "h":
            return b",".join(_header(name, value) for name, value in record.headers)
        case _:
            return from_bytes(record.value, field.encoding)


def _header(name: str, value: bytes | None) -> bytes:
    return name.encode() if value is None else name.encode() + b"=" + value


def _timestamp(timestamp_ms: int, encoding: str) -> str:
    if encoding != "iso":
        return str(timestamp_ms)
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def reader(template: str, topic: str) -> Callable[[bytes], ProducerRecord]:
    """A function that reads a line as the template says."""
    pieces = parse(template.removesuffix("\\n").removesuffix("\n"))
    fields = [piece for piece in pieces if isinstance(piece, Field)]
    _check_readable(fields, template)
    pattern = b"".join(
        re.escape(piece) if isinstance(piece, bytes) else b"(.*?)" if left else b"(.*)"
        for left, piece in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True)
    )
    expression = re.compile(pattern, re.DOTALL)

    def read(line: bytes) -> ProducerRecord:
        match = expression.fullmatch(line)
        if match is None:
            shown = line[:60].decode(errors="replace")
            raise CliError(f"'{shown}' does not fit the template '{template}'", _HINT)
        record = ProducerRecord(topic, None)
        for field, text in zip(fields, match.groups(), strict=True):
            _assign(record, field, text)
        return record

    return read


def _check_readable(fields: list[Field], template: str) -> None:
    """CliError for a template that would drop a part of the line, or send no value."""
    names = ["v" if field.name == "s" else field.name for field in fields]
    for name in names:
        if name not in _READ:
            raise CliError(f"%{name} cannot be read from a line", _HINT, EXIT_USAGE)
        if names.count(name) > 1:
            raise CliError(f"'{template}' reads %{name} twice", "each field once", EXIT_USAGE)
    if "v" not in names:
        hint = 'add %v; to send null values, use -i json with "value": null'
        raise CliError(f"'{template}' reads no value", hint, EXIT_USAGE)


def _assign(record: ProducerRecord, field: Field, text: bytes) -> None:
    if field.name == "k":
        record.key = to_bytes(text, field.encoding)
    elif field.name in "pT":
        number = _number(text)
        if field.name == "p":
            record.partition = number
        else:
            record.timestamp_ms = number
    elif field.name == "h":
        record.headers = [parse_header(entry) for entry in _text(text).split(",") if entry]
    else:
        record.value = to_bytes(text, field.encoding)


def _number(text: bytes) -> int:
    try:
        if not text.isdigit():
            raise ValueError
        return check_timestamp(int(text)) or 0
    except ValueError:
        shown = text[:40].decode(errors="replace")
        raise CliError(f"'{shown}' is not a number that fits", _HINT) from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        shown = data[:40].decode(errors="replace")
        raise CliError(f"the headers '{shown}' are not UTF-8", "send them with -H") from None


def parse_header(text: str) -> tuple[str, bytes | None]:
    """NAME=VALUE, or NAME alone for a header that is null."""
    name, equals, value = text.partition("=")
    if not name:
        raise CliError(f"'{text}' is not a header", "-H NAME=VALUE", EXIT_USAGE)
    return name, value.encode() if equals else None
