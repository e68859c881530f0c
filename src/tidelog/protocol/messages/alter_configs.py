"""AlterConfigs: replaces all settings of topics or brokers.

What the request does not name goes back to its default; IncrementalAlterConfigs changes single
settings. Version notes: 2 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int8, int16, int32, string, structure


@structure
class AlterableConfig:
    """A setting and its new value."""

    name: str = string()
    value: str | None = string(nullable="0+")


@structure
class AlterConfigsResource:
    """A topic or broker and its new settings."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array_of(AlterableConfig)


@api_message
class AlterConfigsRequest:
    """The new settings."""

    resources: list[AlterConfigsResource] = array_of(AlterConfigsResource)
    validate_only: bool = boolean()


@structure
class AlterConfigsResourceResponse:
    """What became of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@api_message
class AlterConfigsResponse:
    """What became of every resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array_of(AlterConfigsResourceResponse)
