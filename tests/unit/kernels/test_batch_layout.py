"""A batch header's bytes are laid down once: what is said of them elsewhere must agree."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from tidelog._kernels import batch_rows
from tidelog.protocol import batches
from tidelog.protocol.batches import BatchHeader

PXD = Path(str(batch_rows.__file__)).with_suffix(".pxd")
# The compiled form has a reason of its own to differ.
OWN = {"TABLE_BYTES_MAX"}


def test_the_compiled_kernels_know_the_layout_that_python_knows() -> None:
    said = {
        name: int(number, 0)
        for name, number in re.findall(r"^ {4}(\w+) = (\w+)$", PXD.read_text(), re.MULTILINE)
    }
    assert len(said) >= 18
    assert said.keys() >= OWN
    for name in said.keys() - OWN:
        assert said[name] == getattr(batch_rows, name), name


def test_rows_and_headers_have_the_fields_of_the_struct_in_its_order() -> None:
    numbers = tuple(range(1, batch_rows.HEADER_FIELDS + 1))
    packed = batch_rows.HEADER.pack(*numbers)
    assert len(packed) == batch_rows.HEADER_BYTES == batches.HEADER_BYTES
    assert batch_rows.read(packed, 0) == numbers
    header = BatchHeader(*numbers)
    names = [field.name for field in fields(header)]
    for name in ("base_offset", "batch_length", "leader_epoch", "magic", "crc", "attributes"):
        assert names.index(name) == getattr(batch_rows, name.upper())
    for name in ("last_offset_delta", "max_timestamp", "producer_id", "record_count"):
        assert names.index(name) == getattr(batch_rows, name.upper())
    written = bytearray(batches.HEADER_BYTES)
    batches.write_header(written, 0, header)
    assert written == packed


def test_positions_are_those_of_the_struct() -> None:
    assert batches.MAGIC_POSITION == 16
    assert batches.CRC_POSITION == 17
    assert batches.CHECKED_POSITION == batch_rows.CHECKED_POSITION == 21
    assert batches.LOG_OVERHEAD == 12
