"""What groups go by, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.cluster.image import MetadataImage
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError

INT_MAX = 2**31 - 1
# What the records of a group have room for; newer versions of requests carry more.
NAME_BYTES_MAX: Final = 32_767
# Of what is written with every change of a member, and begins the ids that it is given.
LABEL_BYTES_MAX: Final = 4_096
_UTF8_BYTES_MAX: Final = 4
# In less no member can hear of a rebalance and do its part: it would end with everybody gone.
REBALANCE_TIMEOUT_MIN_MS: Final = 1_000


# How long the broker has run since it wrote down this wall time.
AgeOf = Callable[[int], int]


class Caller(NamedTuple):
    """Who sent a request."""

    client_id: str
    client_host: str
    # Which topics it may know of.
    may_describe: Callable[[str], bool] = lambda _: True


@dataclass(slots=True)
class GroupSettings:
    """The settings of groups; names and defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    group_size_max: int = INT_MAX
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_expiry_interval_ms: int = 600_000
    # The largest subscription of one member; it is part of a record, and kept in memory.
    member_metadata_bytes_max: int = 1_048_588
    # Consumer groups: their broker says how often to be heard of.
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_group_size_max: int = INT_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    # Whether a group with members may go from the classic protocol to the newer one, and back.
    allows_upgrade: bool = True
    allows_downgrade: bool = True


def group_settings(config: BrokerConfig) -> GroupSettings:
    """What groups go by, out of the broker's settings."""
    policy = config.get_str("group.consumer.migration.policy")
    return GroupSettings(
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        session_timeout_min_ms=config.get_int("group.min.session.timeout.ms"),
        session_timeout_max_ms=config.get_int("group.max.session.timeout.ms"),
        group_size_max=config.get_int("group.max.size"),
        offset_metadata_bytes_max=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
        offsets_expiry_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        consumer_group_size_max=config.get_int("group.consumer.max.size"),
        consumer_assignors=tuple(config.get_list("group.consumer.assignors")),
        allows_upgrade=policy in ("upgrade", "bidirectional"),
        allows_downgrade=policy in ("downgrade", "bidirectional"),
    )


def own_setting_ms(image: MetadataImage, group_id: str, name: str, default_ms: int) -> int:
    """What a group has set for itself, else what its broker says."""
    own = image.group_configs.get(group_id)
    return default_ms if own is None else int(own.get(name, default_ms))


def check_length(what: str, text: str | None, limit: int = NAME_BYTES_MAX) -> None:
    """KafkaError where a name is too long to be kept."""
    if text is None or len(text) * _UTF8_BYTES_MAX <= limit:
        return
    if len(text) > limit or len(text.encode()) > limit:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} is longer than {limit} bytes.")
