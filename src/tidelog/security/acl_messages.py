"""Rules and filters out of the messages that carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.security.acl import AclBinding, AclFilter

if TYPE_CHECKING:
    from tidelog.protocol.messages.acls import (
        AclCreation,
        AclDescription,
        DeleteAclsFilter,
        DeleteAclsMatchingAcl,
        DescribeAclsRequest,
        DescribeAclsResource,
    )


def rule_to_create(creation: AclCreation) -> AclBinding:
    return AclBinding(
        creation.resource_type,
        creation.resource_pattern_type,
        creation.resource_name,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def rule_in_answer(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    rule: AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    """A rule of an answer, where DescribeAcls has the resource apart and DeleteAcls has it not."""
    return AclBinding(
        resource.resource_type,
        resource.pattern_type,
        resource.resource_name,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def filter_asked_for(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.pattern_type_filter,
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
