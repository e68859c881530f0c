"""The four codecs of record batches, each in the framing that Kafka's Java client reads and writes.

    gzip     RFC 1952, by zlib
    snappy   written in xerial's framing (16-byte header, blocks of 32 KiB, each with its length);
             read in that framing or as one raw block
    lz4      frames of independent 64 KiB blocks without content size: Java refuses linked blocks
    zstd     frames, read with a window of at most 8 MiB

Inflating is always bounded. Output beyond `max_bytes` is MESSAGE_TOO_LARGE, found before the memory
is spent. Bytes that are not a valid stream are CORRUPT_MESSAGE, and so are more than `STREAMS_MAX`
streams (gzip members; lz4 and zstd frames) or more than `BLOCKS_MAX` blocks (snappy and lz4): an
empty one costs a few bytes to send and far more to read. The work grows with the bytes in and out,
whatever they are. The libraries behind snappy, lz4 and zstd are imported on first use. Dictionaries
and the broken lz4 checksum of message format v0 are left out.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Final, Protocol

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec

Buffer = bytes | bytearray | memoryview

# Clients write one stream per batch; a new zstd stream costs 13 microseconds to read.
STREAMS_MAX: Final = 32
# 512 MiB in the blocks of 32 KiB that xerial's framing has.
BLOCKS_MAX: Final = 16 * 1024
_LATER_STREAM_PIECE_BYTES: Final = 512

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK_BYTES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_LZ4_FAST: Final = 1

_ZSTD_WINDOW_LOG_MAX: Final = 23

# How many bytes one byte of a stream can become at most. Deflate: two bits repeat 258 bytes.
# Snappy: three bytes copy 64. LZ4: a byte adds 255 to a length. Zstandard: four bytes are a block
# of 128 KiB.
RATIO_MAX: Final = {
    Codec.NONE: 1, Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255, Codec.ZSTD: 32 * 1024,
}  # fmt: skip


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch; None is the codec's own level, snappy has but one."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Inflate the records of a batch into at most `max_bytes`."""
    return _DECOMPRESSORS[codec](data, max_bytes)


def _too_large(max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"The records inflate to more than {max_bytes} bytes"
    )


def _corrupt(codec: Codec, reason: object) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"The {codec.name.lower()} stream of the batch is bad: {reason}"
    )


def _copy(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _copy_bounded(data: Buffer, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, wbits=31)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    return _inflate_streams(
        Codec.GZIP, memoryview(data), max_bytes, lambda: zlib.decompressobj(wbits=31), zlib.error
    )


class _Inflater(Protocol):
    """One gzip member or zstd frame on its way out."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: memoryview, max_length: int, /) -> bytes: ...


def _inflate_streams(
    codec: Codec,
    view: memoryview,
    max_bytes: int,
    open_stream: Callable[[], _Inflater],
    fault: type[Exception],
) -> bytes:
    """Inflate streams that lie one behind the other."""
    parts: list[bytes] = []
    left = max_bytes
    start = 0
    # Nearly always the first stream is the only one. Later ones are given bytes in pieces that
    # double: what is given to a stream beyond its end is copied, and must not add up.
    piece_bytes = len(view)
    for _ in range(STREAMS_MAX):
        inflater = open_stream()
        while not inflater.eof:
            piece = view[start : start + piece_bytes]
            try:
                part = inflater.decompress(piece, left + 1)
            except fault as error:
                raise _corrupt(codec, error) from None
            if len(part) > left:
                raise _too_large(max_bytes)
            if not piece and not inflater.eof:
                raise _corrupt(codec, "it is cut off")
            left -= len(part)
            parts.append(part)
            start += len(piece)
            piece_bytes *= 2
        start -= len(inflater.unused_data)
        if start == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        piece_bytes = _LATER_STREAM_PIECE_BYTES
    raise _corrupt(codec, f"it has more than {STREAMS_MAX} parts")


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    import cramjam

    view = memoryview(data)
    try:
        blocks = _snappy_blocks(view, cramjam.snappy.decompress_raw_len)
        total = sum(size for _, size in blocks)
        if total > len(view) * RATIO_MAX[Codec.SNAPPY]:
            raise _corrupt(Codec.SNAPPY, f"{len(view)} bytes cannot become {total}")
        if total > max_bytes:
            raise _too_large(max_bytes)
        output = memoryview(bytearray(total))
        end = 0
        for block, size in blocks:
            cramjam.snappy.decompress_raw_into(block, output[end : end + size])
            end += size
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from None
    return bytes(output)


def _snappy_blocks(
    view: memoryview, declared_size: Callable[[memoryview], int]
) -> list[tuple[memoryview, int]]:
    """The raw blocks of a stream, each with the size that it declares."""
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return [(view, declared_size(view))]
    blocks: list[tuple[memoryview, int]] = []
    position = len(_XERIAL_HEADER)
    while position != len(view):
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if length > len(view) - position:
            raise _corrupt(Codec.SNAPPY, "it is cut off")
        if len(blocks) == BLOCKS_MAX:
            raise _corrupt(Codec.SNAPPY, f"it has more than {BLOCKS_MAX} blocks")
        block = view[position : position + length]
        blocks.append((block, declared_size(block)))
        position += length
    return blocks


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    from cramjam import lz4

    # The library's own default is a thorough mode, seven times slower than Java's default.
    level = _LZ4_FAST if level is None else level
    compressor = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _decompress_lz4(data: Buffer, max_bytes: int) -> bytes:
    import cramjam

    view = memoryview(data)
    try:
        output = bytearray(min(_lz4_output_bytes_max(view), max_bytes))
        size = cramjam.lz4.decompress_into(view, output)
    except struct.error:
        raise _corrupt(Codec.LZ4, "it is cut off") from None
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise _too_large(max_bytes) from None
        raise _corrupt(Codec.LZ4, error) from None
    return bytes(memoryview(output)[:size])


def _lz4_output_bytes_max(view: memoryview) -> int:
    """What the blocks could inflate to, from their headers alone; `struct.error` if cut off."""
    total = 0
    position = 0
    blocks = 0
    for _ in range(STREAMS_MAX):
        magic, flags, descriptor = struct.unpack_from("<IBB", view, position)
        block_bytes_max = _LZ4_BLOCK_BYTES.get(descriptor >> 4)
        if magic != _LZ4_MAGIC or block_bytes_max is None:
            raise _corrupt(Codec.LZ4, "it has no frame header")
        # Content size and dictionary id are optional; a checksum byte ends the header.
        position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while True:
            (word,) = struct.unpack_from("<I", view, position)
            position += 4
            if word == 0:
                break
            blocks += 1
            if blocks > BLOCKS_MAX:
                raise _corrupt(Codec.LZ4, f"it has more than {BLOCKS_MAX} blocks")
            length = word & 0x7FFFFFFF
            stored = word >> 31
            total += length if stored else min(block_bytes_max, length * RATIO_MAX[Codec.LZ4])
            position += length + (4 if flags & 0x10 else 0)
        position += 4 if flags & 0x04 else 0
        if position >= len(view):
            return total
    raise _corrupt(Codec.LZ4, f"it has more than {STREAMS_MAX} parts")


def _zstd() -> ModuleType:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    result: bytes = _zstd().compress(data, level)
    return result


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    zstd = _zstd()
    options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
    return _inflate_streams(
        Codec.ZSTD,
        memoryview(data),
        max_bytes,
        lambda: zstd.ZstdDecompressor(options=options),
        zstd.ZstdError,
    )


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _copy_bounded,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
