"""AlterReplicaLogDirs (key 34), versions 1 to 2.

Behaviour: a broker has one directory. A request for that directory succeeds without a move; any
other directory is LOG_DIR_NOT_FOUND. To use several disks, run a broker for each.
"""

from __future__ import annotations

from collections.abc import Generator

from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.tools import DiskContext


def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: DiskContext
) -> Generator[int, None, AlterReplicaLogDirsResponse]:
    may = context.authorize(Operation.ALTER, CLUSTER)
    results: dict[str, dict[int, ErrorCode]] = {}
    here: set[tuple[str, int]] = set()
    for partition in context.tools.replicas:
        here.add(partition.topic_partition)
        yield 1
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                if not may:
                    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                elif directory.path != context.tools.data_directory:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif (topic.name, index) not in here:
                    code = ErrorCode.REPLICA_NOT_AVAILABLE
                else:
                    code = ErrorCode.NONE
                results.setdefault(topic.name, {})[index] = code
                yield 1
            yield 1
        yield 1
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                name,
                [AlterReplicaLogDirPartitionResult(index, code) for index, code in codes.items()],
            )
            for name, codes in results.items()
        ]
    )
