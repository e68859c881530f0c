"""The effective settings of a topic, as typed fields that the hot path reads without parsing.

A field names the setting that it holds; type, range and default are those of the table. So
`TopicConfig()` is a topic that sets nothing on a broker that sets nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.overrides import effective_values, parse_topic_overrides
from tidelog.config.setting import Value
from tidelog.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from tidelog.model import Codec, TimestampType

DECOMPRESSED_FACTOR: Final = 8
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
_CODECS: Final[dict[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
# Settings of the broker alone that its logs go by.
_OF_BROKER: Final = (
    "producer.id.expiration.ms",
    "producer.ids.max.per.partition",
    "max.decompressed.batch.bytes",
)
_DEFAULTS: Final[dict[str, Value]] = {
    **{name: setting.default for name, setting in TOPIC_SETTINGS.items()},
    **{name: BROKER_SETTINGS[name].default for name in _OF_BROKER},
}


def _derived(read: Callable[[Mapping[str, Any]], Any]) -> Any:
    """A field that several settings decide."""
    return field(default=read(_DEFAULTS), metadata={"read": read})


def _from(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """A field that one setting decides."""
    return _derived(lambda values: convert(values[name]))


def _limit(value: int) -> int:
    return max(-1, value)


def _timestamp_type(value: str) -> TimestampType:
    if value == "LogAppendTime":
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


def _replicas(listed: list[str]) -> frozenset[str]:
    # Not by int(): a number may have any count of zeros in front.
    return frozenset(
        ":".join(number.lstrip("0") or "0" for number in pair.split(":")) for pair in listed
    )


def _decompressed_bytes(values: Mapping[str, Any]) -> int:
    configured: int = values["max.decompressed.batch.bytes"]
    if configured >= 0:
        return configured
    message_bytes: int = values["max.message.bytes"]
    return max(message_bytes, min(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_FACTOR * message_bytes))


@dataclass(slots=True)
class TopicConfig:
    """What holds for one topic on one broker.

    `target_codec` None stores what the producer chose; `compression_level` belongs to the target
    codec and is None where that has none. Limits are -1 for no limit.
    """

    cleanup_delete: bool = _from("cleanup.policy", lambda policies: "delete" in policies)
    cleanup_compact: bool = _from("cleanup.policy", lambda policies: "compact" in policies)
    retention_ms: int = _from("retention.ms", _limit)
    retention_bytes: int = _from("retention.bytes", _limit)
    file_delete_delay_ms: int = _from("file.delete.delay.ms")
    delete_retention_ms: int = _from("delete.retention.ms")
    min_cleanable_dirty_ratio: float = _from("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _from("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _from("max.compaction.lag.ms")
    segment_bytes: int = _derived(
        lambda values: values["internal.segment.bytes"] or values["segment.bytes"]
    )
    segment_ms: int = _from("segment.ms")
    segment_jitter_ms: int = _from("segment.jitter.ms")
    segment_index_bytes: int = _from("segment.index.bytes")
    index_interval_bytes: int = _from("index.interval.bytes")
    durability_fsync: bool = _from("durability", lambda value: value == "fsync")
    flush_messages: int = _from("flush.messages")
    flush_ms: int = _from("flush.ms")
    max_message_bytes: int = _from("max.message.bytes")
    message_timestamp_type: TimestampType = _from(  # noqa: RUF009 - a field
        "message.timestamp.type", _timestamp_type
    )
    message_timestamp_before_max_ms: int = _from("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _from("message.timestamp.after.max.ms")
    full_validation: bool = _from("record.validation", lambda value: value == "full")
    max_decompressed_bytes: int = _derived(_decompressed_bytes)
    target_codec: Codec | None = _from(  # noqa: RUF009 - a field
        "compression.type", _CODECS.__getitem__
    )
    compression_level: int | None = _derived(
        lambda values: values.get(f"compression.{values['compression.type']}.level")
    )
    producer_id_expiration_ms: int = _from("producer.id.expiration.ms")
    producer_ids_max: int = _from("producer.ids.max.per.partition")
    # As `partition:broker` in plain numbers, or `*`.
    throttled_leaders: frozenset[str] = _from("leader.replication.throttled.replicas", _replicas)
    throttled_followers: frozenset[str] = _from(
        "follower.replication.throttled.replicas", _replicas
    )


_READS: Final = {each.name: each.metadata["read"] for each in fields(TopicConfig)}


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The settings of a topic with these overrides on this broker; ConfigError for a bad one."""
    values = effective_values(broker, TOPIC_SETTINGS, parse_topic_overrides(overrides))
    values |= {name: broker.get(name) for name in _OF_BROKER}
    return TopicConfig(**{name: read(values) for name, read in _READS.items()})
