"""Random messages of every API and version, from a seeded `random.Random` for speed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from tidelog.protocol.apis import APIS
from tidelog.protocol.schema import FieldSpec, schema_of

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LARGEST_ERROR_CODE = 120
TEXTS = ("", "a", "orders", "größe-température", "消息.日志", "n" * 126, "n" * 127, "n" * 300)
COUNTS = (0, 1, 1, 1, 2, 2, 3)
PRIMITIVE_COUNTS = (0, 1, 2, 3, 8, 9, 127, 200)


def message_versions() -> Iterator[tuple[type[Any], int]]:
    """Every message class with every version that it declares."""
    for api in APIS:
        for cls in (api.request, api.response):
            first, last = schema_of(cls).versions
            for version in range(first, last + 1):
                yield cls, version


def random_message(cls: type[Any], version: int, rng: Random) -> Any:
    """An instance whose fields have random values where the version carries them."""
    made = cls()
    for spec in schema_of(cls).fields:
        if spec.carried_by(version):
            setattr(made, spec.name, random_field(spec, version, rng))
    return made


def random_field(spec: FieldSpec, version: int, rng: Random) -> Any:
    if spec.tag is not None and rng.random() < 0.4:
        return [] if isinstance(spec.default, list) else spec.default
    if spec.nullable_in(version) and rng.random() < 0.25:
        return None
    if not spec.is_array:
        return _random_value(spec, version, rng)
    count = rng.choice(COUNTS if spec.structure else PRIMITIVE_COUNTS)
    return [_random_value(spec, version, rng) for _ in range(count)]


def _random_value(spec: FieldSpec, version: int, rng: Random) -> Any:
    if spec.structure is not None:
        made = random_message(spec.structure, version, rng)
        if spec.tag is not None and not spec.is_array and made == spec.structure():
            return None
        return made
    if spec.wire_type == "bool":
        return rng.random() < 0.5
    if spec.wire_type == "float64":
        return rng.choice((0.0, -1.5, 1e300, float(rng.getrandbits(60))))
    if spec.wire_type == "uuid":
        return UUID(int=rng.choice((0, 1, rng.getrandbits(128))))
    if spec.wire_type == "string":
        return rng.choice(TEXTS)
    if spec.wire_type in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 1000, 20_000)))
    return _random_integer(spec, rng)


def _random_integer(spec: FieldSpec, rng: Random) -> int:
    if spec.name.endswith("error_code"):
        return rng.randint(0, LARGEST_ERROR_CODE)
    if spec.name == "transaction_start_time_ms":
        return rng.getrandbits(41)
    if spec.name == "log_append_time_ms":
        return rng.choice((-1, rng.getrandbits(41)))
    bits = BITS[spec.wire_type]
    largest = (1 << bits - 1) - 1
    return rng.choice((0, 1, -1, largest, -largest - 1, rng.getrandbits(bits) - largest - 1))
