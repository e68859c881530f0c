"""What the generated codecs stand on: varints, identifiers, small packers and the shapes of parts.

Unsigned varints carry seven bits per byte, least significant first, and span at most five bytes.
Every function that reads raises `ProtocolError`, or `IndexError` where the buffer ends too early,
which `schema.decode` and `framing` turn into `ProtocolError`.

Left out: the zigzag varints of records, which belong to the record batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from struct import Struct, pack
from typing import Any, Final, NoReturn, Protocol, TypeAlias
from uuid import UUID

from tidelog.errors import ProtocolError

UVARINT_BYTES_MAX: Final = 5
SMALL_ARRAY_MAX: Final = 8
# Kafka's, in every version: what the old encoding's length can say.
STRING_BYTES_MAX: Final = 32_767
_UUID_CACHE_ENTRIES: Final = 1024

Buffer: TypeAlias = bytes | bytearray | memoryview


class SizedPart(Protocol):
    """Records that lie elsewhere, such as slices of files; sent by whoever owns the socket."""

    @property
    def size_bytes(self) -> int: ...


Part: TypeAlias = bytes | bytearray | memoryview | SizedPart

Packer: TypeAlias = Callable[..., bytes]
Unpacker: TypeAlias = Callable[[Buffer, int], tuple[Any, ...]]

# Wire type -> (struct code, bytes). A uuid is read as raw bytes and converted afterwards.
FIXED_WIDTH: Final[dict[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}


# Values of one byte each, indexed by value: cheaper than packing them.
ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


_IN_MEMORY: Final = frozenset((bytes, bytearray, memoryview))
_pack_two = Struct("BB").pack
_pack_three = Struct("BBB").pack


def part_size(part: Any) -> int:
    """The bytes that a `Part` will put on the wire; memory views have to be views of bytes."""
    # A look into a set costs half of what isinstance does, and every response pays it.
    size: int = len(part) if type(part) in _IN_MEMORY else part.size_bytes
    return size


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read one unsigned varint; returns it and the position behind it."""
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    # Two and three bytes, the lengths of most batches, are worth a way without a loop.
    byte = buffer[position + 1]
    value = value & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, position + 2
    byte = buffer[position + 2]
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, position + 3
    for index in range(3, UVARINT_BYTES_MAX):
        byte = buffer[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ProtocolError(f"a varint at byte {position} is longer than {UVARINT_BYTES_MAX} bytes")


def encode_uvarint(value: int) -> bytes:
    """One unsigned varint, in its shortest form."""
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return _pack_two(value & 0x7F | 0x80, value >> 7)
    if value < 0x20_0000:
        return _pack_three(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: Buffer, position: int, count: int, left: int) -> tuple[int, int]:
    """Skip tagged fields that nobody knows; `count` is the first byte of their number.

    `position` lies behind that byte and `left` is how many elements the message may still have;
    returns the position behind the last field and what is left then.
    """
    size = len(buffer)
    if count > 0x7F:
        count, position = read_uvarint(buffer, position - 1)
    left -= count
    if left < 0 or count * 2 > size - position:
        refuse_count("tagged fields", count)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        position += length
        if position > size:
            raise ProtocolError(f"a tagged field of {length} bytes ends behind the message")
    return position, left


@lru_cache(maxsize=_UUID_CACHE_ENTRIES)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of sixteen bytes; cached, since the same few topic ids arrive over and over."""
    return UUID(bytes=raw)


@cache
def packer(codes: str) -> Packer:
    """Packs big-endian values of these struct codes."""
    return Struct(">" + codes).pack


@cache
def unpacker(codes: str) -> Unpacker:
    """Reads big-endian values of these struct codes."""
    return Struct(">" + codes).unpack_from


@cache
def small_packers(prefix: str, code: str) -> tuple[Packer, ...]:
    """Packers for `prefix` followed by 0 to SMALL_ARRAY_MAX values of one code."""
    return tuple(packer(f"{prefix}{n}{code}") for n in range(SMALL_ARRAY_MAX + 1))


@cache
def small_unpackers(code: str) -> tuple[Unpacker, ...]:
    """Readers of 0 to SMALL_ARRAY_MAX values of one code."""
    return tuple(unpacker(f"{n}{code}") for n in range(SMALL_ARRAY_MAX + 1))


def pack_array(code: str, values: list[Any]) -> bytes:
    """Any number of fixed-width values, without their count."""
    return pack(f">{len(values)}{code}", *values)


def refuse_count(name: str, count: int) -> NoReturn:
    """Raise for a count that is negative, above the limit or too large for the bytes left."""
    raise ProtocolError(f"{name}: {count} elements are too many or too few")


def refuse_length(name: str, length: int) -> NoReturn:
    """Raise for a length that is negative, or too much for its kind."""
    raise ProtocolError(f"{name}: {length} is no valid length")


def refuse_null(name: str, version: int) -> NoReturn:
    """Raise for a null, read or about to be written, where the version allows none."""
    raise ProtocolError(f"{name} cannot be null in version {version}")


def refuse_tag_size(name: str, expected: int, actual: int) -> NoReturn:
    """Raise for a known tagged field whose content is not as long as it says."""
    raise ProtocolError(f"{name}: a tagged field of {expected} bytes holds {actual}")


def refuse_field(name: str, version: int) -> NoReturn:
    """Raise for a value that would be lost, since the version lacks its field."""
    raise ProtocolError(f"{name} is set, and version {version} cannot carry it")
