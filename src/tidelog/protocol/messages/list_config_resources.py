"""ListConfigResources: what has settings, or could have.

All versions are flexible. Version notes: 0, which was ListClientMetricsResources, lists client
metrics alone; 1 lists the types that are asked for.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int8, int16, int32, string, structure


@api_message
class ListConfigResourcesRequest:
    """Which types of resources to list; none means all."""

    resource_types: list[int] = array_of("int8", "1+")


@structure
class ConfigResource:
    """Something with settings."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@api_message
class ListConfigResourcesResponse:
    """What was found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array_of(ConfigResource)
