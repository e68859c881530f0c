"""Messages declared once, encoded and decoded for any of their versions.

A message is a slotted dataclass. Each field names its wire type and the versions that carry it::

    @message(versions=(3, 13), flexible=9)
    class ProduceRequest:
        transactional_id: str | None = string(nullable="3+", default=None)
        acks: int = int16()
        topic_data: list[TopicProduceData] = array_of(TopicProduceData)

`decode` and `encode` work through one flat function per class and version, generated as Python
source on first use (`schema_decode`, `schema_encode`): neighbouring fixed-width fields, lengths
and counts are read and written by one struct call.

Promises:

- bytes that are not a valid message raise `ProtocolError`, nothing else; no count is believed
  before it has been held against the bytes that are left and against a limit for the whole
  message, and no varint spans over five bytes;
- unknown tagged fields are skipped, known ones must be as long as they say;
- bytes behind the message are accepted, fields that a version lacks take their default;
- a value that differs from its default is not dropped silently: encoding it into a version that
  lacks its field raises `ProtocolError`, unless the field is declared `ignorable`;
- `records` are never copied: views of the given buffer in, parts of a list out;
- `decode_in_pieces` and `encode_in_pieces` do the same work as generators that pause after every
  element of an array, so that a large message need not be the only thing that happens.

Conventions: a structure in a tagged field is None while it is not sent. Versions are written as
Kafka writes them, "3+", "0-12" or "4".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    dataclass_transform,
    overload,
)
from uuid import UUID

from tidelog.errors import ProtocolError
from tidelog.protocol.primitives import Buffer, Part

T = TypeVar("T")

Decoder: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any], Any]

# An element is as small as two bytes on the wire and takes some hundred bytes and some hundred
# nanoseconds here: without a limit one large frame of empty elements would stop the broker.
ELEMENTS_MAX: Final = 100_000
VERSION_MAX: Final = 32767
NEVER_FLEXIBLE: Final = VERSION_MAX
_ZERO_UUID: Final = UUID(int=0)

Primitive = Literal["bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes"]


class Options(TypedDict, total=False):
    """What any field may say besides its type, versions and default."""

    nullable: str
    tag: int
    ignorable: bool


class FieldSpec(NamedTuple):
    """How one field travels. `wire_type` is a primitive, "records" or "struct"."""

    name: str
    wire_type: str
    versions: tuple[int, int]
    default: Any
    is_array: bool = False
    structure: type[Any] | None = None
    nullable: tuple[int, int] | None = None
    tag: int | None = None
    ignorable: bool = False

    def carried_by(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


class Schema(NamedTuple):
    """What `message` and `structure` learned from a class; nested ones have no versions."""

    cls: type[Any]
    fields: tuple[FieldSpec, ...]
    versions: tuple[int, int] = (0, VERSION_MAX)
    flexible: int = NEVER_FLEXIBLE

    @property
    def name(self) -> str:
        return self.cls.__name__


_schemas: dict[type[Any], Schema] = {}
_decoders: dict[tuple[type[Any], int], Decoder] = {}
_encoders: dict[tuple[type[Any], int], Encoder] = {}
_piecewise_decoders: dict[tuple[type[Any], int], Callable[..., Any]] = {}
_piecewise_encoders: dict[tuple[type[Any], int], Callable[..., Any]] = {}


def schema_of(cls: type[Any]) -> Schema:
    """The declaration behind a message or structure class."""
    return _schemas[cls]


@dataclass_transform()
def message(
    *, versions: tuple[int, int], flexible: int = NEVER_FLEXIBLE
) -> Callable[[type[T]], type[T]]:
    """Declare a whole message: its valid versions and the first one with the compact encoding."""

    def declare(cls: type[T]) -> type[T]:
        made = dataclass(slots=True)(cls)
        _schemas[made] = Schema(made, _field_specs(made), versions, flexible)
        return made

    return declare


@dataclass_transform()
def structure(cls: type[T]) -> type[T]:
    """Declare a structure that lies inside messages; it follows their versions."""
    made = dataclass(slots=True)(cls)
    _schemas[made] = Schema(made, _field_specs(made))
    return made


def _field_specs(cls: type[Any]) -> tuple[FieldSpec, ...]:
    specs = []
    for each in fields(cls):
        values = each.metadata["wire"]
        specs.append(FieldSpec(name=each.name, **values))
    return tuple(specs)


def parse_versions(text: str) -> tuple[int, int]:
    """Read "3+", "0-12" or "4"."""
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _declare(wire_type: str, versions: str, default: Any, options: Options, **more: Any) -> Any:
    nullable = options.get("nullable")
    wire = {
        "wire_type": wire_type,
        "versions": parse_versions(versions),
        "default": default,
        "nullable": None if nullable is None else parse_versions(nullable),
        "tag": options.get("tag"),
        "ignorable": options.get("ignorable", False),
        **more,
    }
    if isinstance(default, list):
        return field(default_factory=list, metadata={"wire": wire})
    if wire_type == "struct" and default is not None:
        return field(default_factory=default, metadata={"wire": wire})
    return field(default=default, metadata={"wire": wire})


def boolean(versions: str = "0+", *, default: bool = False, **options: Unpack[Options]) -> bool:
    made: bool = _declare("bool", versions, default, options)
    return made


def _integer(
    wire_type: str, versions: str = "0+", *, default: int = 0, **options: Unpack[Options]
) -> int:
    made: int = _declare(wire_type, versions, default, options)
    return made


int8 = partial(_integer, "int8")
int16 = partial(_integer, "int16")
int32 = partial(_integer, "int32")
int64 = partial(_integer, "int64")


def float64(versions: str = "0+", **options: Unpack[Options]) -> float:
    """A number with a fraction."""
    made: float = _declare("float64", versions, 0.0, options)
    return made


def uuid(versions: str = "0+", **options: Unpack[Options]) -> UUID:
    """A UUID whose default is the zero one."""
    made: UUID = _declare("uuid", versions, _ZERO_UUID, options)
    return made


def string(versions: str = "0+", *, default: str | None = "", **options: Unpack[Options]) -> str:
    """Text; for a nullable field annotate `str | None`."""
    made: str = _declare("string", versions, default, options)
    return made


def byte_string(
    versions: str = "0+", *, default: bytes | None = b"", **options: Unpack[Options]
) -> bytes:
    """Bytes that are copied out of the buffer."""
    made: bytes = _declare("bytes", versions, default, options)
    return made


def record_batches(versions: str = "0+", **options: Unpack[Options]) -> Any:
    """Record batches: a view of the buffer when decoded, a part of its own when encoded."""
    return _declare("records", versions, None, options)


@overload
def array_of(
    element: type[T], versions: str = ..., *, default: None = ..., **options: Unpack[Options]
) -> list[T]: ...
@overload
def array_of(
    element: Primitive, versions: str = ..., *, default: None = ..., **options: Unpack[Options]
) -> list[Any]: ...
def array_of(
    element: type[Any] | Primitive,
    versions: str = "0+",
    *,
    default: Any = (),
    **options: Unpack[Options],
) -> list[Any]:
    """An array of structures or primitives; empty by default, or null with `default=None`."""
    wire_type = element if isinstance(element, str) else "struct"
    made: list[Any] = _declare(
        wire_type,
        versions,
        None if default is None else [],
        options,
        is_array=True,
        structure=None if isinstance(element, str) else element,
    )
    return made


def struct_of(element: type[T], versions: str = "0+", **options: Unpack[Options]) -> T:
    """One structure. Tagged or nullable it is None by default: annotate `Structure | None`."""
    assert not ("tag" in options and "nullable" in options), "no message needs both"
    default = None if "tag" in options or "nullable" in options else element
    made: T = _declare("struct", versions, default, options, structure=element)
    return made


def decode(
    cls: type[T],
    version: int,
    buffer: Buffer,
    offset: int = 0,
    elements_max: int = ELEMENTS_MAX,
) -> tuple[T, int]:
    """Read a message body; returns it and the position behind it.

    A body whose arrays have more than `elements_max` elements in all is refused.
    """
    try:
        decoder = _decoders[cls, version]
    except KeyError:
        decoder = _compile_decoder(cls, version)
    try:
        return decoder(buffer, offset, elements_max)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"{cls.__name__} version {version}: {error}") from error


def decode_in_pieces(
    cls: type[T], version: int, buffer: Buffer, offset: int = 0
) -> Generator[int, None, tuple[T, int]]:
    """As `decode`, with a pause after every element of an array; yields the position so far."""
    decoder = _piecewise_decoders.get((cls, version))
    if decoder is None:
        from tidelog.protocol.schema_decode import compile_decoder

        decoder = compile_decoder(_checked(cls, version), version, in_pieces=True)
        _piecewise_decoders[cls, version] = decoder
    try:
        decoded = yield from decoder(buffer, offset, ELEMENTS_MAX)
        return cast("tuple[T, int]", decoded)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"{cls.__name__} version {version}: {error}") from error


def encode_in_pieces(message: object, version: int) -> Generator[int, None, tuple[list[Part], int]]:
    """As `encode_sized`, with a pause after every element of an array; yields the bytes so far."""
    cls = type(message)
    encoder = _piecewise_encoders.get((cls, version))
    if encoder is None:
        from tidelog.protocol.schema_encode import compile_encoder

        encoder = compile_encoder(_checked(cls, version), version, in_pieces=True)
        _piecewise_encoders[cls, version] = encoder
    try:
        encoded = yield from encoder(message)
        return cast("tuple[list[Part], int]", encoded)
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"{cls.__name__} version {version}: {error}") from error


def encode_parts(message: object, version: int) -> list[Part]:
    """Write a message body; records stand in the list as they are, between the other bytes."""
    return encode_sized(message, version)[0]


def encode_sized(message: object, version: int) -> tuple[list[Part], int]:
    """As `encode_parts`, with the bytes of all parts together."""
    cls = type(message)
    try:
        encoder = _encoders[cls, version]
    except KeyError:
        encoder = _compile_encoder(cls, version)
    try:
        encoded: tuple[list[Part], int] = encoder(message)
        return encoded
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"{cls.__name__} version {version}: {error}") from error


def encode(message: object, version: int) -> bytes:
    """Write a message body into one buffer, copying its records."""
    parts, _ = encode_sized(message, version)
    if len(parts) == 1 and type(parts[0]) is bytes:
        return parts[0]
    held = [part for part in parts if isinstance(part, (bytes, bytearray, memoryview))]
    if len(held) != len(parts):
        raise ProtocolError(f"{type(message).__name__} holds records that are not in memory")
    return b"".join(held)


def warm(cls: type[Any], version: int) -> None:
    """Generate both functions of a message version now, rather than on its first use."""
    if (cls, version) not in _decoders:
        _compile_decoder(cls, version)
    if (cls, version) not in _encoders:
        _compile_encoder(cls, version)


def _compile_decoder(cls: type[Any], version: int) -> Decoder:
    from tidelog.protocol.schema_decode import compile_decoder

    decoder = compile_decoder(_checked(cls, version), version)
    _decoders[cls, version] = decoder
    return decoder


def _compile_encoder(cls: type[Any], version: int) -> Encoder:
    from tidelog.protocol.schema_encode import compile_encoder

    encoder = compile_encoder(_checked(cls, version), version)
    _encoders[cls, version] = encoder
    return encoder


def _checked(cls: type[Any], version: int) -> Schema:
    schema = _schemas[cls]
    if not schema.versions[0] <= version <= schema.versions[1]:
        raise ProtocolError(f"{schema.name} has no version {version}")
    return schema
