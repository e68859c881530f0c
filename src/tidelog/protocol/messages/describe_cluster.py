"""DescribeCluster: the id, the controller and the brokers of the cluster.

All versions are flexible. Version notes: 1 chooses brokers or controllers, 2 shows fenced brokers.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int8, int16, int32, string, structure


@api_message
class DescribeClusterRequest:
    """What to describe."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@structure
class DescribeClusterBroker:
    """A broker and where it listens."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@api_message
class DescribeClusterResponse:
    """The cluster and its brokers."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array_of(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
