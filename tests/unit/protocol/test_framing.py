"""Headers and length prefixes around message bodies."""

from __future__ import annotations

from struct import pack

import pytest

from tidelog.errors import ProtocolError
from tidelog.protocol.apis import API_BY_KEY, APIS, Api, api
from tidelog.protocol.framing import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.primitives import Part, part_size
from tidelog.protocol.schema import decode


class FileSlices:
    size_bytes = 1 << 20


def frame_of(parts: list[Part]) -> bytes:
    """The bytes behind the length prefix, which has to be right."""
    joined = b"".join(parts)  # type: ignore[arg-type]
    assert int.from_bytes(joined[:4], "big") == len(joined) - 4
    return joined[4:]


@pytest.mark.parametrize("each", APIS, ids=[each.name for each in APIS])
def test_a_request_of_any_served_version_comes_back(each: Api) -> None:
    for version in range(each.served[0], each.served[1] + 1):
        frame = frame_of(encode_request(each, version, 42, "client", each.request()))
        header, position = decode_request_header(frame)
        assert header == RequestHeader(each.key, version, 42, "client")
        assert decode(each.request, version, frame, position) == (each.request(), len(frame))


@pytest.mark.parametrize("each", APIS, ids=[each.name for each in APIS])
def test_a_response_of_any_served_version_comes_back(each: Api) -> None:
    for version in range(each.served[0], each.served[1] + 1):
        frame = frame_of(encode_response(each, version, -7, each.response()))
        assert decode_response(each, version, frame) == (-7, each.response())


def test_the_client_id_is_an_old_nullable_string_in_every_version() -> None:
    request = MetadataRequest(topics=[])
    old = frame_of(encode_request(api("Metadata"), 1, 9, "me", request))
    assert old == pack(">hhih", 3, 1, 9, 2) + b"me" + b"\0\0\0\0"
    flexible = frame_of(encode_request(api("Metadata"), 12, 9, "me", request))
    assert flexible.startswith(pack(">hhih", 3, 12, 9, 2) + b"me" + b"\0" + b"\1")
    nameless = frame_of(encode_request(api("Metadata"), 12, 9, None, request))
    assert nameless.startswith(pack(">hhih", 3, 12, 9, -1) + b"\0" + b"\1")
    assert decode_request_header(nameless)[0].client_id is None
    empty = frame_of(encode_request(api("Metadata"), 12, 9, "", request))
    assert decode_request_header(empty)[0].client_id == ""


def test_only_flexible_response_headers_have_tags() -> None:
    response = MetadataResponse()
    assert frame_of(encode_response(api("Metadata"), 8, 5, response)).startswith(
        pack(">iii", 5, 0, 0)
    )
    assert frame_of(encode_response(api("Metadata"), 9, 5, response)).startswith(pack(">ixi", 5, 0))


@pytest.mark.parametrize("version", range(5))
def test_the_response_header_of_api_versions_never_has_tags(version: int) -> None:
    response = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 4)])
    frame = frame_of(encode_response(api("ApiVersions"), version, 5, response))
    assert frame[:6] == pack(">ih", 5, 35)
    assert decode_response(api("ApiVersions"), version, frame) == (5, response)


def test_the_request_header_of_api_versions_has_tags_when_it_is_flexible() -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    frame = frame_of(encode_request(api("ApiVersions"), 3, 1, "c", request))
    assert frame == pack(">hhih", 18, 3, 1, 1) + b"c" + b"\0" + b"\2x\0021\0"


@pytest.mark.parametrize(("key", "version"), [(18, 5), (18, 99), (3, 14), (12345, 0), (0, -1)])
def test_the_header_of_an_unknown_version_or_api_is_read_as_far_as_it_can_be(
    key: int, version: int
) -> None:
    frame = pack(">hhih", key, version, 31, 3) + b"abc" + b"\xff\xff\xff"
    assert decode_request_header(frame) == (RequestHeader(key, version, 31, "abc"), 13)


def test_a_header_may_lie_inside_a_buffer() -> None:
    frame = b"\xff" * 5 + pack(">hhih", 3, 9, 31, 1) + b"a" + b"\0"
    assert decode_request_header(memoryview(frame), 5) == (RequestHeader(3, 9, 31, "a"), 17)


def test_unknown_tags_of_headers_are_skipped() -> None:
    frame = pack(">hhih", 3, 9, 31, 1) + b"a" + b"\1\7\2xy"
    assert decode_request_header(frame)[1] == len(frame)
    body = frame_of(encode_response(api("Metadata"), 9, 5, MetadataResponse()))[5:]
    tagged = pack(">i", 5) + b"\1\7\2xy" + body
    assert decode_response(api("Metadata"), 9, tagged) == (5, MetadataResponse())


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        pack(">hhi", 3, 1, 9),
        pack(">hhih", 3, 1, 9, 2) + b"a",
        pack(">hhih", 3, 1, 9, -2),
        pack(">hhih", 3, 1, 9, 1) + b"\xff",
        pack(">hhih", 3, 9, 9, 1) + b"a",
        pack(">hhih", 3, 9, 9, 1) + b"a" + b"\1\0\x09",
        pack(">hhih", 3, 9, 9, 1) + b"a" + b"\xff" * 30,
    ],
    ids=[
        "empty",
        "short",
        "cut client id",
        "length -2",
        "not utf-8",
        "no tags",
        "cut tag",
        "varint",
    ],
)
def test_a_bad_request_header_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(frame)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\5", b"\0\0\0\5\1\0\x09"])
def test_a_bad_response_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_response(api("Metadata"), 9, frame)


def test_a_number_that_does_not_fit_into_a_header_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Metadata request header"):
        encode_request(api("Metadata"), 1, 1 << 31, "c", MetadataRequest())
    with pytest.raises(ProtocolError, match="Metadata response header"):
        encode_response(api("Metadata"), 1, 1 << 31, MetadataResponse())


def test_records_in_files_count_in_the_length_prefix() -> None:
    slices = FileSlices()
    partition = PartitionData(partition_index=1, records=slices)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    for version in (4, 12):
        parts = encode_response(api("Fetch"), version, 8, response)
        assert parts[1] is slices
        assert isinstance(parts[0], bytes)
        assert int.from_bytes(parts[0][:4], "big") == sum(map(part_size, parts)) - 4


def test_apis_are_found_by_name_and_by_key() -> None:
    assert api("Produce") is api(0) is API_BY_KEY[0]
    assert api("Produce").advertised == (0, 13)
    assert api("Produce").served == (3, 13)
    assert len(API_BY_KEY) == len(APIS)
    for each in APIS:
        assert each.advertised[0] <= each.served[0] <= each.advertised[1] <= each.served[1]
    with pytest.raises(KeyError):
        api("Vote")
