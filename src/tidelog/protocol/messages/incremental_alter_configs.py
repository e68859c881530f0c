"""IncrementalAlterConfigs: changes single settings of topics or brokers.

Version notes: 1 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.messages.alter_configs import AlterConfigsResourceResponse
from tidelog.protocol.schema import array_of, boolean, int8, int32, string, structure


@structure
class AlterableConfig:
    """A setting and what to do with it: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@structure
class AlterConfigsResource:
    """A topic or broker and the changes to it."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array_of(AlterableConfig)


@api_message
class IncrementalAlterConfigsRequest:
    """The changes."""

    resources: list[AlterConfigsResource] = array_of(AlterConfigsResource)
    validate_only: bool = boolean()


@api_message
class IncrementalAlterConfigsResponse:
    """What became of every resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array_of(AlterConfigsResourceResponse)
