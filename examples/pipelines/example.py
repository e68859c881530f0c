"""What an example is made of, and where it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from examples.pipelines.targets import Kind
from tidelog.client.batching import ProducerRecord

HERE = Path(__file__).parent
# In the order in which they are best read.
NAMES = (
    "website_activity",
    "log_aggregation",
    "topic_to_topic",
    "metrics",
    "event_sourcing",
    "commit_log",
    "messaging",
    "mirror",
)

Parts = Sequence[Sequence[ProducerRecord]]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Example:
    """One directory: the topics it fills, what its targets are, a generator and a truth.

    `generate` gives parts, each of which is acknowledged before the next is sent; a stream is
    started after the first. `truth` gives the rows of every target from all that was sent. With
    `elsewhere` the targets' topics are on another broker than the events.
    """

    topics: Mapping[str, int]
    targets: Mapping[str, Kind]
    generate: Callable[[int, int], Parts]
    truth: Callable[[Sequence[ProducerRecord]], Mapping[str, Rows]]
    elsewhere: bool = False


def load(name: str) -> Example:
    example: Example = import_module(f"examples.pipelines.{name}").EXAMPLE
    return example
