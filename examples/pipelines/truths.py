"""What the truths share: records that can be read, and those that cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from examples.pipelines.targets import dead_letter
from tidelog.client.batching import ProducerRecord

Read = TypeVar("Read")


def sort_out(
    records: Iterable[ProducerRecord], read: Callable[[str], Read]
) -> tuple[list[Read], list[Mapping[str, Any]]]:
    """What `read` makes of the values, and dead letters for those on which it raises ValueError."""
    good: list[Read] = []
    bad: list[Mapping[str, Any]] = []
    for record in records:
        try:
            if record.value is None:
                raise ValueError("no value")
            good.append(read(record.value.decode()))
        except ValueError:
            bad.append(dead_letter(record.value))
    return good, bad
