"""Tidelog: a partitioned, replicated commit log that speaks Kafka's wire protocol."""

from tidelog.version import VERSION as __version__

__all__ = ["__version__"]
