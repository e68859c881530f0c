"""Client quotas as operations: set, list, remove. An entity is as in `security/quota_entities`."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.connection import Call
from tidelog.client.faults import raise_for
from tidelog.client.metadata import ANY, Cluster
from tidelog.client.operation import Operation, ask, retried
from tidelog.security.quota_entities import QuotaEntity

# How a name is meant when entities are asked for.
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@retried
def alter_quotas(
    cluster: Cluster, entity: QuotaEntity, quotas: Mapping[str, float | None]
) -> Operation[None]:
    """Set quotas of one entity; None removes one."""
    from tidelog.protocol.messages.client_quotas import (
        AlterClientQuotasRequest,
        QuotaAlteration,
        QuotaEntityPart,
        QuotaOperation,
    )

    operations = [
        QuotaOperation(key, 0.0 if value is None else value, value is None)
        for key, value in quotas.items()
    ]
    parts = [QuotaEntityPart(*part) for part in entity]
    request = AlterClientQuotasRequest([QuotaAlteration(parts, operations)])
    response = yield from ask(Call(ANY, "AlterClientQuotas", request))
    for result in response.entries:
        raise_for(result.error_code, result.error_message)


@retried
def list_quotas(
    cluster: Cluster, of: QuotaEntity = (), any_of: tuple[str, ...] = ()
) -> Operation[dict[QuotaEntity, dict[str, float]]]:
    """The quotas of all entities that have these parts, and any name of the types in `any_of`."""
    from tidelog.protocol.messages.client_quotas import DescribeClientQuotasRequest, QuotaComponent

    components = [
        QuotaComponent(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in of
    ]
    components += [QuotaComponent(kind, _ANY, None) for kind in any_of]
    request = DescribeClientQuotasRequest(components)
    response = yield from ask(Call(ANY, "DescribeClientQuotas", request))
    raise_for(response.error_code, response.error_message)
    found = {}
    for entry in response.entries or ():
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity))
        found[entity] = {value.key: value.value for value in entry.values}
    return found
