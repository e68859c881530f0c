"""ElectLeaders: has the preferred replica of partitions lead, or any replica where nobody leads.

Version notes: 1 chooses the kind of election and has an error for the whole answer, 2 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int8, int16, int32, string, structure


@structure
class TopicPartitions:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array_of("int32")


@api_message
class ElectLeadersRequest:
    """Where to elect, null for everywhere; type 0 is preferred, 1 unclean."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array_of(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@structure
class PartitionResult:
    """What became of one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@structure
class ReplicaElectionResult:
    """What became of the partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array_of(PartitionResult)


@api_message
class ElectLeadersResponse:
    """What became of every partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array_of(ReplicaElectionResult)
