"""What every replica tells over the wire, and what stands on its disk."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tests.chaos.brokers import Brokers
from tests.e2e.produce_requests import fetch, values_in
from tests.e2e.raw_client import RawClient
from tests.history.events import HistoryWriter, LogRead, Record

# Consumers may read from followers since then (KIP-392).
_FETCH_VERSION = 12
_WAIT_S = 60.0


def read_replicas(
    brokers: Brokers,
    replicas: Iterable[int],
    acknowledged: Iterable[tuple[str, int]],
    writer: HistoryWriter,
) -> tuple[list[str], list[Record]]:
    """Read all from each broker by itself, into the history; what it lacks of what was promised."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for partition, offset in acknowledged:
        wanted[partition].add(offset)
    found, read = [], []
    for broker in replicas:
        with RawClient(brokers.server(broker)) as client:
            for partition, offsets in wanted.items():
                records = _read_all(client, partition, max(offsets) + 1)
                writer.write(LogRead(time.monotonic_ns(), f"broker {broker}", tuple(records)))
                read += records
                lacking = offsets - {each.offset for each in records}
                if lacking:
                    found.append(
                        f"broker {broker} lacks {len(lacking)} records of {partition},"
                        f" {partition}@{min(lacking)} the first"
                    )
    return found, read


def _read_all(client: RawClient, name: str, end: int) -> list[Record]:
    """From the beginning; a follower may hear a moment later what is committed."""
    records: list[Record] = []
    deadline = time.monotonic() + _WAIT_S
    while len(records) < end and time.monotonic() < deadline:
        topic, _, number = name.rpartition("-")
        request = fetch(topic, len(records), partition=int(number), max_wait_ms=500)
        answer = client.call("Fetch", _FETCH_VERSION, request).responses[0].partitions[0]
        assert answer.error_code == 0, f"{name}@{len(records)}: error {answer.error_code}"
        # Offsets are without gaps: there are neither transactions nor compaction here.
        records += (
            Record(name, offset, int(value or b""))
            for offset, value in enumerate(values_in(answer), len(records))
        )
    return records


def differing_replicas(
    data: Path, topic: str, partitions: int, brokers: Collection[int]
) -> list[str]:
    """Partitions whose files are not the same on all disks from the first to the last byte."""
    found = []
    for partition in range(partitions):
        contents: Mapping[int, bytes] = {
            broker: _records(data / str(broker) / f"{topic}-{partition}") for broker in brokers
        }
        if len(set(contents.values())) != 1:
            sizes = {broker: len(content) for broker, content in contents.items()}
            found.append(f"{topic}-{partition}: sizes {sizes}")
    return found


def _records(directory: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))
