"""What transactions go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.table import BROKER_SETTINGS
from tidelog.errors import ErrorCode, KafkaError

# What the key of a record has room for.
_ID_BYTES_MAX: Final = 32_767


def check_id(transactional_id: str) -> None:
    """KafkaError where this cannot be a transactional id."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    length = len(transactional_id)
    if length > _ID_BYTES_MAX or len(transactional_id.encode()) > _ID_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the transactional id is longer than {_ID_BYTES_MAX} bytes"
        )


def _default(name: str) -> int:
    value = BROKER_SETTINGS[name].default
    assert isinstance(value, int)
    return value


@dataclass(slots=True, frozen=True)
class TransactionSettings:
    """By default, as on a broker that sets nothing."""

    timeout_max_ms: int = _default("transaction.max.timeout.ms")
    expiration_ms: int = _default("transactional.id.expiration.ms")
    expiry_interval_ms: int = _default("transaction.remove.expired.transaction.cleanup.interval.ms")
    is_two_phase_enabled: bool = bool(_default("transaction.two.phase.commit.enable"))
    ids_max: int = _default("transactional.ids.max.per.partition")
    ids_of_user_max: int = _default("transactional.ids.max.per.user")


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """What transactions go by, out of the broker's settings."""
    return TransactionSettings(
        config.get_int("transaction.max.timeout.ms"),
        config.get_int("transactional.id.expiration.ms"),
        config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        config.get_bool("transaction.two.phase.commit.enable"),
        config.get_int("transactional.ids.max.per.partition"),
        config.get_int("transactional.ids.max.per.user"),
    )
