"""Commands, answers and changes as bytes, for brokers that speak with their controller.

JSON by field name, so that versions can differ: a field that the reader does not know is passed
over, and one that the writer did not know has its default. What a field holds follows from its type
hint; a value of a union says which class it is of.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from tidelog.errors import ProtocolError

T = TypeVar("T")

_CLASS = "_"


def encode(value: object) -> bytes:
    """The bytes of a command, an answer, an update: of any value made of the classes here."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def decode(hint: Any, data: bytes | memoryview) -> Any:
    """The value of that type; ProtocolError where the bytes hold something else."""
    try:
        return _value(hint, json.loads(bytes(data)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ProtocolError(f"metadata that cannot be understood: {error!r}") from error


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    kind: Any = type(value)
    names = _fields(kind)
    if names is not None:
        plain = {_CLASS: kind.__name__}
        for name, (_, default) in names.items():
            held = getattr(value, name)
            if held != default:
                plain[name] = _plain(held)
        return plain
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(held)] for key, held in value.items()]
    if isinstance(value, Sequence | AbstractSet):
        return [_plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no place in a command or a change")


def _value(hint: Any, plain: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _of_union(get_args(hint), plain)
    if origin is not None and issubclass(origin, Mapping):
        of_key, of_value = get_args(hint)
        return {_value(of_key, key): _value(of_value, held) for key, held in plain}
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(get_args(hint), plain)
    if origin is frozenset:
        return frozenset(_value(get_args(hint)[0], each) for each in plain)
    if hint is UUID:
        return UUID(hex=plain)
    if hint is bytes:
        return base64.b64decode(plain, validate=True)
    if isinstance(hint, type):
        names = _fields(hint)
        if names is not None:
            return hint(
                **{
                    name: _value(of, plain[name])
                    for name, (of, default) in names.items()
                    if name in plain or default is _NONE
                }
            )
        if issubclass(hint, Enum):
            return hint(plain)
    if hint is float and type(plain) is int:
        return float(plain)
    if not isinstance(plain, hint) or (hint is int and isinstance(plain, bool)):
        raise TypeError(f"{plain!r} where {hint} belongs")
    return plain


def _sequence(hints: tuple[Any, ...], plain: Any) -> tuple[Any, ...]:
    """Any number of the same type, or, in a tuple of several types, one of each."""
    if len(hints) == 1 or hints[1] is ...:
        return tuple(_value(hints[0], each) for each in plain)
    return tuple(_value(hint, each) for hint, each in zip(hints, plain, strict=True))


def _of_union(members: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and type(None) in members:
        return None
    named = [each for each in members if each is not type(None)]
    if isinstance(plain, dict):
        for member in named:
            if member.__name__ == plain[_CLASS]:
                return _value(member, plain)
        raise TypeError(f"{plain[_CLASS]!r} is not one of {[each.__name__ for each in named]}")
    return _value(named[0], plain)


# The default of a field that must be given.
_NONE = object()


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, Any]] | None:
    """Type and default of each field of a named tuple or a dataclass; None for other classes."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {each.name: (hints[each.name], _default(each)) for each in dataclasses.fields(kind)}
    defaults = getattr(kind, "_field_defaults", None)
    if defaults is None:
        return None
    hints = get_type_hints(kind)
    return {name: (hints[name], defaults.get(name, _NONE)) for name in kind._fields}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NONE
