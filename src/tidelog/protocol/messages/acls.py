"""DescribeAcls, CreateAcls and DeleteAcls: the access-control lists.

Version notes: 2 is flexible, 3 knows users as resources. Version 0, without patterns, is not served
any more.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int8, int16, int32, string, structure


@api_message
class DescribeAclsRequest:
    """Which rules are asked for; null stands for any text."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@structure
class AclDescription:
    """One rule about a resource."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class DescribeAclsResource:
    """The rules about one resource."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array_of(AclDescription)


@api_message
class DescribeAclsResponse:
    """The rules by resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array_of(DescribeAclsResource)


@structure
class AclCreation:
    """A rule to add."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@api_message
class CreateAclsRequest:
    """Rules to add."""

    creations: list[AclCreation] = array_of(AclCreation)


@structure
class AclCreationResult:
    """What became of one rule."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@api_message
class CreateAclsResponse:
    """The results in the order of the request."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array_of(AclCreationResult)


@structure
class DeleteAclsFilter:
    """Which rules to remove; null stands for any text."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@api_message
class DeleteAclsRequest:
    """Filters, each for any number of rules."""

    filters: list[DeleteAclsFilter] = array_of(DeleteAclsFilter)


@structure
class DeleteAclsMatchingAcl:
    """A rule that was removed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class DeleteAclsFilterResult:
    """What one filter has removed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array_of(DeleteAclsMatchingAcl)


@api_message
class DeleteAclsResponse:
    """The results in the order of the request."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array_of(DeleteAclsFilterResult)
