"""DescribeAcls (29, versions 1 to 3), CreateAcls (30, 1 to 3), DeleteAcls (31, 1 to 3).

Behaviour: rules are stored and enforced as in Kafka. Each rule and each filter of a request has its
own result; the valid ones are added, or removed, in one transaction. Without an authorizer the
answer is SECURITY_DISABLED.

Gaps: a request adds or removes at most 1,000 rules, Kafka's 10,000. A code that nobody knows
is answered with INVALID_REQUEST, where Kafka closes the connection or answers
UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from tidelog.cluster.commands import CreateAcls, DeleteAcls, DeletedAcls
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.acls import (
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tidelog.security.acl import AclBinding, AclFilter, check_binding, check_filter
from tidelog.security.acl_messages import filter_asked_for, rule_to_create
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.tools import ClusterContext


def describe_acls(
    request: DescribeAclsRequest, context: ClusterContext
) -> Generator[int, None, DescribeAclsResponse]:
    asked = filter_asked_for(request)
    try:
        context.require(Operation.DESCRIBE, CLUSTER)
        _check_enabled(context)
        check_filter(asked)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    found: dict[tuple[int, int, str], list[AclDescription]] = {}
    for each in context.image.acls:
        yield 1
        if asked.matches(each):
            rule = AclDescription(each.principal, each.host, each.operation, each.permission)
            found.setdefault(each[:3], []).append(rule)
    resources = []
    for kind, pattern, name in sorted(found):
        yield 1
        rules = sorted(found[kind, pattern, name], key=_order)
        resources.append(DescribeAclsResource(kind, name, pattern, rules))
    return DescribeAclsResponse(resources=resources)


def _order(rule: AclDescription) -> tuple[str, str, int, int]:
    return rule.principal, rule.host, rule.operation, rule.permission_type


async def create_acls(request: CreateAclsRequest, context: ClusterContext) -> CreateAclsResponse:
    try:
        context.require(Operation.ALTER, CLUSTER)
        _check_enabled(context)
    except KafkaError as error:
        return CreateAclsResponse(results=[_created(error)] * len(request.creations))
    outcomes: list[KafkaError | None] = []
    valid: dict[AclBinding, None] = {}
    pace = context.pace()
    for creation in request.creations:
        await pace.step()
        binding = rule_to_create(creation)
        try:
            check_binding(binding)
        except KafkaError as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
            valid[binding] = None
    try:
        if valid:
            await context.tools.submitter.submit(CreateAcls(list(valid)), context.principal)
    except KafkaError as error:
        outcomes = [each or error for each in outcomes]
    return CreateAclsResponse(results=[_created(each) for each in outcomes])


async def delete_acls(request: DeleteAclsRequest, context: ClusterContext) -> DeleteAclsResponse:
    try:
        context.require(Operation.ALTER, CLUSTER)
        _check_enabled(context)
    except KafkaError as error:
        return DeleteAclsResponse(filter_results=[_deleted(error)] * len(request.filters))
    asked: list[AclFilter | KafkaError] = []
    pace = context.pace()
    for each in request.filters:
        await pace.step()
        wanted = filter_asked_for(each)
        try:
            check_filter(wanted)
            asked.append(wanted)
        except KafkaError as error:
            asked.append(error)
    valid = dict.fromkeys(each for each in asked if isinstance(each, AclFilter))
    matches: dict[AclFilter, Sequence[AclBinding] | KafkaError] = {}
    try:
        if valid:
            command = DeleteAcls(list(valid))
            answer = await context.tools.submitter.submit(command, context.principal)
            assert isinstance(answer, DeletedAcls)
            matches.update(zip(valid, answer.matches, strict=True))
    except KafkaError as error:
        matches.update(dict.fromkeys(valid, error))
    results = [_deleted(each if isinstance(each, KafkaError) else matches[each]) for each in asked]
    return DeleteAclsResponse(filter_results=results)


def _check_enabled(context: ClusterContext) -> None:
    if not context.has_acls:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _created(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error.code, error.message)


def _deleted(outcome: Sequence[AclBinding] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return DeleteAclsFilterResult(outcome.code, outcome.message)
    matching = [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in outcome
    ]
    return DeleteAclsFilterResult(0, None, matching)
