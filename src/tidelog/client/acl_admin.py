"""Access-control lists as operations: which rules there are, new ones, removals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.client.connection import Call
from tidelog.client.faults import raise_for
from tidelog.client.metadata import ANY, CONTROLLER, Cluster
from tidelog.client.operation import Operation, ask, retried
from tidelog.security.acl import AclBinding, AclFilter
from tidelog.security.acl_messages import rule_in_answer

# Users as resources (KIP-373) came with version 3, the first that Kafka 4 and we share.
_PATTERNS_VERSION = 1


@retried
def list_acls(cluster: Cluster, wanted: AclFilter) -> Operation[list[AclBinding]]:
    """The rules that a filter matches, in order; SECURITY_DISABLED without an authorizer."""
    from tidelog.protocol.messages.acls import DescribeAclsRequest

    request = DescribeAclsRequest(**_filter_fields(wanted))
    call = Call(ANY, "DescribeAcls", request, min_version=_PATTERNS_VERSION)
    response = yield from ask(call)
    raise_for(response.error_code, response.error_message)
    return sorted(rule_in_answer(each, acl) for each in response.resources for acl in each.acls)


@retried
def create_acls(cluster: Cluster, rules: Sequence[AclBinding]) -> Operation[None]:
    """Add rules; the first that is refused is raised."""
    from tidelog.protocol.messages.acls import AclCreation, CreateAclsRequest

    creations = [
        AclCreation(
            resource_type=rule.resource_type,
            resource_name=rule.resource_name,
            resource_pattern_type=rule.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    request = CreateAclsRequest(creations)
    call = Call(CONTROLLER, "CreateAcls", request, min_version=_PATTERNS_VERSION)
    response = yield from ask(call)
    for each in response.results:
        raise_for(each.error_code, each.error_message)


@retried
def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> Operation[list[AclBinding]]:
    """Remove what any of the filters matches; the rules that are gone, in order."""
    from tidelog.protocol.messages.acls import DeleteAclsFilter, DeleteAclsRequest

    request = DeleteAclsRequest([DeleteAclsFilter(**_filter_fields(each)) for each in filters])
    call = Call(CONTROLLER, "DeleteAcls", request, min_version=_PATTERNS_VERSION)
    response = yield from ask(call)
    gone = set()
    for result in response.filter_results:
        raise_for(result.error_code, result.error_message)
        for each in result.matching_acls:
            raise_for(each.error_code, each.error_message)
            gone.add(rule_in_answer(each, each))
    return sorted(gone)


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
