"""``python -m bench.recovery``: how fast a log is recovered after a stop that was not clean.

Each row makes a log of one segment, says that nothing of it is known to be on disk, and opens it
as a start after a kill does. The file is in the page cache and its sync costs nothing, so the
figures are those of the walk. To compare two versions run this file with each one's sources:

    PYTHONPATH=/other/checkout/src:. python -m bench.recovery
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog._kernels import COMPILED
from tidelog.config.topic_config import TopicConfig
from tidelog.host.clock import SystemClock
from tidelog.host.disk import SystemDisk
from tidelog.host.random import SystemRandom
from tidelog.model import NO_TOPIC_ID, TopicPartition
from tidelog.protocol import batches
from tidelog.protocol.batches import BatchHeader, Record
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.recovery import Opening, load


@dataclass(frozen=True, slots=True)
class Row:
    """A log of batches of one size, written in turn by so many idempotent producers."""

    title: str
    batch_bytes: int
    producers: int = 0


ROWS = (
    Row("200-byte batches", 200),
    Row("200-byte batches, 1 idempotent producer", 200, 1),
    Row("200-byte batches, 100 idempotent producers", 200, 100),
    Row("200-byte batches, 10,000 idempotent producers", 200, 10_000),
    Row("1 KB batches", 1000),
    Row("1 KB batches, 10 idempotent producers", 1000, 10),
    Row("64 KB batches", 65_536),
)


def write_log(path: Path, row: Row, size_bytes: int) -> int:
    """Fill a segment; how many batches it holds."""
    value = os.urandom(row.batch_bytes)
    batch = batches.encode_batch([Record(timestamp=1_700_000_000_000, value=value)])
    excess = len(batch) - row.batch_bytes
    batch = batches.encode_batch([Record(timestamp=1_700_000_000_000, value=value[:-excess])])
    header: BatchHeader = batches.read_header(batch)
    header.leader_epoch = 3
    count = max(size_bytes // len(batch), 1)
    with path.open("wb", buffering=1 << 20) as file:
        for number in range(count):
            header.base_offset = number
            header.max_timestamp = header.first_timestamp + number // 10
            if row.producers:
                header.producer_id = number % row.producers
                header.producer_epoch = 0
                header.base_sequence = number // row.producers
            batches.seal(batch, 0, header)
            file.write(batch)
    return count


def recover(directory: Path, batch_count: int) -> tuple[float, float]:
    """Wall-clock and processor seconds of one recovery."""
    disk, clock = _DiskWithoutSyncs(), SystemClock()
    files = FileCache(disk, 64)
    context = LogContext(disk, clock, files, SystemRandom(), _ignore, _ignore)
    new = NewLog(NO_TOPIC_ID, TopicConfig())
    partition, expected = TopicPartition("recovered", 0), Expectation(str(directory))
    opening = Opening(partition, new, context, expected, clean=False)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    opened = load(opening)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    assert opened.segments[-1].next_offset == batch_count
    assert not opened.repairs.truncated_bytes
    for segment in opened.segments:
        segment.close()
    return wall_s, cpu_s


def _ignore(*_: object) -> None:
    """What a log asks of its surroundings, which recovery does not."""


class _DiskWithoutSyncs(SystemDisk):
    def fdatasync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="size of each log")
    parser.add_argument("--rounds", type=int, default=3, help="recoveries of each log")
    options = parser.parse_args(arguments)
    print(
        f"kernels {'compiled' if COMPILED else 'not compiled'}, median of {options.rounds} rounds"
    )
    print(f"{'':<46}{'MB/s':>10}{'CPU s/GB':>10}")
    for row in ROWS:
        with tempfile.TemporaryDirectory(prefix="tidelog-recovery-") as name:
            log = Path(name) / f"{0:020d}.log"
            count = write_log(log, row, options.megabytes * 1_000_000)
            gigabytes = log.stat().st_size / 1e9
            times = [recover(Path(name), count) for _ in range(options.rounds)]
        wall_s, cpu_s = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{row.title:<46}{gigabytes * 1e3 / wall_s:>10.0f}{cpu_s / gigabytes:>10.2f}")


if __name__ == "__main__":
    main()
