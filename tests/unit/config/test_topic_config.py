"""The effective settings of a topic."""

from typing import get_origin, get_type_hints

import pytest

from tidelog.config import BrokerConfig, TopicConfig, topic_config
from tidelog.config.overrides import parse_topic_overrides
from tidelog.errors import ConfigError
from tidelog.model import Codec, TimestampType

MIB = 1024 * 1024


def test_a_topic_without_settings_has_the_defaults() -> None:
    config = topic_config(BrokerConfig(), {})
    assert (config.cleanup_delete, config.cleanup_compact) == (True, False)
    assert (config.retention_ms, config.retention_bytes) == (604_800_000, -1)
    assert (config.segment_bytes, config.segment_ms) == (1024 * MIB, 604_800_000)
    assert (config.flush_messages, config.flush_ms) == (2**63 - 1, 2**63 - 1)
    assert config.durability_fsync is False
    assert config.full_validation is False
    assert config.message_timestamp_type is TimestampType.CREATE_TIME
    assert config.target_codec is None
    assert config.compression_level is None
    assert config.max_message_bytes == MIB + 12
    assert config.max_decompressed_bytes == 8 * (MIB + 12)
    assert config == TopicConfig()


def test_every_field_has_the_type_that_it_declares() -> None:
    """Fields are read from the untyped table, so mypy cannot see a wrong one."""
    declared = get_type_hints(TopicConfig)
    declared = {
        name: frozenset if get_origin(kind) is frozenset else kind
        for name, kind in declared.items()
    }
    config = TopicConfig()
    wrong = [name for name in declared if not isinstance(getattr(config, name), declared[name])]
    assert wrong == []
    assert len(declared) > 20


def test_own_settings_win_over_altered_ones_and_these_over_files() -> None:
    static = BrokerConfig({"log.segment.bytes": str(2 * MIB)})
    assert topic_config(static, {}).segment_bytes == 2 * MIB
    altered = static.with_dynamic({}, {"log.segment.bytes": str(3 * MIB)})
    assert topic_config(altered, {}).segment_bytes == 3 * MIB
    own = topic_config(altered, {"segment.bytes": str(5 * MIB)})
    assert own.segment_bytes == 5 * MIB


def test_the_brokers_other_units_reach_the_topic() -> None:
    broker = BrokerConfig(
        {"log.retention.minutes": "2", "log.roll.hours": "3", "log.roll.jitter.hours": "1"}
    )
    config = topic_config(broker, {})
    assert config.retention_ms == 120_000
    assert config.segment_ms == 3 * 3_600_000
    assert config.segment_jitter_ms == 3_600_000


@pytest.mark.parametrize(
    ("policy", "delete", "compact"),
    [
        ("delete", True, False),
        ("compact", False, True),
        ("compact,delete", True, True),
        ("", False, False),
    ],
)
def test_cleanup_policies(policy: str, delete: bool, compact: bool) -> None:
    config = topic_config(BrokerConfig(), {"cleanup.policy": policy})
    assert (config.cleanup_delete, config.cleanup_compact) == (delete, compact)


@pytest.mark.parametrize(
    ("compression", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, 6),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 9),
        ("zstd", Codec.ZSTD, 3),
    ],
)
def test_the_target_codec_and_its_level(
    compression: str, codec: Codec | None, level: int | None
) -> None:
    overrides = {"compression.type": compression, "compression.gzip.level": "6"}
    config = topic_config(BrokerConfig(), overrides)
    assert (config.target_codec, config.compression_level) == (codec, level)


@pytest.mark.parametrize(
    ("broker", "message_bytes", "expected"),
    [
        ("-1", 1000, 8000),
        ("-1", 32 * MIB, 64 * MIB),
        ("-1", 100 * MIB, 100 * MIB),
        ("5000", 1000, 5000),
    ],
)
def test_the_bound_of_inflating_follows_the_message_size(
    broker: str, message_bytes: int, expected: int
) -> None:
    config = topic_config(
        BrokerConfig({"max.decompressed.batch.bytes": broker}),
        {"max.message.bytes": str(message_bytes)},
    )
    assert config.max_decompressed_bytes == expected


def test_our_own_settings_and_the_one_for_tests() -> None:
    overrides = {
        "durability": "fsync",
        "record.validation": "full",
        "message.timestamp.type": "LogAppendTime",
        "internal.segment.bytes": "1000",
        "retention.bytes": "-5",
    }
    config = topic_config(BrokerConfig({"log.durability": "replicated"}), overrides)
    assert config.durability_fsync
    assert config.full_validation
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.segment_bytes == 1000
    assert config.retention_bytes == -1


def test_equal_settings_are_equal_so_that_a_change_can_be_seen() -> None:
    broker = BrokerConfig()
    first = topic_config(broker, {"retention.ms": "1"})
    assert first == topic_config(broker, {"retention.ms": "1"})
    assert first != topic_config(broker, {"retention.ms": "2"})


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"retention.m": "1"}, r"Unknown topic config name: retention\.m; did you mean retention"),
        ({"log.segment.bytes": "1"}, r"Unknown topic config name: log\.segment\.bytes"),
        ({"segment.bytes": "1"}, "at least 1048576"),
        ({"cleanup.policy": "keep"}, "keep .* one of: compact, delete"),
        ({"min.insync.replicas": "0"}, "at least 1"),
        ({"compression.type": "none"}, "none .* one of: uncompressed"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            "setting min\\.compaction\\.lag\\.ms \\(5\\) > max",
        ),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
    ],
)
def test_bad_overrides_are_refused(overrides: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_topic_overrides(overrides)


def test_what_kafkas_clients_set_is_taken() -> None:
    parse_topic_overrides(
        {
            "cleanup.policy": "compact",
            "delete.retention.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": "5",
            "preallocate": "true",
            "remote.storage.enable": "false",
            "local.retention.ms": "-2",
            "leader.replication.throttled.replicas": "*",
        }
    )
