"""The broker's settings that topics without their own value take.

Most differ from the topic's setting in name only and are derived from its row, so that type, range
and default are written once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelog.config.checks import check_retention
from tidelog.config.setting import Setting, Update, integer, long
from tidelog.config.topic_settings import TOPIC_SECTIONS

# The broker's own forms of topic settings that are set in more than one unit.
_UNITS: Final = (
    long(
        "log.retention.ms",
        None,
        "Default for topics of `retention.ms`.",
        check=check_retention,
        update=Update.CLUSTER_WIDE,
        fallbacks=(("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    ),
    integer(
        "log.retention.minutes",
        None,
        "The same in minutes, used if `log.retention.ms` is not set.",
        check=check_retention,
    ),
    integer(
        "log.retention.hours",
        168,
        "The same in hours, used if neither of the others is set.",
        check=check_retention,
    ),
    long(
        "log.roll.ms",
        None,
        "Default for topics of `segment.ms`.",
        minimum=1,
        update=Update.CLUSTER_WIDE,
        fallbacks=(("log.roll.hours", 3_600_000),),
    ),
    integer(
        "log.roll.hours", 168, "The same in hours, used if `log.roll.ms` is not set.", minimum=1
    ),
    long(
        "log.roll.jitter.ms",
        None,
        "Default for topics of `segment.jitter.ms`.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        fallbacks=(("log.roll.jitter.hours", 3_600_000),),
    ),
    integer(
        "log.roll.jitter.hours",
        0,
        "The same in hours, used if `log.roll.jitter.ms` is not set.",
        minimum=0,
    ),
    long(
        "log.flush.interval.ms",
        None,
        "Default for topics of `flush.ms`. Not set, it is `log.flush.scheduler.interval.ms`.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        fallbacks=(("log.flush.scheduler.interval.ms", 1),),
    ),
)


def _counterpart(topic: Setting) -> Setting:
    """The broker's row for a topic setting that differs from it in name only."""
    assert topic.broker_name is not None
    help_text = f"Default for topics of `{topic.name}`."
    return replace(
        topic,
        name=topic.broker_name,
        help=help_text,
        update=Update.CLUSTER_WIDE,
        broker_name=None,
    )


def _derive() -> tuple[Setting, ...]:
    written = {setting.name for setting in _UNITS}
    derived = (
        _counterpart(topic)
        for _, settings in TOPIC_SECTIONS
        for topic in settings
        if topic.broker_name is not None and topic.broker_name not in written
    )
    return (*_UNITS, *derived)


TOPIC_DEFAULTS: Final = _derive()
