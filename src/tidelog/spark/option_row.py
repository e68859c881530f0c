"""One row of the table of options: what Spark's Kafka connector has, and what we make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNSECURED = "the broker has no TLS and no authentication yet, so a connection cannot have them"
NO_EFFECT = "accepted, without effect: "


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option as the connector names it, and how far ours is like it."""

    name: str
    status: Literal["same", "differs", "refused", "ours"]
    help: str


# Settings of every client of Kafka's, the readers' and the writers' alike.
CLIENT_ROWS = tuple(
    OptionRow(f"kafka.{name}", "differs", NO_EFFECT + reason)
    for name, reason in (
        ("send.buffer.bytes", "the operating system sizes it"),
        ("receive.buffer.bytes", "the operating system sizes it"),
        ("metadata.recovery.strategy", "bootstrap servers are always tried again"),
        ("metadata.recovery.rebootstrap.trigger.ms", "bootstrap servers are tried at once"),
        ("socket.connection.setup.timeout.max.ms", "the time to connect does not grow"),
        ("enable.metrics.push", "there are no client metrics"),
        ("metric.reporters", "there are no client metrics"),
        ("metrics.num.samples", "there are no client metrics"),
        ("metrics.recording.level", "there are no client metrics"),
        ("metrics.sample.window.ms", "there are no client metrics"),
        ("auto.include.jmx.reporter", "there are no client metrics"),
    )
)
