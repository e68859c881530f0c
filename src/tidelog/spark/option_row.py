"""One row of the table of options: what Spark's Kafka connector has, and what we make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNSECURED = "the broker has no TLS and no authentication yet, so a connection cannot have them"


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option as the connector names it, and how far ours is like it."""

    name: str
    status: Literal["same", "differs", "refused", "ours"]
    help: str
