"""What stands on the disks of all replicas, compared byte by byte."""

from __future__ import annotations

from pathlib import Path


def differing_replicas(data: Path, topic: str, partitions: int, brokers: int) -> list[str]:
    """Partitions whose replicas are not the same from the first to the last byte."""
    found = []
    for partition in range(partitions):
        contents = {
            broker: _records(data / str(broker) / f"{topic}-{partition}")
            for broker in range(brokers)
        }
        if len(set(contents.values())) != 1:
            sizes = {broker: len(content) for broker, content in contents.items()}
            found.append(f"{topic}-{partition}: sizes {sizes}")
    return found


def _records(directory: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))
