"""One row of the table of options: what Spark's Kafka connector has, and what we make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NO_EFFECT = "accepted, without effect: "


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option as the connector names it, and how far ours is like it."""

    name: str
    status: Literal["same", "differs", "refused", "ours"]
    help: str


# How connections are secured; the value of each may be `env:NAME`.
SECURITY_ROWS = (
    OptionRow(
        "kafka.security.protocol", "same", "PLAINTEXT (default), SSL, SASL_PLAINTEXT, SASL_SSL"
    ),
    OptionRow(
        "kafka.ssl.*",
        "differs",
        "truststore, keystore, key.password, endpoint.identification.algorithm, enabled.protocols, "
        "cipher.suites; PEM by default, PKCS12 too, no JKS",
    ),
    OptionRow(
        "kafka.sasl.*",
        "differs",
        "mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; jaas.config, or username "
        "and password, or oauthbearer.token or oauthbearer.token.file. `env:NAME` reads a value "
        "from the environment of the driver, so that no program and no plan has it",
    ),
)
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
