"""DescribeLogDirs (key 35), versions 1 to 5.

Behaviour: returns the data directory, the total and free space of its volume, and the bytes of each
requested partition that is here, or of all. Partitions that are not here are left out, as in Kafka.
Versions: 3 an error for the whole answer, 4 the volume, 5 `is_cordoned` (never).
"""

from __future__ import annotations

from collections.abc import Generator

from tidelog.errors import ErrorCode
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.tools import DiskContext


def describe_log_dirs(
    request: DescribeLogDirsRequest, context: DiskContext
) -> Generator[int, None, DescribeLogDirsResponse]:
    if not context.authorize(Operation.DESCRIBE, CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None if request.topics is None else set[tuple[str, int]]()
    for asked in request.topics or ():
        for index in asked.partitions:
            assert wanted is not None
            wanted.add((asked.topic, index))
            yield 1
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in context.tools.replicas:
        yield 1
        if wanted is not None and partition.topic_partition not in wanted:
            continue
        name, index = partition.topic_partition
        lag = max(0, partition.high_watermark - partition.log.log_end_offset)
        described = DescribeLogDirsPartition(index, partition.log.segments.size_bytes, lag)
        topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(described)
    disk, path = context.tools.disk, context.tools.data_directory
    result = DescribeLogDirsResult(
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=disk.total_bytes(path),
        usable_bytes=disk.free_bytes(path),
    )
    return DescribeLogDirsResponse(results=[result])
