"""The settings of consumer groups and of the topic that keeps them."""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import INT_MAX, Kind, Setting

GROUP_SETTINGS: Final = (
    Setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3_000,
        "How long the first member of an empty group waits for others before partitions are "
        "assigned. `tidelog up` and the broker for tests set 0.",
    ),
    Setting(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        "The shortest session time-out that a member may ask for.",
    ),
    Setting(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "The longest session time-out that a member may ask for.",
    ),
    Setting(
        "group.max.size",
        Kind.INT,
        INT_MAX,
        "How many members a group may have.",
        minimum=1,
    ),
    Setting(
        "offset.metadata.max.bytes",
        Kind.INT,
        4_096,
        "The longest text that may be committed with an offset.",
    ),
    Setting(
        "offsets.retention.minutes",
        Kind.INT,
        10_080,
        "How long the offsets of a group are kept after its last member has left. While it has "
        "members they are kept.",
        minimum=1,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often offsets are looked through for those that have expired.",
        minimum=1,
    ),
    Setting(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        "Partitions of `__consumer_offsets`; counts when the topic is created, by the first group.",
        minimum=1,
    ),
    Setting(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        3,
        "Replicas of `__consumer_offsets`; where there are fewer brokers, that many.",
        minimum=1,
    ),
    Setting(
        "offsets.topic.segment.bytes",
        Kind.INT,
        104_857_600,
        "Size of the segments of `__consumer_offsets`.",
        minimum=1,
    ),
)
