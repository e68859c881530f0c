"""The effective settings of a topic, as typed fields that the hot path reads without parsing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.config.broker_config import BrokerConfig, parse_settings
from tidelog.config.setting import Value
from tidelog.config.table import TOPIC_SETTINGS, hint
from tidelog.errors import ConfigError
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


@dataclass(slots=True)
class TopicConfig:
    """What holds for one topic on one broker.

    `target_codec` None stores what the producer chose; `compression_level` belongs to the target
    codec and is None where that has none. Limits are -1 for no limit. `overridden` names what the
    topic sets itself; `describe_topic` says where the rest comes from.
    """

    cleanup_delete: bool
    cleanup_compact: bool
    retention_ms: int
    retention_bytes: int
    file_delete_delay_ms: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    durability_fsync: bool
    flush_messages: int
    flush_ms: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    max_message_bytes: int
    message_timestamp_type: TimestampType
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    full_validation: bool
    max_decompressed_bytes: int
    target_codec: Codec | None
    compression_level: int | None
    producer_id_expiration_ms: int
    overridden: tuple[str, ...]


def topic_config(
    broker: BrokerConfig, dynamic: Mapping[str, str], overrides: Mapping[str, str]
) -> TopicConfig:
    """The settings of a topic with these overrides on this broker.

    `dynamic` holds settings altered for all brokers that `broker` does not know of yet; give an
    empty mapping when it was built by `BrokerConfig.with_dynamic`. ConfigError for a bad override.
    """
    if dynamic:
        broker = broker.with_dynamic({}, dynamic)
    return _build(broker, effective_values(broker, parse_topic_overrides(overrides)), overrides)


def parse_topic_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a topic's overrides; ConfigError for a name or value that is not valid."""
    for name in overrides:
        if name not in TOPIC_SETTINGS:
            raise ConfigError(f"Unknown topic config name: {name}{hint(name, TOPIC_SETTINGS)}")
    values = parse_settings(overrides, TOPIC_SETTINGS)
    shortest, longest = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ConfigError("min.compaction.lag.ms must not exceed max.compaction.lag.ms")
    return values


def validate_topic_overrides(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError, with a sentence for the client, unless a topic may have these settings."""
    parse_topic_overrides(overrides)


def effective_values(broker: BrokerConfig, overrides: Mapping[str, Value]) -> dict[str, Value]:
    """The value of each topic setting: the topic's own, else the broker's, else the default."""
    values: dict[str, Value] = {}
    for name, setting in TOPIC_SETTINGS.items():
        if name in overrides:
            values[name] = overrides[name]
        elif setting.broker_name is not None:
            values[name] = broker.get(setting.broker_name)
        else:
            values[name] = setting.default
    return values


def _build(
    broker: BrokerConfig, values: Mapping[str, Value], overrides: Mapping[str, str]
) -> TopicConfig:
    def integer(name: str) -> int:
        value = values[name]
        assert isinstance(value, int), f"{name} is no integer: {value!r}"
        return value

    policies = values["cleanup.policy"]
    assert isinstance(policies, list)
    segment_bytes = values["internal.segment.bytes"] or values["segment.bytes"]
    assert isinstance(segment_bytes, int)
    compression = str(values["compression.type"])
    return TopicConfig(
        cleanup_delete="delete" in policies,
        cleanup_compact="compact" in policies,
        retention_ms=max(-1, integer("retention.ms")),
        retention_bytes=max(-1, integer("retention.bytes")),
        file_delete_delay_ms=integer("file.delete.delay.ms"),
        delete_retention_ms=integer("delete.retention.ms"),
        min_cleanable_dirty_ratio=float(str(values["min.cleanable.dirty.ratio"])),
        min_compaction_lag_ms=integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=integer("max.compaction.lag.ms"),
        segment_bytes=segment_bytes,
        segment_ms=integer("segment.ms"),
        segment_jitter_ms=integer("segment.jitter.ms"),
        segment_index_bytes=integer("segment.index.bytes"),
        index_interval_bytes=integer("index.interval.bytes"),
        durability_fsync=values["durability"] == "fsync",
        flush_messages=integer("flush.messages"),
        flush_ms=integer("flush.ms"),
        min_insync_replicas=integer("min.insync.replicas"),
        unclean_leader_election_enable=values["unclean.leader.election.enable"] is True,
        max_message_bytes=integer("max.message.bytes"),
        message_timestamp_type=_timestamp_type(values["message.timestamp.type"]),
        message_timestamp_before_max_ms=integer("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=integer("message.timestamp.after.max.ms"),
        full_validation=values["record.validation"] == "full",
        max_decompressed_bytes=_decompressed_bytes(broker, integer("max.message.bytes")),
        target_codec=_CODECS[compression],
        compression_level=_compression_level(compression, values),
        producer_id_expiration_ms=broker.get_int("producer.id.expiration.ms"),
        overridden=tuple(overrides),
    )


def _timestamp_type(value: Value) -> TimestampType:
    if value == "LogAppendTime":
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


def _decompressed_bytes(broker: BrokerConfig, max_message_bytes: int) -> int:
    configured = broker.get_int("max.decompressed.batch.bytes")
    if configured >= 0:
        return configured
    return max(
        max_message_bytes, min(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_FACTOR * max_message_bytes)
    )


def _compression_level(compression: str, values: Mapping[str, Value]) -> int | None:
    level = values.get(f"compression.{compression}.level")
    return level if isinstance(level, int) else None
