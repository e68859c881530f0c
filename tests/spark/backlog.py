"""A long backlog of 1 KB records, written fast, of which every record's checksum is known.

Each partition is given one block of random values again and again, encoded by the vectorised
writer. A record's checksum is that of its value and its offset, so records of equal values tell
apart, and one that is missing cannot hide behind one that is double.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from tests.spark.topics import create
from tidelog.arrow.writer import ArrowWriter, WriterSettings

VALUE_BYTES = 1 << 10
BLOCK_ROWS = 4_096
PIPELINE = """\
pipeline: backlog
connect: {{bootstrap.servers: "{servers}"}}
checkpoint: ./state
sources:
  backlog: {{topic: {topic}}}
steps:
  checked:
    sql: |
      SELECT partition, offset, crc32(concat(value, CAST(string(offset) AS binary))) AS checksum
      FROM backlog
targets:
  checked: {{from: checked, table: {{delta: ./lake}}}}
"""


@dataclass
class Backlog:
    """A topic with so many blocks in each partition, and a pipeline that checks its records."""

    directory: Path
    servers: str
    blocks: int
    partitions: int = 4
    topic: str = "backlog"
    seed: int = 20_260_101

    def __post_init__(self) -> None:
        self.rows = self.blocks * BLOCK_ROWS * self.partitions
        self.file = self.directory / "backlog.yaml"
        self.file.write_text(PIPELINE.format(servers=self.servers, topic=self.topic))
        draw = random.Random(self.seed)
        self._values = [
            [draw.randbytes(VALUE_BYTES) for _ in range(BLOCK_ROWS)] for _ in range(self.partitions)
        ]

    def write(self) -> None:
        """All of it, acknowledged."""
        create(self.servers, self.topic, self.partitions)
        blocks = [
            pa.record_batch(
                {
                    "value": pa.array(values, pa.binary()),
                    "partition": pa.array([number] * BLOCK_ROWS, pa.int32()),
                }
            )
            for number, values in enumerate(self._values)
        ]
        with ArrowWriter(WriterSettings(self.servers, self.topic)) as writer:
            for _ in range(self.blocks):
                for block in blocks:
                    writer.write(block)
            assert sum(writer.finish().values()) == self.rows

    def expected(self) -> dict[int, tuple[int, int]]:
        """By partition: how many records there are, and the sum of their checksums."""
        count = self.blocks * BLOCK_ROWS
        sums = {}
        for number, values in enumerate(self._values):
            checksums = [zlib.crc32(value) for value in values]
            total = sum(
                zlib.crc32(b"%d" % offset, checksums[offset % BLOCK_ROWS])
                for offset in range(count)
            )
            sums[number] = (count, total)
        return sums

    def found(self) -> dict[int, tuple[int, int]]:
        """The same of what Spark has put into the table; no offset is there twice."""
        table = DeltaTable(str(self.directory / "lake")).to_pyarrow_table()
        assert table.num_rows == self.rows
        by_partition = table.group_by("partition").aggregate(
            [("offset", "count_distinct"), ("checksum", "sum")]
        )
        return {
            row["partition"]: (row["offset_count_distinct"], row["checksum_sum"])
            for row in by_partition.to_pylist()
        }
