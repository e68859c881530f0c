"""DescribeConfigs: the effective settings of topics and brokers.

Version notes: 3 adds types and documentation, 4 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int8, int16, int32, string, structure


@structure
class DescribeConfigsResource:
    """A topic or broker, and which of its settings to describe; null means all."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array_of("string", nullable="0+")


@api_message
class DescribeConfigsRequest:
    """What to describe."""

    resources: list[DescribeConfigsResource] = array_of(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@structure
class DescribeConfigsSynonym:
    """A place that a setting can come from, in the order of precedence."""

    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@structure
class DescribeConfigsResourceResult:
    """A setting, its value and its source."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array_of(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


@structure
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array_of(DescribeConfigsResourceResult)


@api_message
class DescribeConfigsResponse:
    """The settings of every resource."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array_of(DescribeConfigsResult)
