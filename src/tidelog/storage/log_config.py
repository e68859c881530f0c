"""The settings that a log goes by, made elsewhere from those of its topic and broker."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.model import TimestampType


@dataclass(slots=True)
class LogConfig:
    """The settings of a topic that its logs go by; -1 is without a limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    durability_fsync: bool = False
    file_delete_delay_ms: int = 60_000
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    max_message_bytes: int = 1_048_588
    cleanup_compact: bool = False
    cleanup_delete: bool = True
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    producer_id_expiration_ms: int = 86_400_000
