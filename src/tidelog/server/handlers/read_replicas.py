"""Where a consumer reads that names its rack: at an in-sync replica there (KIP-392)."""

from __future__ import annotations

from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.replication.partition import Partition
from tidelog.replication.reading import PartitionRead, Reader
from tidelog.server.tools import DataContext

# Only a client that knows of this can be told to go elsewhere.
VERSION_WITH_RACKS = 11
_LEADER_ALONE = "leader"


def reader_of(context: DataContext, *, is_replica: bool) -> Reader:
    """A consumer that knows of followers may read from them, and be sent to one in its rack."""
    if is_replica:
        return Reader.REPLICA
    return Reader.ANYWHERE if context.version >= VERSION_WITH_RACKS else Reader.AT_LEADERS


def reader_rack(request: FetchRequest, context: DataContext) -> str:
    """The rack in which a consumer should find a replica; empty where that is not asked for."""
    selector = context.tools.replicas.config.get("replica.selector.class")
    return "" if selector == _LEADER_ALONE else request.rack_id


def sent_nearer(
    partition: Partition, rack: str, fetch_offset: int, context: DataContext
) -> PartitionRead | None:
    """Nothing but where the consumer should read; None where the leader is as good."""
    replica = _nearer_replica(partition, rack, fetch_offset, context)
    if replica is None:
        return None
    stable, start = partition.last_stable_offset, partition.leading.start_to_tell()
    return PartitionRead(None, partition.high_watermark, stable, start, preferred_replica=replica)


def _nearer_replica(
    partition: Partition, rack: str, fetch_offset: int, context: DataContext
) -> int | None:
    """The replica in the consumer's rack that has what it asks for; None where the leader is best.

    A follower that is not in sync would fall further behind its leader than consumers like, and
    one without the offset would send the consumer back.
    """
    in_sync, brokers = partition.leading.in_sync, context.image.brokers
    leader = brokers.get(context.tools.broker_id)
    if in_sync is None or leader is None or leader.rack == rack:
        return None
    listener = context.connection.listener.name
    best: tuple[int, float, int] | None = None
    for replica in in_sync.isr:
        broker, follower = brokers.get(replica), in_sync.followers.get(replica)
        if broker is None or follower is None or broker.rack != rack:
            continue
        if broker.endpoint(listener) is None:
            continue
        if follower.end >= fetch_offset and 0 <= follower.log_start <= fetch_offset:
            found = (follower.end, follower.caught_up_at, replica)
            best = found if best is None else max(best, found)
    return None if best is None else best[2]
