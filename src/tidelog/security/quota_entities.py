"""Whom a client quota is for, and which quotas there are: Kafka's rules, without enforcement.

An entity is a user, a client id, both, or an address; a name of None stands for the default, which
holds where no closer entity has the quota.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from tidelog.errors import ErrorCode, KafkaError

# Sorted pairs of a type and a name.
QuotaEntity = tuple[tuple[str, str | None], ...]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
# The highest value where it is a whole number, None where it may have a fraction.
_CLIENT_QUOTAS: Final[Mapping[str, int | None]] = {
    PRODUCER_BYTE_RATE: _LONG_MAX,
    CONSUMER_BYTE_RATE: _LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_ADDRESS_QUOTAS: Final[Mapping[str, int | None]] = {CONNECTION_CREATION_RATE: _INT_MAX}
ENTITY_NAME_BYTES_MAX: Final = 1024


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these parts, in the one order; KafkaError where there is no such entity."""
    found: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if kind in found:
            raise _invalid(f"Duplicate client quota entity type: {kind}")
        if name is not None and not name:
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name.encode()) > ENTITY_NAME_BYTES_MAX:
            raise _invalid(f"A name has at most {ENTITY_NAME_BYTES_MAX} bytes.")
        found[kind] = name
    if not found:
        raise _invalid("Invalid empty client quota entity")
    if IP in found and len(found) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    _check_address(found.get(IP))
    return tuple(sorted(found.items(), key=lambda each: each[0]))


def _check_address(address: str | None) -> None:
    # Kafka would also look a name up: that is not for a broker to do because somebody asks it to.
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            raise _invalid(f"{address} is not a valid IP address.") from None


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """KafkaError where an entity cannot have this quota, or not with this value."""
    quotas = _ADDRESS_QUOTAS if entity[0][0] == IP else _CLIENT_QUOTAS
    if key not in quotas:
        raise _invalid(f"Invalid configuration key {key}")
    most = quotas[key]
    if math.isnan(value) or value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if most is None:
        return
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large.")
    if value != math.floor(value):
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
