"""ApiVersions: which APIs and versions a broker speaks.

Its response header is version 0 in every version, so that a client can read the answer to a
version that the broker does not know. Version notes: 3 is flexible and brings features, 4 fixes
the smallest version of a feature to be zero.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int16, int32, int64, string, structure


@api_message
class ApiVersionsRequest:
    """Who asks; the names are for the logs of the broker."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@structure
class ApiVersion:
    """The versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@structure
class SupportedFeatureKey:
    """The levels of a feature that this broker supports."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@structure
class FinalizedFeatureKey:
    """The level of a feature that is in force in the cluster."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@api_message
class ApiVersionsResponse:
    """The APIs and features on offer."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array_of(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array_of(
        SupportedFeatureKey, "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array_of(
        FinalizedFeatureKey, "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
