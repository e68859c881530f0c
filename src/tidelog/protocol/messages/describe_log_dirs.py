"""DescribeLogDirs: the directories of a broker's logs, and what lies in them.

Version notes: 2 is flexible, 3 has an error for the whole answer, 4 the size of the volume,
5 whether the directory takes no new partitions.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int16, int32, int64, string, structure


@structure
class DescribableLogDirTopic:
    """The partitions of one topic to describe."""

    topic: str = string()
    partitions: list[int] = array_of("int32")


@api_message
class DescribeLogDirsRequest:
    """Which partitions to describe; null stands for all."""

    topics: list[DescribableLogDirTopic] | None = array_of(DescribableLogDirTopic, nullable="0+")


@structure
class DescribeLogDirsPartition:
    """A partition's log; a future one is on its way to another directory."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@structure
class DescribeLogDirsTopic:
    """The partitions of one topic in a directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array_of(DescribeLogDirsPartition)


@structure
class DescribeLogDirsResult:
    """One directory."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array_of(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


@api_message
class DescribeLogDirsResponse:
    """The directories."""

    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array_of(DescribeLogDirsResult)
