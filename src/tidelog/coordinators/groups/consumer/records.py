"""The records of consumer groups (KIP-848), in Kafka's own formats.

Kinds: 3 the group with its epoch, 5 a member as it described itself, 6 the epoch of the target
assignment, 7 a member's part of that target, 8 what a member owns now, 16 what a pattern matches.
Kind 4 (superseded by the hash in 3, KIP-1101) is neither written nor read.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tidelog.protocol.schema import (
    array_of,
    byte_string,
    int8,
    int32,
    int64,
    message,
    string,
    struct_of,
    structure,
    uuid,
)


@message(versions=(0, 0))
class ConsumerGroupMetadataKey:
    """Which group it is."""

    group: str = string()


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    """The epoch of a group, and the hash of the topics that it was computed for."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@message(versions=(0, 0))
class ConsumerGroupMemberMetadataKey:
    """Which member it is."""

    group: str = string()
    member_id: str = string()


@structure
class ClassicProtocol:
    """An assignor that a member of the classic protocol knows, and what the member told it."""

    name: str = string()
    metadata: bytes = byte_string()


@structure
class ClassicMemberMetadata:
    """What is kept of a member of the classic protocol besides what every member has.

    A structure that may be null begins with a byte, also in a tagged field: here it is never null.
    """

    presence: int = int8(default=1)
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array_of(ClassicProtocol)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    """A member as it described itself."""

    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array_of("string")
    subscribed_topic_regex: str | None = string(default=None, nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(default=None, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct_of(ClassicMemberMetadata, tag=0)


@message(versions=(0, 0))
class ConsumerGroupTargetAssignmentMetadataKey:
    """Which group it is."""

    group: str = string()


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    """For which epoch of the group the target was computed, and when."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@message(versions=(0, 0))
class ConsumerGroupTargetAssignmentMemberKey:
    """Whose target it is."""

    group: str = string()
    member_id: str = string()


@structure
class TargetTopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array_of("int32")


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    """What a member is to own."""

    topic_partitions: list[TargetTopicPartitions] = array_of(TargetTopicPartitions)


@message(versions=(0, 0))
class ConsumerGroupCurrentMemberAssignmentKey:
    """Who owns it."""

    group: str = string()
    member_id: str = string()


@structure
class OwnedTopicPartitions:
    """Partitions of one topic, each with the epoch in which its owner got it (KIP-1251)."""

    topic_id: UUID = uuid()
    partitions: list[int] = array_of("int32")
    assignment_epochs: list[int] | None = array_of("int32", default=None, nullable="0+", tag=0)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member owns, what it has yet to give back, and in which epoch it is."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[OwnedTopicPartitions] = array_of(OwnedTopicPartitions)
    partitions_pending_revocation: list[OwnedTopicPartitions] = array_of(OwnedTopicPartitions)


@message(versions=(0, 0))
class ConsumerGroupRegularExpressionKey:
    """Which pattern it is."""

    group: str = string()
    regular_expression: str = string()


@message(versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    """The topics that a pattern matched, by which version of the metadata, and when."""

    topics: list[str] = array_of("string")
    version: int = int64()
    timestamp: int = int64()


ConsumerKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
ConsumerValue = (
    ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

KINDS: Final[dict[int, tuple[type[ConsumerKey], type[ConsumerValue]]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
