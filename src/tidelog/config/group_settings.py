"""The settings of groups and of the topic that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tidelog.config.setting import INT_MAX, Setting, Value, integer, items, long, short, text
from tidelog.errors import ConfigError

CONSUMER_ASSIGNORS: Final = ("uniform", "range")
_CONSUMER: Final = "group.consumer."
# A group may set these for itself, between the least and the most that its broker allows.
_BOUNDED: Final = ("session.timeout.ms", "heartbeat.interval.ms")


def check_consumer_groups(get_int: Callable[[str], int]) -> None:
    """Raise ConfigError unless the times of consumer groups fit together."""
    for name in _BOUNDED:
        value, least = get_int(f"{_CONSUMER}{name}"), get_int(f"{_CONSUMER}min.{name}")
        most = get_int(f"{_CONSUMER}max.{name}")
        if not least <= value <= most:
            raise ConfigError(
                f"{_CONSUMER}{name} ({value}) must lie between {_CONSUMER}min.{name} ({least}) and"
                f" {_CONSUMER}max.{name} ({most})"
            )
    interval = get_int(f"{_CONSUMER}heartbeat.interval.ms")
    session = get_int(f"{_CONSUMER}session.timeout.ms")
    if interval >= session:
        raise ConfigError(
            f"{_CONSUMER}heartbeat.interval.ms ({interval}) must be shorter than"
            f" {_CONSUMER}session.timeout.ms ({session}): members would be fenced between two"
            " heartbeats"
        )


def check_group(values: Mapping[str, Value], get_int: Callable[[str], int]) -> None:
    """Raise ConfigError, in Kafka's words, unless a group's own settings lie in the bounds."""
    effective = {}
    for name in _BOUNDED:
        own = f"consumer.{name}"
        value = values.get(own)
        effective[own] = value if isinstance(value, int) else get_int(_CONSUMER + name)
        if own in values and effective[own] < get_int(f"{_CONSUMER}min.{name}"):
            raise ConfigError(f"{own} must be greater than or equal to {_CONSUMER}min.{name}")
        if own in values and effective[own] > get_int(f"{_CONSUMER}max.{name}"):
            raise ConfigError(f"{own} must be less than or equal to {_CONSUMER}max.{name}")
    session, interval = effective.values()
    if session <= interval:
        first, second = effective
        raise ConfigError(f"{first} must be greater than {second}")


def _check_assignors(value: Value) -> None:
    if not isinstance(value, list) or not value:
        raise ConfigError("at least one assignor must be named")
    for each in value:
        if each not in CONSUMER_ASSIGNORS:
            raise ConfigError(f"{each} is none of {', '.join(CONSUMER_ASSIGNORS)}")


GROUP_SETTINGS: Final = (
    integer(
        "group.initial.rebalance.delay.ms",
        3_000,
        "How long the first member of an empty group waits for others before partitions are "
        "assigned. `tidelog up` and the broker for tests set 0.",
    ),
    integer(
        "group.min.session.timeout.ms",
        6_000,
        "The shortest session timeout that a member may ask for.",
    ),
    integer(
        "group.max.session.timeout.ms",
        1_800_000,
        "The longest session timeout that a member may ask for.",
    ),
    integer(
        "group.max.size",
        100_000,
        "How many members a group may have. Kafka has no limit; each member takes memory.",
        minimum=1,
        kafka_default=str(INT_MAX),
    ),
    integer(
        "group.consumer.session.timeout.ms",
        45_000,
        "How long a member that uses the new consumer protocol (`group.protocol=consumer`) may be"
        " silent before its partitions are reassigned.",
        minimum=1,
    ),
    integer(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "The minimum of `group.consumer.session.timeout.ms`.",
        minimum=1,
    ),
    integer(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "The maximum of `group.consumer.session.timeout.ms`.",
        minimum=1,
    ),
    integer(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often members that use the new consumer protocol send heartbeats, which also deliver"
        " their assignment. `tidelog up` and the broker for tests set 500.",
        minimum=1,
    ),
    integer(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "The minimum of `group.consumer.heartbeat.interval.ms`.",
        minimum=1,
    ),
    integer(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "The maximum of `group.consumer.heartbeat.interval.ms`.",
        minimum=1,
    ),
    integer(
        "group.consumer.max.size",
        100_000,
        "How many members a group with the new consumer protocol may have. Kafka has no limit;"
        " each member takes memory.",
        minimum=1,
        kafka_default=str(INT_MAX),
    ),
    items(
        "group.consumer.assignors",
        list(CONSUMER_ASSIGNORS),
        "The assignors that members with the new consumer protocol may choose; the first is the"
        " default.",
        check=_check_assignors,
    ),
    text(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a group that has members may go from the classic protocol to the newer one "
        "(`upgrade`), back (`downgrade`), both ways, or not at all.",
        choices=("upgrade", "downgrade", "disabled", "bidirectional"),
    ),
    integer(
        "offset.metadata.max.bytes", 4_096, "The longest text that may be committed with an offset."
    ),
    integer(
        "offsets.commit.timeout.ms",
        5_000,
        "How long a commit, or another change of a group, may take to become durable before the"
        " client gets a retriable error.",
        minimum=1,
    ),
    integer(
        "offsets.retention.minutes",
        10_080,
        "How long the offsets of a group are kept after its last member has left. They do not "
        "expire while it has members.",
        minimum=1,
    ),
    long(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often expired offsets are removed.",
        minimum=1,
    ),
    integer(
        "offsets.topic.num.partitions",
        50,
        "Partitions of `__consumer_offsets`; applies when the first group creates the topic.",
        minimum=1,
    ),
    short(
        "offsets.topic.replication.factor",
        3,
        "Replicas of `__consumer_offsets`, or the number of brokers if that is less.",
        minimum=1,
    ),
    integer(
        "offsets.topic.segment.bytes",
        104_857_600,
        "Size of the segments of `__consumer_offsets`.",
        minimum=1,
    ),
)


def _of_a_group(broker_name: str) -> Setting:
    """A group's own setting, which takes the place of the broker's."""
    row = next(each for each in GROUP_SETTINGS if each.name == broker_name)
    return replace(
        row,
        name=broker_name.removeprefix("group."),
        help=f"For one group, instead of `{broker_name}`.",
        broker_name=broker_name,
    )


SETTINGS_OF_A_GROUP: Final = tuple(_of_a_group(f"{_CONSUMER}{name}") for name in _BOUNDED)
