"""From a topic's effective settings to what the log and the admission of batches go by."""

from __future__ import annotations

from tidelog.config.topic_config import TopicConfig
from tidelog.storage.admission import AdmissionRules
from tidelog.storage.log import LogConfig


def log_config(config: TopicConfig) -> LogConfig:
    """What one partition's log needs to know of its topic."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        segment_index_bytes=config.segment_index_bytes,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        file_delete_delay_ms=config.file_delete_delay_ms,
        message_timestamp_type=config.message_timestamp_type,
        cleanup_compact=config.cleanup_compact,
        cleanup_delete=config.cleanup_delete,
        delete_retention_ms=config.delete_retention_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
    )


def admission_rules(config: TopicConfig) -> AdmissionRules:
    """What a produced batch must satisfy."""
    return AdmissionRules(
        max_message_bytes=config.max_message_bytes,
        timestamp_type=config.message_timestamp_type,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        target_codec=config.target_codec,
        compression_level=config.compression_level,
        compacted=config.cleanup_compact,
        full_validation=config.full_validation,
        max_decompressed_bytes=config.max_decompressed_bytes,
    )
