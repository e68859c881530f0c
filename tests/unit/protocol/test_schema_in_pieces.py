"""A message that is encoded or decoded in pieces is the message of one go."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import UUID

import pytest

from tidelog.errors import ProtocolError
from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.schema import (
    FieldSpec,
    decode,
    decode_in_pieces,
    encode,
    encode_in_pieces,
    schema_of,
)

ELEMENTS = 3
_VALUES = {
    "bool": True,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float64": 4.5,
    "uuid": UUID(int=5),
    "string": "six",
    "bytes": b"seven",
    "records": b"eight",
}


def populated(cls: type[Any], version: int) -> Any:
    """A message in which every field that the version carries has a value."""
    made = cls()
    for spec in schema_of(cls).fields:
        if spec.carried_by(version):
            value = one(spec, version)
            setattr(made, spec.name, [value] * ELEMENTS if spec.is_array else value)
    return made


def one(spec: FieldSpec, version: int) -> Any:
    return _VALUES[spec.wire_type] if spec.structure is None else populated(spec.structure, version)


def run(work: Generator[int, None, Any]) -> tuple[Any, int]:
    """What the work comes to, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_in_pieces_is_as_in_one_go_for_every_message_and_version(api: Api) -> None:
    for cls in (api.request, api.response):
        for version in range(api.served[0], api.served[1] + 1):
            message = populated(cls, version)
            body = encode(message, version)
            (parts, size), pauses = run(encode_in_pieces(message, version))
            assert b"".join(bytes(part) for part in parts) == body
            assert size == len(body)
            decoded, pauses_of_decoder = run(decode_in_pieces(cls, version, body))
            assert decoded == decode(cls, version, body)
            assert pauses_of_decoder == pauses


def test_there_is_a_pause_for_every_element_and_small_pieces_are_joined_on_the_way() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{n}") for n in range(5_000)])
    (parts, size), pauses = run(encode_in_pieces(request, 12))
    assert pauses == 5_000
    assert len(parts) > 1
    body = b"".join(parts)
    assert len(body) == size and body == encode(request, 12)
    (decoded, _), pauses = run(decode_in_pieces(MetadataRequest, 12, body))
    assert (decoded, pauses) == (request, 5_000)


def test_large_bytes_are_not_copied() -> None:
    small, large = b"s" * 100, b"l" * 100_000
    members = [
        JoinGroupResponseMember(f"m{n}", metadata=each) for n, each in enumerate((small, large))
    ]
    response = JoinGroupResponse(members=members)
    for version in (5, 9):
        (parts, size), _ = run(encode_in_pieces(response, version))
        assert b"".join(parts) == encode(response, version)
        assert size == sum(map(len, parts))
        assert any(part is large for part in parts)
        assert not any(part is small for part in parts)


def test_bytes_that_are_cut_off_are_refused_in_pieces_too() -> None:
    body = encode(MetadataRequest(topics=[MetadataRequestTopic(name="topic")] * 3), 12)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            run(decode_in_pieces(MetadataRequest, 12, body[:end]))
