"""Spark's own Kafka connector as jars from Maven Central: the peer of our data source.

Each jar is fetched by itself: the connector's token provider of the same version is not there, and
a resolve of everything at once fails on it.
"""

from __future__ import annotations

from pathlib import Path

from bench.peers.cache import fetched, maven

CONNECTOR_VERSION = "4.2.0"
_ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


def jars() -> list[Path]:
    """What `spark.jars` needs for `format("kafka")`."""
    return sorted(fetched(f"spark-connector-{CONNECTOR_VERSION}", _fetch).glob("*.jar"))


def _fetch(directory: Path) -> None:
    for artifact in _ARTIFACTS:
        maven(f"{_PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}")
