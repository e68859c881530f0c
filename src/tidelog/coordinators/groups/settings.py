"""What groups go by, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from tidelog.cluster.image import MetadataImage
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.setting import Value
from tidelog.config.table import BROKER_SETTINGS
from tidelog.errors import ErrorCode, KafkaError

_MIGRATION: Final = "group.consumer.migration.policy"
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
    # Whose groups count together; empty where nobody has logged in.
    user: str = ""


def _from(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """A field that a setting of the broker decides."""

    def read(get: Callable[[str], Value]) -> Any:
        return convert(get(name))

    return field(default=read(lambda _: BROKER_SETTINGS[name].default), metadata={"read": read})


@dataclass(slots=True)
class GroupSettings:
    """What groups go by; by default, as on a broker that sets nothing."""

    initial_rebalance_delay_ms: int = _from("group.initial.rebalance.delay.ms")
    session_timeout_min_ms: int = _from("group.min.session.timeout.ms")
    session_timeout_max_ms: int = _from("group.max.session.timeout.ms")
    group_size_max: int = _from("group.max.size")
    groups_max: int = _from("groups.max.per.partition")
    groups_of_user_max: int = _from("groups.max.per.user")
    offset_metadata_bytes_max: int = _from("offset.metadata.max.bytes")
    offsets_retention_ms: int = _from("offsets.retention.minutes", lambda each: each * 60_000)
    offsets_expiry_interval_ms: int = _from("offsets.retention.check.interval.ms")
    # The largest subscription of one member; it is part of a record, and kept in memory.
    member_metadata_bytes_max: int = 1_048_588
    # Consumer groups: their broker says how often to be heard of.
    consumer_session_timeout_ms: int = _from("group.consumer.session.timeout.ms")
    consumer_heartbeat_interval_ms: int = _from("group.consumer.heartbeat.interval.ms")
    consumer_group_size_max: int = _from("group.consumer.max.size")
    consumer_assignors: tuple[str, ...] = _from("group.consumer.assignors", tuple)
    # Whether a group with members may go from the classic protocol to the newer one, and back.
    allows_upgrade: bool = _from(_MIGRATION, {"upgrade", "bidirectional"}.__contains__)
    allows_downgrade: bool = _from(_MIGRATION, {"downgrade", "bidirectional"}.__contains__)


def group_settings(config: BrokerConfig) -> GroupSettings:
    """What groups go by, out of the broker's settings."""
    reads = {each.name: each.metadata["read"] for each in fields(GroupSettings) if each.metadata}
    return GroupSettings(**{name: read(config.get) for name, read in reads.items()})


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
