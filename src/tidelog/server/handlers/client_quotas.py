"""DescribeClientQuotas (48, versions 0 to 1) and AlterClientQuotas (49, versions 0 to 1).

Behaviour: quotas of users, client ids, both, addresses and their defaults, as in Kafka. Each entity
of an alteration succeeds or fails separately; an entity that a request names twice is refused, and
so is an entity with the same type twice, of which Kafka uses the last. An address is an IP address,
not a name.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from tidelog.cluster.commands import AlterClientQuotas
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    QuotaAlteration,
    QuotaAlterationResult,
    QuotaComponent,
    QuotaEntityPart,
    QuotaValue,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.security.quota_entities import CLIENT_ID, IP, USER, QuotaEntity, quota_entity
from tidelog.server.tools import ClusterContext

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_ENTITIES_PER_REQUEST_MAX = 10_000
_PARTS_SHOWN = 4


class _Wanted(NamedTuple):
    """Which entities are asked for."""

    # By type; None is the default.
    names: dict[str, str | None]
    # Types with whichever name.
    types: set[str]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        parts = dict(entity)
        if self.strict and len(parts) != len(self.names) + len(self.types):
            return False
        return self.types <= parts.keys() and all(
            kind in parts and parts[kind] == name for kind, name in self.names.items()
        )


def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: ClusterContext
) -> Generator[int, None, DescribeClientQuotasResponse]:
    wanted = _Wanted({}, set(), request.strict)
    try:
        context.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
        for each in request.components:
            yield 1
            _add(each, wanted)
        _check_address(wanted)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries = []
    for entity, quotas in context.image.client_quotas.items():
        yield 1
        if wanted.matches(entity):
            values = [QuotaValue(key, value) for key, value in sorted(quotas.items())]
            entries.append(DescribedQuotas(_parts(entity), values))
    return DescribeClientQuotasResponse(entries=entries)


def _add(component: QuotaComponent, wanted: _Wanted) -> None:
    kind, match = component.entity_type, component.match
    if not kind:
        raise _invalid("Invalid empty entity type.")
    if kind in wanted.names or kind in wanted.types:
        raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in (USER, CLIENT_ID, IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if component.match_type == _EXACT:
        if match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        wanted.names[kind] = match
        return
    if component.match_type not in (_DEFAULT, _ANY):
        raise _invalid(f"Unknown match type {component.match_type}")
    name = "DEFAULT" if component.match_type == _DEFAULT else "SPECIFIED"
    if match is not None:
        raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    if component.match_type == _DEFAULT:
        wanted.names[kind] = None
    else:
        wanted.types.add(kind)


def _check_address(wanted: _Wanted) -> None:
    kinds = wanted.names.keys() | wanted.types
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination, IP filter component should not be used"
            " with user or clientId filter component."
        )


async def alter_client_quotas(
    request: AlterClientQuotasRequest, context: ClusterContext
) -> AlterClientQuotasResponse:
    outcomes: dict[tuple[tuple[str, str | None], ...], AlterClientQuotas | KafkaError] = {}
    pace = context.pace()
    refusal = None
    try:
        context.require(Operation.ALTER_CONFIGS, CLUSTER)
        if len(request.entries) > _ENTITIES_PER_REQUEST_MAX:
            raise _invalid(
                f"One request alters the quotas of at most {_ENTITIES_PER_REQUEST_MAX} entities."
            )
    except KafkaError as error:
        refusal = error
    for each in request.entries:
        await pace.step()
        # No entity has as many parts; what is refused need not be said in full.
        parts = each.entity[:_PARTS_SHOWN]
        named = tuple((part.entity_type, part.entity_name) for part in parts)
        if refusal is not None:
            outcomes[named] = refusal
        elif named in outcomes:
            outcomes[named] = _invalid("The request names this entity twice.")
        else:
            outcomes[named] = _alteration(named, each, request.validate_only)
    commands = [each for each in outcomes.values() if isinstance(each, AlterClientQuotas)]
    submitter = context.tools.submitter
    answers = iter(await submitter.submit_many(commands, context.principal))
    entries = []
    for named, outcome in outcomes.items():
        await pace.step()
        answer = next(answers) if isinstance(outcome, AlterClientQuotas) else outcome
        result = QuotaAlterationResult(0, None, _parts(named))
        if isinstance(answer, KafkaError):
            result.error_code, result.error_message = answer.code, answer.message
        entries.append(result)
    return AlterClientQuotasResponse(entries=entries)


def _alteration(
    named: tuple[tuple[str, str | None], ...], asked: QuotaAlteration, validate_only: bool
) -> AlterClientQuotas | KafkaError:
    try:
        entity = quota_entity(named)
    except KafkaError as error:
        return error
    quotas: dict[str, float | None] = {}
    for each in asked.ops:
        if each.key in quotas:
            return _invalid(f"Duplicate quota key {each.key} not updated for this entity.")
        if len(quotas) >= 100:
            return _invalid("There are not as many quotas.")
        quotas[each.key] = None if each.remove else each.value
    return AlterClientQuotas(entity, quotas, validate_only)


def _parts(entity: QuotaEntity) -> list[QuotaEntityPart]:
    return [QuotaEntityPart(kind, name) for kind, name in entity]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
