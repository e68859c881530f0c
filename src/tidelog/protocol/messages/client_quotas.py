"""DescribeClientQuotas and AlterClientQuotas: how much clients may use.

Version notes: 1 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import (
    array_of,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
    structure,
)


@structure
class QuotaComponent:
    """A type of entity, and which name: 0 this one, 1 the default, 2 any."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@api_message
class DescribeClientQuotasRequest:
    """Which entities are asked for; with `strict`, those with no other type beside."""

    components: list[QuotaComponent] = array_of(QuotaComponent)
    strict: bool = boolean()


@structure
class QuotaEntityPart:
    """A type and a name; null is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@structure
class QuotaValue:
    """One quota."""

    key: str = string()
    value: float = float64()


@structure
class DescribedQuotas:
    """The quotas of one entity."""

    entity: list[QuotaEntityPart] = array_of(QuotaEntityPart)
    values: list[QuotaValue] = array_of(QuotaValue)


@api_message
class DescribeClientQuotasResponse:
    """The entities that match; null beside an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribedQuotas] | None = array_of(DescribedQuotas, nullable="0+")


@structure
class QuotaOperation:
    """A quota to set or remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@structure
class QuotaAlteration:
    """What to change for one entity."""

    entity: list[QuotaEntityPart] = array_of(QuotaEntityPart)
    ops: list[QuotaOperation] = array_of(QuotaOperation)


@api_message
class AlterClientQuotasRequest:
    """What to change, entity by entity."""

    entries: list[QuotaAlteration] = array_of(QuotaAlteration)
    validate_only: bool = boolean()


@structure
class QuotaAlterationResult:
    """What became of one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[QuotaEntityPart] = array_of(QuotaEntityPart)


@api_message
class AlterClientQuotasResponse:
    """The results by entity."""

    throttle_time_ms: int = int32()
    entries: list[QuotaAlterationResult] = array_of(QuotaAlterationResult)
