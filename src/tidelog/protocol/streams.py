"""What the framing of a compressed stream says of it, without inflating it.

    gzip     10-byte header: magic 1f 8b, method 8, flags with three bits that are 0; 8-byte trailer
    snappy   a varint with the inflated size, then tags; xerial puts such blocks behind 16 bytes,
             each behind its length in 4 bytes
    lz4      frames: magic, flags, descriptor, options, checksum; blocks behind their length in 4
             bytes, of which the top bit says that the block is stored; a length of 0 ends a frame
    zstd     frames: magic, descriptor, window, dictionary id, content size; blocks behind 3 bytes
             with last, kind and size; also frames that readers skip

`bound` walks at most a given number of blocks, in Python, so it is cheap for any input. It finds
garbage, a wrong codec and a stream that is cut off (CORRUPT_MESSAGE), and how much a stream can
become at most. It does not find a whole framing around bad content: only inflating does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec

# Clients write one stream per batch; a new zstd stream costs 13 microseconds to read.
STREAMS_MAX: Final = 32
# 512 MiB in the blocks of 32 KiB that xerial's framing has.
BLOCKS_MAX: Final = 16 * 1024

# How many bytes one byte of a stream can become at most. Deflate: two bits repeat 258 bytes.
# Snappy: three bytes copy 64. LZ4: a byte adds 255 to a length. Zstandard: four bytes are a block
# of 128 KiB.
RATIO_MAX: Final = {
    Codec.NONE: 1, Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255, Codec.ZSTD: 32 * 1024,
}  # fmt: skip

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)

_GZIP_BYTES_MIN: Final = 18
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK_BYTES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPED_MAGIC: Final = 0x184D2A50
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)


@dataclass(slots=True)
class Bound:
    """How much a stream can become at most, and whether all of its blocks were looked at."""

    inflated_bytes: int
    whole: bool


def corrupt(codec: Codec, reason: object) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"The {codec.name.lower()} stream of the batch is bad: {reason}"
    )


def bound(codec: Codec, view: memoryview, blocks_max: int) -> Bound:
    """Walk the framing of a stream; CORRUPT_MESSAGE where it is broken."""
    largest = len(view) * RATIO_MAX[codec]
    try:
        found = _WALKS[codec](view, blocks_max)
    except (struct.error, IndexError):
        raise corrupt(codec, "it is cut off") from None
    if not found.whole or found.inflated_bytes > largest:
        found.inflated_bytes = largest
    return found


def _plain(view: memoryview, blocks_max: int) -> Bound:
    return Bound(len(view), whole=True)


def _gzip(view: memoryview, blocks_max: int) -> Bound:
    if view[0] != 0x1F or view[1] != 0x8B or view[2] != 8 or view[3] & 0xE0:
        raise corrupt(Codec.GZIP, "it has no gzip header")
    if len(view) < _GZIP_BYTES_MIN:
        raise corrupt(Codec.GZIP, "it is cut off")
    # Where a member ends, only inflating tells.
    return Bound(0, whole=False)


def snappy_blocks(view: memoryview, blocks_max: int) -> tuple[list[tuple[memoryview, int]], bool]:
    """The raw blocks of a stream, each with the size that it declares; False where more follow."""
    if bytes(view[:8]) != XERIAL_MAGIC:
        return [(view, _snappy_size(view))], True
    blocks: list[tuple[memoryview, int]] = []
    position = len(XERIAL_HEADER)
    while position != len(view):
        if len(blocks) == blocks_max:
            return blocks, False
        (length,) = struct.unpack_from(">I", view, position)
        position += 4
        if length > len(view) - position:
            raise corrupt(Codec.SNAPPY, "it is cut off")
        block = view[position : position + length]
        blocks.append((block, _snappy_size(block)))
        position += length
    return blocks, True


def _snappy_size(block: memoryview) -> int:
    size = 0
    for place in range(5):
        byte = block[place]
        size |= (byte & 127) << (7 * place)
        if byte < 128:
            break
    else:
        raise corrupt(Codec.SNAPPY, "a block has no size")
    if size > len(block) * RATIO_MAX[Codec.SNAPPY]:
        raise corrupt(Codec.SNAPPY, f"{len(block)} bytes cannot become {size}")
    return size


def _snappy(view: memoryview, blocks_max: int) -> Bound:
    blocks, whole = snappy_blocks(view, blocks_max)
    for block, size in blocks:
        # No magic marks a raw block, but encoders promise to lengthen nothing by more than this.
        if len(block) > 32 + size + size // 6:
            raise corrupt(Codec.SNAPPY, f"{len(block)} bytes are too many for {size}")
    return Bound(sum(size for _, size in blocks), whole)


def _lz4(view: memoryview, blocks_max: int) -> Bound:
    total = position = blocks = 0
    for _ in range(STREAMS_MAX):
        magic, flags, descriptor = struct.unpack_from("<IBB", view, position)
        block_bytes_max = _LZ4_BLOCK_BYTES.get(descriptor >> 4)
        if magic != _LZ4_MAGIC or block_bytes_max is None:
            raise corrupt(Codec.LZ4, "it has no frame header")
        # Content size and dictionary id are optional; a checksum byte ends the header.
        position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while True:
            (word,) = struct.unpack_from("<I", view, position)
            position += 4
            if word == 0:
                break
            if blocks == blocks_max:
                return Bound(total, whole=False)
            blocks += 1
            length = word & 0x7FFFFFFF
            stored = word >> 31
            total += length if stored else min(block_bytes_max, length * RATIO_MAX[Codec.LZ4])
            position += length + (4 if flags & 0x10 else 0)
        position += 4 if flags & 0x04 else 0
        if position >= len(view):
            return _ending(Codec.LZ4, total, position, view)
    raise corrupt(Codec.LZ4, f"it has more than {STREAMS_MAX} parts")


def _zstd(view: memoryview, blocks_max: int) -> Bound:
    total = position = blocks = 0
    for _ in range(STREAMS_MAX):
        (magic,) = struct.unpack_from("<I", view, position)
        if magic & ~15 == _ZSTD_SKIPPED_MAGIC:
            (length,) = struct.unpack_from("<I", view, position + 4)
            position += 8 + length
        elif magic != _ZSTD_MAGIC:
            raise corrupt(Codec.ZSTD, "it has no frame header")
        else:
            flags = view[position + 4]
            position += _zstd_header_bytes(flags)
            last = 0
            while not last:
                if blocks == blocks_max:
                    return Bound(total, whole=False)
                blocks += 1
                low, high = struct.unpack_from("<HB", view, position)
                word = low | high << 16
                last, kind, size = word & 1, word >> 1 & 3, word >> 3
                if kind == 3 or size > _ZSTD_BLOCK_BYTES:
                    raise corrupt(Codec.ZSTD, "a block is of an unknown kind")
                position += 3 + (1 if kind == 1 else size)
                total += _ZSTD_BLOCK_BYTES if kind == 2 else size
            position += 4 if flags & 0x04 else 0
        if position >= len(view):
            return _ending(Codec.ZSTD, total, position, view)
    raise corrupt(Codec.ZSTD, f"it has more than {STREAMS_MAX} parts")


def _zstd_header_bytes(flags: int) -> int:
    if flags & 0x08:
        raise corrupt(Codec.ZSTD, "its frame header is of an unknown kind")
    single_segment = flags >> 5 & 1
    content_size_bytes = _ZSTD_CONTENT_SIZE_BYTES[flags >> 6] or single_segment
    return 5 + (1 - single_segment) + _ZSTD_DICTIONARY_BYTES[flags & 3] + content_size_bytes


def _ending(codec: Codec, total: int, position: int, view: memoryview) -> Bound:
    if position > len(view):
        raise corrupt(codec, "it is cut off")
    return Bound(total, whole=True)


_WALKS: Final[dict[Codec, Callable[[memoryview, int], Bound]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
