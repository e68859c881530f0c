"""The settings of a topic, with the broker's setting that each falls back on.

Names and defaults are Kafka's, except for the rows marked as ours. Rows marked `unused` are taken
and shown, because Kafka's clients and tools set them, but nothing acts on them.
"""

from __future__ import annotations

from typing import Final

from tidelog.config.checks import check_gzip_level, check_throttled_replicas
from tidelog.config.setting import LONG_MAX, boolean, double, integer, items, long, text

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

_RETENTION: Final = (
    items(
        "cleanup.policy",
        ["delete"],
        "What happens to old segments: `delete` removes them by age and size, `compact` keeps the"
        " last value of each key; you can set both. Empty keeps everything.",
        choices=("compact", "delete"),
        broker_name="log.cleanup.policy",
    ),
    long(
        "retention.ms",
        7 * DAY_MS,
        "How long a segment is kept after its newest record, whether or not it was consumed; -1"
        " keeps it forever.",
        minimum=-1,
        broker_name="log.retention.ms",
    ),
    long(
        "retention.bytes",
        -1,
        "How large a partition may grow before its oldest segments are removed; -1 sets no limit.",
        broker_name="log.retention.bytes",
    ),
    long(
        "file.delete.delay.ms",
        60_000,
        "How long a removed segment stays on disk, renamed, before its files are unlinked.",
        minimum=0,
        broker_name="log.segment.delete.delay.ms",
    ),
)

_SEGMENTS: Final = (
    integer(
        "segment.bytes",
        1024 * MIB,
        "The size at which a segment file is closed and the next one begun.",
        minimum=MIB,
        broker_name="log.segment.bytes",
    ),
    long(
        "segment.ms",
        7 * DAY_MS,
        "The age at which a segment is closed even if it is not full, so that retention can"
        " remove it.",
        minimum=1,
        broker_name="log.roll.ms",
    ),
    long(
        "segment.jitter.ms",
        0,
        "The maximum random time that is subtracted from `segment.ms` for each segment, so that"
        " many partitions do not roll at once.",
        minimum=0,
        broker_name="log.roll.jitter.ms",
    ),
    integer(
        "segment.index.bytes",
        10 * MIB,
        "The largest size of a segment's index; a full index closes the segment.",
        minimum=4,
        broker_name="log.index.size.max.bytes",
    ),
    integer(
        "index.interval.bytes",
        4096,
        "How many bytes of records are between two entries of the sparse indexes.",
        minimum=0,
        broker_name="log.index.interval.bytes",
    ),
    integer(
        "internal.segment.bytes",
        None,
        "Overrides `segment.bytes` below its minimum. For tests only; not shown to clients.",
        minimum=1,
        broker_name="internal.segment.bytes",
        internal=True,
    ),
)

_DURABILITY: Final = (
    text(
        "durability",
        "replicated",
        "When a record counts as committed: `replicated`, once the in-sync replicas have it in"
        " their page caches; `fsync`, once it is also flushed to their disks, before it is"
        " acknowledged and before consumers see it.",
        choices=("replicated", "fsync"),
        broker_name="log.durability",
        kafka=False,
    ),
    long(
        "flush.messages",
        LONG_MAX,
        "How many records may be written before the partition is flushed to disk.",
        minimum=1,
        broker_name="log.flush.interval.messages",
    ),
    long(
        "flush.ms",
        LONG_MAX,
        "How long a record may wait before the partition is flushed to disk.",
        minimum=0,
        broker_name="log.flush.interval.ms",
    ),
    integer(
        "min.insync.replicas",
        1,
        "How many in-sync replicas a write with acks=all needs.",
        minimum=1,
        broker_name="min.insync.replicas",
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may become leader if no other is left, which can"
        " lose acknowledged records.",
        broker_name="unclean.leader.election.enable",
    ),
)

_RECORDS: Final = (
    integer(
        "max.message.bytes",
        MIB + 12,
        "The largest accepted record batch, as it arrives (after compression, if any).",
        minimum=0,
        broker_name="message.max.bytes",
    ),
    text(
        "message.timestamp.type",
        "CreateTime",
        "Whose clock sets the timestamps of records: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    ),
    long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a producer's timestamp may be behind the broker's clock.",
        minimum=0,
        broker_name="log.message.timestamp.before.max.ms",
    ),
    long(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        "How far a producer's timestamp may be ahead of the broker's clock.",
        minimum=0,
        broker_name="log.message.timestamp.after.max.ms",
    ),
    text(
        "record.validation",
        "headers",
        "How thoroughly a produced batch is checked. `headers` checks the batch header, the"
        " checksum, the records of uncompressed batches, and for compressed ones the framing and"
        " whether it can hold so many records. `full` also decompresses compressed batches and"
        " checks their records, which takes two to ten times the CPU for them.",
        choices=("headers", "full"),
        broker_name="record.validation",
        kafka=False,
    ),
    text(
        "compression.type",
        "producer",
        "The codec that batches are stored with; `producer` keeps what the producer chose, "
        "`uncompressed` stores plain records.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_name="compression.type",
    ),
    integer(
        "compression.gzip.level",
        -1,
        "The level used when `compression.type` is gzip: 1 to 9, or -1 for the library's default.",
        check=check_gzip_level,
        broker_name="compression.gzip.level",
    ),
    integer(
        "compression.lz4.level",
        9,
        "The level used when `compression.type` is lz4.",
        minimum=1,
        maximum=17,
        broker_name="compression.lz4.level",
    ),
    integer(
        "compression.zstd.level",
        3,
        "The level used when `compression.type` is zstd.",
        minimum=-131072,
        maximum=22,
        broker_name="compression.zstd.level",
    ),
)

_COMPACTION: Final = (
    long(
        "delete.retention.ms",
        DAY_MS,
        "How long a tombstone (a record without a value, which deletes its key) is kept after the"
        " first cleaning pass that found it, so that slow readers see it.",
        minimum=0,
        broker_name="log.cleaner.delete.retention.ms",
    ),
    double(
        "min.cleanable.dirty.ratio",
        0.5,
        "The share of a compacted log's bytes that must be uncleaned before it is cleaned.",
        minimum=0,
        maximum=1,
        broker_name="log.cleaner.min.cleanable.ratio",
    ),
    long(
        "min.compaction.lag.ms",
        0,
        "The minimum time that a record stays uncompacted, by its timestamp.",
        minimum=0,
        broker_name="log.cleaner.min.compaction.lag.ms",
    ),
    long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "The maximum time that a record stays uncompacted, whatever the share of uncleaned bytes.",
        minimum=1,
        broker_name="log.cleaner.max.compaction.lag.ms",
    ),
)

_REPLICATION: Final = (
    items(
        "leader.replication.throttled.replicas",
        [],
        "Replicas that send no more than `leader.replication.throttled.rate` to followers that"
        " are not in sync: `partition:broker` with the broker that leads, or `*` for all.",
        check=check_throttled_replicas,
    ),
    items(
        "follower.replication.throttled.replicas",
        [],
        "Replicas that copy no more than `follower.replication.throttled.rate` until they are in "
        "sync: `partition:broker` with the broker that follows, or `*` for all.",
        check=check_throttled_replicas,
    ),
)

_UNUSED: Final = (
    boolean(
        "preallocate",
        False,
        "Whether a new segment file is allocated at its full size.",
        broker_name="log.preallocate",
        unused=True,
    ),
    boolean(
        "remote.storage.enable",
        False,
        "Whether old segments move to tiered storage, which is not supported: only false is"
        " accepted.",
        unused=True,
    ),
    boolean(
        "remote.log.copy.disable",
        False,
        "Stops copying to tiered storage, which is not supported.",
        unused=True,
    ),
    boolean(
        "remote.log.delete.on.disable",
        False,
        "Deletes the data in tiered storage, which is not supported.",
        unused=True,
    ),
    long(
        "local.retention.ms",
        -2,
        "Age limit of local segments with tiered storage, which is not supported.",
        minimum=-2,
        broker_name="log.local.retention.ms",
        unused=True,
    ),
    long(
        "local.retention.bytes",
        -2,
        "Size limit of local segments with tiered storage, which is not supported.",
        minimum=-2,
        broker_name="log.local.retention.bytes",
        unused=True,
    ),
)

TOPIC_SECTIONS: Final = (
    ("Retention", _RETENTION),
    ("Compaction", _COMPACTION),
    ("Segments and indexes", _SEGMENTS),
    ("Durability", _DURABILITY),
    ("Records", _RECORDS),
    ("Replication", _REPLICATION),
    ("Accepted and shown, without effect", _UNUSED),
)
