"""The codecs: round trips, the framings of other clients, damage, and bombs."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pyarrow as pa
import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec
from tidelog.protocol import compression
from tidelog.protocol.compression import compress, decompress
from tidelog.protocol.streams import BLOCKS_MAX, RATIO_MAX, STREAMS_MAX

CODECS = list(Codec)
REAL_CODECS = [codec for codec in Codec if codec is not Codec.NONE]
SIZES = (0, 1, 100, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024 + 1, 300_000)
MIB = 1024 * 1024


def sample(size: int, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    words = [chance.randbytes(7) for _ in range(50)]
    return b"".join(chance.choice(words) for _ in range(size // 7 + 1))[:size]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_is_compressed_inflates_to_the_same(codec: Codec, size: int, kind: type) -> None:
    data = sample(size)
    packed = compress(codec, kind(data))
    assert type(packed) is bytes
    inflated = decompress(codec, kind(packed), size)
    assert type(inflated) is bytes
    assert inflated == data


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_more_than_allowed_is_too_large(codec: Codec) -> None:
    for size in SIZES[1:]:
        with pytest.raises(KafkaError) as caught:
            decompress(codec, compress(codec, sample(size)), size - 1)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_any_cut_is_corrupt_and_nothing_but_kafka_errors_leave(codec: Codec) -> None:
    data = sample(2_000)
    packed = compress(codec, data)
    for end in range(len(packed)):
        if codec is Codec.SNAPPY and end == 16:
            continue  # A xerial header alone is an empty stream.
        with pytest.raises(KafkaError) as caught:
            decompress(codec, packed[:end], 1 * MIB)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_mutated_streams_give_bytes_within_the_bound_or_a_kafka_error(codec: Codec) -> None:
    chance = random.Random(codec)
    data = sample(5_000)
    packed = compress(codec, data)
    refused = 0
    for _ in range(3_000):
        mutated = bytearray(packed)
        for _ in range(chance.randrange(1, 4)):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        try:
            assert len(decompress(codec, mutated, 6_000)) <= 6_000
        except KafkaError:
            refused += 1
    assert refused > 1_000


def test_snappy_is_written_as_java_writes_it_and_read_raw_as_well() -> None:
    data = sample(70_000)
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    position, sizes = 16, []
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        block = packed[position + 4 : position + 4 + length]
        sizes.append(len(cramjam.snappy.decompress_raw(block)))
        position += 4 + length
    assert sizes == [32 * 1024, 32 * 1024, 70_000 - 64 * 1024]
    raw = pa.compress(data, codec="snappy", asbytes=True)
    assert decompress(Codec.SNAPPY, raw, len(data)) == data


def test_lz4_frames_have_independent_blocks_of_64_kib_and_no_content_size() -> None:
    packed = compress(Codec.LZ4, sample(200_000))
    magic, flags, descriptor = struct.unpack_from("<IBB", packed)
    assert magic == 0x184D2204
    assert flags & 0b1110_0000 == 0b0110_0000, "version 1, independent blocks"
    assert flags & 0b0000_1001 == 0, "no content size, no dictionary"
    assert descriptor == 4 << 4


def test_lz4_is_fast_unless_a_level_is_asked_for() -> None:
    """The library's default level took seven times as long as the mode that Java's client has."""
    data = b"".join(b"key-%d value-%d" % (number % 97, number) for number in range(3000))
    assert compress(Codec.LZ4, data) == compress(Codec.LZ4, data, 1)
    assert len(compress(Codec.LZ4, data, 9)) < len(compress(Codec.LZ4, data))


def test_lz4_frames_of_others_are_read() -> None:
    data = sample(300_000)
    linked_with_checksums = bytes(cramjam.lz4.compress(data))
    assert decompress(Codec.LZ4, linked_with_checksums, len(data)) == data
    assert decompress(Codec.LZ4, pa.compress(data, codec="lz4", asbytes=True), len(data)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_streams_one_behind_the_other_are_one_stream(codec: Codec) -> None:
    first, second = sample(5_000, 1), sample(7_000, 2)
    joined = compress(codec, first) + compress(codec, second)
    assert decompress(codec, joined, 12_000) == first + second
    with pytest.raises(KafkaError) as caught:
        decompress(codec, joined, 11_999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


class Work:
    """Counts what the libraries of gzip and zstd are asked to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
        self.streams = self.calls = self.bytes_given = 0
        library = zlib if codec is Codec.GZIP else compression._zstd()
        name = "decompressobj" if codec is Codec.GZIP else "ZstdDecompressor"
        monkeypatch.setattr(library, name, self._opener(getattr(library, name)))

    def _opener(self, original: Callable[..., Any]) -> Callable[..., Any]:
        work = self

        class Counted:
            def __init__(self, **options: Any) -> None:
                work.streams += 1
                self._inner = original(**options)

            eof = property(lambda self: self._inner.eof)
            unused_data = property(lambda self: self._inner.unused_data)

            def decompress(self, data: memoryview, max_length: int) -> bytes:
                work.calls += 1
                work.bytes_given += len(data)
                return bytes(self._inner.decompress(data, max_length))

        return Counted


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("content", [b"", b"x", random.Random(3).randbytes(30_000)])
def test_the_work_of_inflating_grows_with_the_bytes_and_not_with_their_square(
    codec: Codec, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of empty members took twenty seconds: each looked at all that was behind it."""
    member = compress(codec, content)
    few, many = member * STREAMS_MAX, member * (MIB // len(member) + STREAMS_MAX)
    work = Work(monkeypatch, codec)
    assert decompress(codec, few, MIB) == content * STREAMS_MAX
    assert work.streams == STREAMS_MAX
    assert work.calls <= STREAMS_MAX * 8
    assert work.bytes_given <= 4 * len(few) + STREAMS_MAX * 512
    work = Work(monkeypatch, codec)
    with pytest.raises(KafkaError) as caught:
        decompress(codec, many, 64 * MIB)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert work.streams == STREAMS_MAX
    assert work.bytes_given <= 4 * len(many)


def test_more_frames_or_blocks_than_any_client_writes_are_corrupt_before_they_are_inflated() -> (
    None
):
    frame = compress(Codec.LZ4, b"")
    checked_block = struct.pack("<II", 0x8000_0000, 0x02CC5D05)
    xerial = compress(Codec.SNAPPY, b"")
    empty_block = struct.pack(">i", 1) + b"\0"
    assert decompress(Codec.LZ4, frame * STREAMS_MAX, MIB) == b""
    assert decompress(Codec.SNAPPY, xerial + empty_block * BLOCKS_MAX, MIB) == b""
    for codec, stream in (
        (Codec.LZ4, frame * (STREAMS_MAX + 1)),
        (Codec.LZ4, frame[:7] + checked_block * (BLOCKS_MAX + 1) + bytes(4)),
        (Codec.SNAPPY, xerial + empty_block * (BLOCKS_MAX + 1)),
    ):
        with pytest.raises(KafkaError, match="more than") as caught:
            decompress(codec, stream, MIB)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_snappy_block_that_declares_more_than_its_bytes_can_become_is_corrupt() -> None:
    declared = b"\xff\xff\xff\x1f"  # 64 MiB, as a varint
    with pytest.raises(KafkaError, match="cannot become") as caught:
        decompress(Codec.SNAPPY, declared + bytes(20), 128 * MIB)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_no_stream_grows_by_more_than_the_ratio_that_its_codec_allows(codec: Codec) -> None:
    packed = compress(codec, bytes(8 * MIB), {Codec.GZIP: 9, Codec.ZSTD: 19}.get(codec))
    assert 8 * MIB / len(packed) <= RATIO_MAX[codec]


def test_gzip_and_zstd_of_others_are_read_and_ours_by_others() -> None:
    data = sample(100_000)
    assert decompress(Codec.GZIP, gzip.compress(data), len(data)) == data
    assert zlib.decompress(compress(Codec.GZIP, data), wbits=31) == data
    assert decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(data)), len(data)) == data
    assert bytes(cramjam.zstd.decompress(compress(Codec.ZSTD, data))) == data
    assert bytes(cramjam.lz4.decompress(compress(Codec.LZ4, data))) == data


@pytest.mark.parametrize("level", [19, 20, 22])
def test_zstd_that_was_streamed_at_any_level_is_read(level: int) -> None:
    data = sample(100_000)
    compressor = compression._zstd().ZstdCompressor(level)
    packed = compressor.compress(data) + compressor.flush()
    assert decompress(Codec.ZSTD, packed, len(data)) == data


def test_a_zstd_window_above_128_mib_is_refused_before_memory_is_taken() -> None:
    frame_header = bytes([0x28, 0xB5, 0x2F, 0xFD, 0x00, (28 - 10) << 3])
    with pytest.raises(KafkaError) as caught:
        decompress(Codec.ZSTD, frame_header + b"\x03\x00\x00a", MIB)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


BOMB = """
import resource, sys
from tidelog.errors import KafkaError
from tidelog.model import Codec
from tidelog.protocol import compression
codec = Codec(int(sys.argv[1]))
compression.decompress(codec, compression.compress(codec, b"x" * 100_000), 100_000)
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    try:
        compression.decompress(codec, bomb, 1024 * 1024)
        print("inflated")
    except KafkaError as error:
        print(error.code.name)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_bomb_is_an_error_and_not_memory(codec: Codec) -> None:
    """64 MiB of zeros, offered to a reader that allows one: its peak memory grows by a few."""
    bomb = compress(codec, bytes(64 * MIB))
    run = subprocess.run(
        [sys.executable, "-c", BOMB, str(int(codec))], input=bomb, capture_output=True, check=True
    )
    *answers, growth = run.stdout.decode().split()
    assert answers == ["MESSAGE_TOO_LARGE"] * 3
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(growth) * unit < 8 * MIB


def test_the_libraries_are_imported_on_first_use_only() -> None:
    code = (
        "import sys, tidelog.protocol.compression as c, tidelog.protocol.batches\n"
        "assert not {'cramjam', 'backports.zstd', 'compression.zstd'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
