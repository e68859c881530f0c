"""A record batch's header as a row of numbers: the one place that knows its bytes.

The header's thirteen fields stand in a row of int64 values in their order on disk, which is also
the order of `BatchHeader`; behind them stands where the batch begins. `protocol/batches` describes
the fields. `batch_rows.pxd` says the same in C, for the kernels that are compiled.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, TypeAlias

from tidelog._kernels.buffers import Buffer, Int64Buffer

Fields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

HEADER: Final = Struct(">qiibIhiqqqhii")
_ROW: Final = Struct("14q")
HEADER_BYTES: Final = 61
# The bytes that the length of a batch does not count: its base offset and the length itself.
LOG_OVERHEAD: Final = 12
CHECKED_POSITION: Final = 21
MAGIC_VALUE: Final = 2
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 1
LEADER_EPOCH: Final = 2
MAGIC: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
RECORD_COUNT: Final = 12
HEADER_FIELDS: Final = 13
POSITION: Final = 13
ROW_FIELDS: Final = 14

# Called from C, the checksum function costs more than a table does for so many bytes. Called from
# Python it is always the faster one.
TABLE_BYTES_MAX: Final = 0


def read(data: Buffer, place: int) -> Fields:
    """The fields of the header that begins at `place` and is there as a whole."""
    return HEADER.unpack_from(data, place)


def put(rows: Int64Buffer, at: int, fields: Fields, position: int) -> None:
    """Write a row that begins at `at`."""
    _ROW.pack_into(rows, 8 * at, *fields, position)


def copy(rows: Int64Buffer, source: int, target: int) -> None:
    """Copy a whole row to where another one was."""
    rows[target : target + ROW_FIELDS] = array("q", rows[source : source + ROW_FIELDS])
