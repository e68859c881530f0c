"""AlterReplicaLogDirs: moves replicas between the directories of a broker.

Version notes: 2 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, structure


@structure
class AlterReplicaLogDirTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array_of("int32")


@structure
class AlterReplicaLogDir:
    """What shall lie in one directory."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array_of(AlterReplicaLogDirTopic)


@api_message
class AlterReplicaLogDirsRequest:
    """What to move where."""

    dirs: list[AlterReplicaLogDir] = array_of(AlterReplicaLogDir)


@structure
class AlterReplicaLogDirPartitionResult:
    """What became of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class AlterReplicaLogDirTopicResult:
    """What became of the partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array_of(
        AlterReplicaLogDirPartitionResult
    )


@api_message
class AlterReplicaLogDirsResponse:
    """What became of every partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array_of(AlterReplicaLogDirTopicResult)
