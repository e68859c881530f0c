"""The four codecs of record batches, each in the framing that Kafka's Java client reads and writes.

    gzip     RFC 1952, by zlib
    snappy   written in xerial's framing (16-byte header, blocks of 32 KiB, each with its length);
             read in that framing or as one raw block
    lz4      frames of independent 64 KiB blocks without content size: Java refuses linked blocks
    zstd     frames, read with a window of at most 128 MiB, which the highest level asks for

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
from tidelog.protocol.streams import (
    BLOCKS_MAX,
    STREAMS_MAX,
    XERIAL_HEADER,
    bound,
    corrupt,
    snappy_blocks,
)

Buffer = bytes | bytearray | memoryview

_LATER_STREAM_PIECE_BYTES: Final = 512
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_FAST: Final = 1
# What a stream declares is only reserved. The system gives pages as they are written, so a window
# takes no more memory than the output, which `max_bytes` bounds.
_ZSTD_WINDOW_LOG_MAX: Final = 27


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
                raise corrupt(codec, error) from None
            if len(part) > left:
                raise _too_large(max_bytes)
            if not piece and not inflater.eof:
                raise corrupt(codec, "it is cut off")
            left -= len(part)
            parts.append(part)
            start += len(piece)
            piece_bytes *= 2
        start -= len(inflater.unused_data)
        if start == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        piece_bytes = _LATER_STREAM_PIECE_BYTES
    raise corrupt(codec, f"it has more than {STREAMS_MAX} parts")


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    import cramjam

    view = memoryview(data)
    try:
        blocks, whole = snappy_blocks(view, BLOCKS_MAX)
        if not whole:
            raise corrupt(Codec.SNAPPY, f"it has more than {BLOCKS_MAX} blocks")
        total = sum(size for _, size in blocks)
        if total > max_bytes:
            raise _too_large(max_bytes)
        output = memoryview(bytearray(total))
        end = 0
        for block, size in blocks:
            cramjam.snappy.decompress_raw_into(block, output[end : end + size])
            end += size
    except (struct.error, IndexError):
        raise corrupt(Codec.SNAPPY, "it is cut off") from None
    except cramjam.DecompressionError as error:
        raise corrupt(Codec.SNAPPY, error) from None
    return bytes(output)


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
    found = bound(Codec.LZ4, view, BLOCKS_MAX)
    if not found.whole:
        raise corrupt(Codec.LZ4, f"it has more than {BLOCKS_MAX} blocks")
    output = bytearray(min(found.inflated_bytes, max_bytes))
    try:
        size = cramjam.lz4.decompress_into(view, output)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise _too_large(max_bytes) from None
        raise corrupt(Codec.LZ4, error) from None
    return bytes(memoryview(output)[:size])


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
