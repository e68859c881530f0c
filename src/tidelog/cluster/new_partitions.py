"""Where the replicas of new partitions are, and who leads them first: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from tidelog.cluster import placement
from tidelog.cluster.image import ImageView, PartitionState
from tidelog.cluster.placement import Start
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_LEADER


def place_on(
    image: ImageView,
    partitions: range,
    replication_factor: int,
    first: Callable[[list[int]], Start],
) -> list[tuple[int, ...]]:
    """Replicas on brokers that are there and stay; where these are too few, on the others, too.

    A broker that is away for a while is no reason to refuse a topic: as in Kafka.
    """
    known = {**image.absent, **image.brokers}
    if replication_factor > len(known):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target"
            f" replication factor of {replication_factor} cannot be reached because only"
            f" {len(known)} broker(s) are registered.",
        )
    there = sorted(each for each in image.brokers if _stays(image, each)) or sorted(image.brokers)
    if not there:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are"
            " currently fenced.",
        )
    racks = {each.id: each.rack or "" for each in known.values()}
    at_once = min(replication_factor, len(there))
    placed = placement.place(there, partitions, at_once, first(there), racks)
    others = sorted(known.keys() - set(there))
    return placement.lengthen(placed, others, replication_factor, racks)


def _stays(image: ImageView, broker_id: int) -> bool:
    """Whether a broker is there, and not about to stop."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.shutting_down


def check_assignment(
    image: ImageView, partition: int, replicas: Sequence[int], factor: int
) -> None:
    check_replicas(replicas, {*image.brokers, *image.absent}, factor)
    if not any(_stays(image, each) for each in replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment for partition"
            f" {partition} are fenced or in controlled shutdown.",
        )


def check_replicas(
    replicas: Sequence[int], known: Container[int], factor: int | None = None
) -> None:
    """KafkaError where a list of replicas makes no sense, or has not `factor` of them."""
    fault = None
    unknown = next((each for each in replicas if each not in known), None)
    if not replicas:
        fault = "an empty replica list."
    elif len(set(replicas)) != len(replicas):
        again = next(each for each in replicas if replicas.count(each) > 1)
        fault = f"the broker {again} more than once."
    elif factor not in (None, len(replicas)):
        fault = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous"
            f" partitions, which have {factor} replica(s)."
        )
    elif unknown is not None:
        fault = f"broker {unknown}, but no such broker is registered."
    if fault is not None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {fault}",
        )


def new_partition(image: ImageView, partition: int, replicas: tuple[int, ...]) -> PartitionState:
    alive = tuple(each for each in replicas if each in image.brokers)
    in_sync = tuple(each for each in alive if _stays(image, each)) or alive
    return PartitionState(partition, in_sync[0] if in_sync else NO_LEADER, 0, replicas, in_sync)
