"""CreatePartitions: adds partitions to topics.

Version notes: 2 is flexible, 3 differs in its error codes only.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int16, int32, string, structure


@structure
class CreatePartitionsAssignment:
    """The replicas of one new partition, chosen by hand."""

    broker_ids: list[int] = array_of("int32")


@structure
class CreatePartitionsTopic:
    """A topic and how many partitions it shall have in all."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array_of(
        CreatePartitionsAssignment, nullable="0+"
    )


@api_message
class CreatePartitionsRequest:
    """Topics to enlarge."""

    topics: list[CreatePartitionsTopic] = array_of(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@structure
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@api_message
class CreatePartitionsResponse:
    """What became of every topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array_of(CreatePartitionsTopicResult)
