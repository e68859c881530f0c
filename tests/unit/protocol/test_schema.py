"""What the codec does with values, versions, nulls, tags and records."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from uuid import UUID

import pytest

from tidelog.errors import ErrorCode, ProtocolError
from tidelog.protocol.primitives import encode_uvarint, read_uvarint
from tidelog.protocol.schema import (
    array_of,
    boolean,
    byte_string,
    decode,
    encode,
    encode_parts,
    encode_sized,
    int8,
    int16,
    int32,
    int64,
    message,
    parse_versions,
    record_batches,
    string,
    struct_of,
    structure,
    uuid,
)


@structure
class Point:
    """A structure that grew a field."""

    x: int = int32()
    y: int = int32("1+", default=-1, ignorable=True)
    label: str | None = string("2+", nullable="2+", default=None)


@message(versions=(0, 3), flexible=2)
class Everything:
    """All wire types; versions 0 and 1 have the old encoding, 2 and 3 the compact one."""

    flag: bool = boolean()
    tiny: int = int8()
    small: int = int16()
    medium: int = int32()
    large: int = int64()
    identity: UUID = uuid()
    text: str = string()
    note: str | None = string(nullable="0+")
    blob: bytes = byte_string()
    maybe_blob: bytes | None = byte_string(nullable="0+", default=None)
    numbers: list[int] = array_of("int32")
    flags: list[bool] = array_of("bool")
    names: list[str] = array_of("string")
    blobs: list[bytes] = array_of("bytes")
    identities: list[UUID] = array_of("uuid")
    maybe_numbers: list[int] | None = array_of("int64", nullable="0+", default=None)
    origin: Point = struct_of(Point)
    target: Point | None = struct_of(Point, nullable="0+")
    points: list[Point] = array_of(Point)
    late: int = int32("3+")
    early: int = int32("0-1", default=5)
    hint: int = int32("3+", ignorable=True)
    nearest: Point | None = struct_of(Point, "2+", tag=0)
    comment: str = string("2+", tag=2, default="none")
    extras: list[int] = array_of("int32", "3+", tag=1)


@message(versions=(0, 2), flexible=2)
class Upload:
    """Records between other fields."""

    name: str = string()
    topics: list[str] | None = array_of("string", nullable="1+")
    data: object = record_batches(nullable="0+")
    checksum: int = int32()


class FileSlices:
    """Records that are not in memory."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


FULL = Everything(
    flag=True,
    tiny=-5,
    small=300,
    medium=-70_000,
    large=1 << 40,
    identity=UUID(int=77),
    text="grüße",
    note=None,
    blob=b"\0\1",
    maybe_blob=b"",
    numbers=list(range(20)),
    flags=[True, False],
    names=["", "a" * 200],
    blobs=[b"", b"x"],
    identities=[UUID(int=1), UUID(int=2)],
    maybe_numbers=[-1],
    origin=Point(x=1),
    target=Point(x=2),
    points=[Point(x=3), Point(x=4)],
)


@pytest.mark.parametrize("version", range(4))
def test_all_wire_types_come_back(version: int) -> None:
    sent = replace(FULL, early=6) if version < 2 else replace(FULL, comment="tagged")
    encoded = encode(sent, version)
    received, end = decode(Everything, version, encoded)
    assert received == sent
    assert end == len(encoded)


def test_the_old_encoding_has_wide_lengths_and_the_compact_one_varints_and_tags() -> None:
    upload = Upload(name="ab", topics=["c"], data=b"xyz", checksum=1)
    assert encode(upload, 1) == b"\0\2ab\0\0\0\1\0\1c\0\0\0\3xyz\0\0\0\1"
    assert encode(upload, 2) == b"\3ab\2\2c\4xyz\0\0\0\1\0"


def test_a_null_is_minus_one_or_a_compact_zero() -> None:
    upload = Upload(topics=None, data=None)
    assert encode(upload, 1) == b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"
    assert encode(upload, 2) == b"\1\0\0\0\0\0\0\0"
    assert decode(Upload, 2, encode(upload, 2))[0] == upload


def test_fields_that_a_version_lacks_take_their_defaults() -> None:
    received, _ = decode(Everything, 0, encode(Everything(early=9), 0))
    assert (received.early, received.late, received.comment) == (9, 0, "none")
    assert received.nearest is None
    assert received.extras == []
    received.extras.append(1)
    assert decode(Everything, 0, encode(Everything(), 0))[0].extras == []


def test_a_value_is_not_lost_in_a_version_that_lacks_its_field() -> None:
    with pytest.raises(ProtocolError, match=r"Everything\.late is set, and version 2"):
        encode(Everything(late=1), 2)
    with pytest.raises(ProtocolError, match=r"Everything\.early .* version 3"):
        encode(Everything(early=1), 3)
    with pytest.raises(ProtocolError, match=r"Everything\.nearest .* version 1"):
        encode(Everything(nearest=Point(x=1)), 1)
    with pytest.raises(ProtocolError, match=r"Everything\.extras .* version 2"):
        encode(Everything(extras=[1]), 2)
    with pytest.raises(ProtocolError, match=r"Point\.label .* version 1"):
        encode(Everything(points=[Point(label="x")]), 1)


def test_an_ignorable_field_may_be_lost() -> None:
    assert encode(Everything(hint=1), 2) == encode(Everything(), 2)
    assert encode(Everything(nearest=Point()), 1) == encode(Everything(), 1)


def test_a_null_is_refused_where_the_version_allows_none() -> None:
    with pytest.raises(ProtocolError, match=r"Upload\.topics cannot be null in version 0"):
        encode(Upload(topics=None), 0)
    with pytest.raises(ProtocolError, match=r"Upload\.topics"):
        decode(Upload, 0, b"\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0")
    with pytest.raises(ProtocolError, match=r"Upload\.name"):
        decode(Upload, 2, b"\0\1\0\0\0\0\0\0")


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\0\0\xff\xff\xff\xfe\0\0\0\0\0\0\0\0",
        b"\0\0\0\0\0\0\x80\0\0\0\0\0\0\0",
    ],
    ids=["string", "array", "records"],
)
def test_a_length_below_minus_one_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"length|elements"):
        decode(Upload, 1, body)


def test_a_string_is_as_long_as_the_old_encoding_can_say_and_no_longer() -> None:
    longest = encode_uvarint(32_767 + 1) + b"x" * 32_767 + b"\1\0\0\0\0\0\0"
    assert decode(Upload, 2, longest)[0].name == "x" * 32_767
    longer = encode_uvarint(32_768 + 1) + b"x" * 32_768 + b"\1\0\0\0\0\0\0"
    with pytest.raises(ProtocolError, match="32768 is no valid length"):
        decode(Upload, 2, longer)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Upload version 2"):
        decode(Upload, 2, b"\2\xff\1\0\0\0\0\0\0")
    with pytest.raises(ProtocolError, match="Upload version 2"):
        encode(Upload(name="\ud800"), 2)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProtocolError, match="Upload version 1"):
        encode(Upload(checksum=1 << 31), 1)
    with pytest.raises(ProtocolError, match="Upload version 1"):
        encode(Upload(name="n" * 40_000), 1)


def test_a_count_is_held_against_the_bytes_left() -> None:
    with pytest.raises(ProtocolError, match=r"Upload\.topics: 9 elements are too many"):
        decode(Upload, 1, b"\0\0\0\0\0\x09\0\0\0\0\0\0\0\0")


def test_all_arrays_together_have_a_limit() -> None:
    names = encode(Everything(names=["", ""], points=[Point(x=1)] * 3, numbers=[1, 2, 3, 4]), 2)
    assert decode(Everything, 2, names, elements_max=9)[0].names == ["", ""]
    with pytest.raises(ProtocolError, match=r"Everything\.points: 3 elements are too many"):
        decode(Everything, 2, names, elements_max=8)


def test_unknown_tagged_fields_count_against_the_limit() -> None:
    tags = b"\x03\x64\0\x65\0\x66\0"
    for cls, version in ((Everything, 3), (Upload, 2)):
        body = encode(cls(), version)[:-1] + tags
        assert decode(cls, version, body, elements_max=3)[0] == cls()
        with pytest.raises(ProtocolError, match="3 elements are too many"):
            decode(cls, version, body, elements_max=2)


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(ProtocolError, match="Upload has no version 3"):
        encode(Upload(), 3)
    with pytest.raises(ProtocolError, match="Upload has no version -1"):
        decode(Upload, -1, b"")


def test_bytes_behind_the_message_are_accepted() -> None:
    encoded = encode(Upload(name="a"), 2)
    received, end = decode(Upload, 2, encoded + b"more")
    assert (received, end) == (decode(Upload, 2, encoded)[0], len(encoded))


def test_an_error_code_encodes_as_its_number() -> None:
    received, _ = decode(Everything, 0, encode(Everything(small=ErrorCode.INVALID_CONFIG), 0))
    assert received.small == 40


class TestTaggedFields:
    def test_only_what_differs_from_the_default_is_written_in_the_order_of_tags(self) -> None:
        plain = encode(Everything(), 3)
        assert plain.endswith(b"\0")
        tagged = encode(Everything(comment="hi", extras=[7], nearest=Point(x=1, y=2)), 3)
        nearest = b"\0\x0a\0\0\0\1\0\0\0\2\0\0"
        extras = b"\1\5\2\0\0\0\7"
        comment = b"\2\3\3hi"
        assert tagged == plain[:-1] + b"\3" + nearest + extras + comment

    def test_a_structure_equal_to_its_default_is_not_written(self) -> None:
        assert encode(Everything(nearest=Point()), 3) == encode(Everything(), 3)

    def test_known_ones_are_read(self) -> None:
        sent = Everything(comment="hi", extras=[7], nearest=Point(x=1, label="l"))
        assert decode(Everything, 3, encode(sent, 3))[0] == sent

    def test_unknown_ones_are_skipped(self) -> None:
        plain = encode(Everything(), 3)
        many = b"".join(encode_uvarint(1000 + n) + b"\2ab" for n in range(200))
        received, end = decode(Everything, 3, plain[:-1] + encode_uvarint(200) + many)
        assert received == Everything()
        assert end == len(plain) + 1 + len(many)
        upload = encode(Upload(), 2)
        assert decode(Upload, 2, upload[:-1] + encode_uvarint(200) + many)[0] == Upload()

    @pytest.mark.parametrize("length", [0, 2, 4, 200])
    def test_a_known_one_must_be_as_long_as_it_says(self, length: int) -> None:
        plain = encode(Everything(), 3)
        field = b"\2" + encode_uvarint(length) + b"\3hi" + bytes(10)
        with pytest.raises(ProtocolError, match="tagged field"):
            decode(Everything, 3, plain[:-1] + b"\1" + field)

    def test_an_unknown_one_must_end_inside_the_message(self) -> None:
        with pytest.raises(ProtocolError):
            decode(Everything, 3, encode(Everything(), 3)[:-1] + b"\1\x09\x05abcd")
        with pytest.raises(ProtocolError):
            decode(Upload, 2, encode(Upload(), 2)[:-1] + b"\1\x09\x05abcd")

    def test_their_number_is_held_against_the_bytes_left(self) -> None:
        for cls, version in ((Everything, 3), (Upload, 2)):
            with pytest.raises(ProtocolError, match="too many"):
                decode(
                    cls, version, encode(cls(), version)[:-1] + b"\xff\xff\xff\xff\x0f" + b"\0" * 9
                )


class TestRecords:
    def test_they_are_a_view_of_the_buffer(self) -> None:
        frame = bytearray(encode(Upload(data=b"batch"), 1))
        received, _ = decode(Upload, 1, frame)
        assert isinstance(received.data, memoryview)
        received.data[0] = ord("B")
        assert b"Batch" in frame

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_they_leave_as_they_are(self, kind: type) -> None:
        data = kind(b"batch")
        first, second, third = encode_parts(Upload(name="a", data=data), 2)
        assert second is data
        assert (first, third) == (b"\2a\1\6", b"\0\0\0\0\0")

    def test_what_is_not_in_memory_counts_with_its_size(self) -> None:
        slices = FileSlices(1 << 20)
        upload = Upload(data=slices)
        parts, size = encode_sized(upload, 1)
        assert parts[1] is slices
        assert size == 2 + 4 + 4 + (1 << 20) + 4
        assert parts[0] == b"\0\0\0\0\0\0\0\x10\0\0"
        with pytest.raises(ProtocolError, match="not in memory"):
            encode(upload, 1)

    def test_empty_ones_are_no_part(self) -> None:
        assert len(encode_parts(Upload(data=b""), 2)) == 1
        assert decode(Upload, 2, encode(Upload(data=b""), 2))[0].data == b""


class TestUnsignedVarints:
    @pytest.mark.parametrize(
        ("value", "encoded"),
        [
            (0, b"\0"),
            (127, b"\x7f"),
            (128, b"\x80\x01"),
            (16_383, b"\xff\x7f"),
            (16_384, b"\x80\x80\x01"),
            (2_097_151, b"\xff\xff\x7f"),
            (2_097_152, b"\x80\x80\x80\x01"),
            (0xFFFF_FFFF, b"\xff\xff\xff\xff\x0f"),
        ],
    )
    def test_they_have_seven_bits_per_byte(self, value: int, encoded: bytes) -> None:
        assert encode_uvarint(value) == encoded
        assert read_uvarint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))

    def test_more_than_five_bytes_are_refused(self) -> None:
        assert read_uvarint(b"\x80\x80\x80\x80\x00", 0) == (0, 5)
        with pytest.raises(ProtocolError, match="longer than 5 bytes"):
            read_uvarint(b"\x80" * 100_000, 0)


@pytest.mark.parametrize(
    ("text", "expected"), [("3+", (3, 32767)), ("0-12", (0, 12)), ("4", (4, 4))]
)
def test_versions_are_written_as_kafka_writes_them(text: str, expected: tuple[int, int]) -> None:
    assert parse_versions(text) == expected


def test_messages_are_imported_on_first_use_only() -> None:
    program = (
        "import sys; from tidelog.protocol import framing; from tidelog.protocol.apis import api;"
        "loaded = lambda: [m for m in sys.modules if m.startswith('tidelog.protocol.messages.')];"
        "before = loaded(); api('Fetch').request;"
        "print(before, loaded())"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[] ['tidelog.protocol.messages.fetch']"
