"""UpdateFeatures: sets the levels of features of the cluster.

All versions are flexible. Version notes: 1 has kinds of upgrades and can validate alone, 2 has one
result for all.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int8, int16, int32, string, structure


@structure
class FeatureUpdateKey:
    """The level that a feature shall have; 0 turns it off."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@api_message
class UpdateFeaturesRequest:
    """Which features to set."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array_of(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@structure
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@api_message
class UpdateFeaturesResponse:
    """What became of every feature."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array_of(UpdatableFeatureResult, "0-1", ignorable=True)
