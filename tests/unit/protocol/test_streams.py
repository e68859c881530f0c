"""What the framing of a stream says: never less than it becomes, and cheap for any input."""

from __future__ import annotations

import random
import struct

import cramjam
import pyarrow as pa
import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec
from tidelog.protocol.compression import compress, decompress
from tidelog.protocol.streams import RATIO_MAX, STREAMS_MAX, bound

REAL_CODECS = [codec for codec in Codec if codec is not Codec.NONE]
SIZES = (0, 1, 100, 32 * 1024, 64 * 1024 + 1, 300_000)


def text(size: int) -> bytes:
    chance = random.Random(size)
    return b"".join(b"%d," % chance.randrange(10_000) for _ in range(size // 4 + 1))[:size]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", SIZES)
def test_a_stream_never_becomes_more_than_its_bound(codec: Codec, size: int) -> None:
    for data in (text(size), bytes(size)):
        packed = compress(codec, data)
        found = bound(codec, memoryview(packed), 1_000)
        assert size <= found.inflated_bytes <= len(packed) * RATIO_MAX[codec]
        assert found.whole is (codec is not Codec.GZIP)
    if codec is Codec.SNAPPY:
        assert bound(codec, memoryview(compress(codec, text(size))), 99).inflated_bytes == size


def test_streams_of_others_have_a_bound() -> None:
    data = text(200_000)
    for codec, packed in (
        (Codec.SNAPPY, pa.compress(data, codec="snappy", asbytes=True)),
        (Codec.LZ4, pa.compress(data, codec="lz4", asbytes=True)),
        (Codec.LZ4, bytes(cramjam.lz4.compress(data))),
        (Codec.ZSTD, pa.compress(data, codec="zstd", asbytes=True)),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(data))),
        (Codec.ZSTD, struct.pack("<II", 0x184D2A5F, 3) + b"abc" + compress(Codec.ZSTD, data)),
    ):
        found = bound(codec, memoryview(packed), 1_000)
        assert found.whole
        assert found.inflated_bytes >= len(data)
        assert decompress(codec, packed, len(data)) == data


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_only_so_many_blocks_are_looked_at(codec: Codec) -> None:
    packed = compress(codec, random.Random(1).randbytes(1_000_000))
    few, all_ = bound(codec, memoryview(packed), 3), bound(codec, memoryview(packed), 1_000)
    assert (few.whole, all_.whole) == (False, True)
    assert few.inflated_bytes == len(packed) * RATIO_MAX[codec]


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_more_streams_than_are_read_are_corrupt(codec: Codec) -> None:
    empty = compress(codec, b"")
    assert bound(codec, memoryview(empty * STREAMS_MAX), 1_000).whole
    with pytest.raises(KafkaError, match="more than 32 parts"):
        bound(codec, memoryview(empty * (STREAMS_MAX + 1)), 1_000)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_whatever_inflates_has_a_bound_and_the_rest_is_corrupt(codec: Codec) -> None:
    chance = random.Random(codec)
    packed = compress(codec, text(3_000))
    read = refused = 0
    for _ in range(4_000):
        mutated = bytearray(packed)
        for _ in range(chance.randrange(1, 4)):
            mutated[chance.randrange(min(len(mutated), 60))] = chance.randrange(256)
        del mutated[chance.choice((len(mutated), len(mutated), chance.randrange(len(mutated)))) :]
        try:
            most: int | None = bound(codec, memoryview(mutated), 64).inflated_bytes
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            most = None
            refused += 1
        try:
            inflated = decompress(codec, mutated, 1 << 20)
        except KafkaError:
            continue
        read += 1
        assert most is not None
        assert len(inflated) <= most
    assert refused > 200
    assert read > 0
