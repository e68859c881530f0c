"""The controller's decisions on where replicas are: pure functions, after KIP-455.

A move is in the partition's state and nowhere else, so it survives everybody's crash: `replicas`
has the new ones first, in their order, then those that will go. New replicas enter the ISR as all
do, by fetching and a proposal of the leader. With the proposal that brings the last of them in, the
move is complete (`failover.completed`). Until then the old replicas stay what they were, so nothing
that is committed depends on the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from tidelog.cluster.changes import (
    BrokerRemoved,
    Change,
    DeletionConfirmed,
    PartitionsChanged,
    TopicConfigsChanged,
)
from tidelog.cluster.commands import (
    Decommission,
    Moving,
    Reassign,
    RemoveBroker,
    SetReplicationFactor,
)
from tidelog.cluster.elections import Circumstances, decide
from tidelog.cluster.failover import (
    Electorate,
    Plan,
    completed,
    everywhere,
    in_portions,
    under,
)
from tidelog.cluster.image import ImageView, MetadataImage, PartitionState, TopicImage
from tidelog.cluster.leadership import partition_of
from tidelog.cluster.min_isr import MIN_ISR, UNSET, default_min_isr
from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.cluster.new_partitions import check_replicas
from tidelog.cluster.placement import Loads
from tidelog.config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError

INTERNAL_FACTOR: Final = 3


def may_delete_replica(
    image: MetadataImage, broker_id: int, broker_epoch: int, topic_id: UUID, partition: int
) -> bool:
    """Whether a broker may delete the files of a replica because the replica was moved away.

    Only an image that knows the broker in its present life is new enough to say so: an older one
    may be from before the replica came here. Of a topic that is not in the image, it says nothing;
    that needs a tombstone.
    """
    own = image.brokers.get(broker_id)
    name = image.topic_names.get(topic_id)
    if own is None or own.epoch != broker_epoch or name is None:
        return False
    state = image.partition(name, partition)
    return state is not None and broker_id not in state.replicas


def reassign(image: ImageView, command: Reassign, config: BrokerConfig) -> Plan:
    """Begin to move a partition, or move it somewhere else, or stop that."""
    topic, state = partition_of(image, command.topic, command.partition)
    if command.replicas is None:
        if not state.adding and not state.removing:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        target = _before(state)
    else:
        target = tuple(command.replicas)
        _check_target(image, state, target, command.allow_factor_change)
    electorate = Electorate(image, config)
    moved = _moved(state, target, partial(electorate.circumstances, topic))
    return Plan(() if moved is None else (PartitionsChanged(topic.name, (moved,)),))


def set_replication_factor(
    image: ImageView, command: SetReplicationFactor, config: BrokerConfig
) -> Plan:
    """Every partition of a topic gets or gives up replicas."""
    topic = image.topics.get(command.topic)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {command.topic}")
    there = _homes(image)
    if not 0 < command.factor <= len(there):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Topic {topic.name} cannot have {command.factor} replica(s) of each partition:"
            f" {len(there)} broker(s) are there for them.",
        )
    return _spread(image, [topic], lambda state: command.factor, config)


def raise_internal_topics(image: ImageView, config: BrokerConfig) -> Plan:
    """Internal topics get up to three replicas as brokers join.

    A minimum that an older version stored with the topic is dropped: it was meant for fewer.
    """
    factor = min(INTERNAL_FACTOR, len(_homes(image)))
    topics = [
        image.topics[name]
        for name in sorted(INTERNAL_TOPICS & image.topics.keys())
        if any(_is_below(state, factor) for state in image.topics[name].partitions)
    ]
    if not topics:
        return Plan(())
    moves = _spread(
        image, topics, lambda state: factor if _is_below(state, factor) else None, config
    )
    configs: list[Change] = []
    for topic in topics:
        # Where somebody is an eligible leader by it, it is dropped another time.
        if MIN_ISR in topic.configs and not any(state.elr for state in topic.partitions):
            kept = {name: held for name, held in topic.configs.items() if name != MIN_ISR}
            configs.append(TopicConfigsChanged(topic.name, kept))
    return Plan((*configs, *moves.changes))


def decommission(image: ImageView, command: Decommission, config: BrokerConfig) -> Plan:
    """Move every replica of a broker to another one."""
    leaving = command.broker_id
    if leaving not in image.brokers and leaving not in image.absent:
        raise _not_registered(leaving)
    return _spread(
        image,
        list(image.topics.values()),
        lambda state: len(state.target) if leaving in state.target else None,
        config,
        leaving,
    )


def remove_broker(image: ImageView, command: RemoveBroker, config: BrokerConfig) -> Plan:
    """Forget a broker, which must be stopped and hold nothing.

    Its file may have had the largest minimum of replicas in sync. Where a smaller one is reached,
    nobody else is eligible to lead any more.
    """
    broker_id = command.broker_id
    if broker_id in image.brokers:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is running. Stop it first; then remove it.",
        )
    if broker_id not in image.absent:
        raise _not_registered(broker_id)
    held = sum(
        broker_id in state.replicas for topic in image.topics.values() for state in topic.partitions
    )
    if held:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} has replicas of {held} partition(s). Move them to other brokers"
            f" first: `tidelog cluster decommission {broker_id}`.",
        )
    confirmed = (
        DeletionConfirmed(topic_id, tuple(each for each in holders if each != broker_id))
        for topic_id, holders in image.deleted.items()
        if broker_id in holders
    )
    without = image.absent[broker_id]._replace(min_isr=UNSET)
    electorate = Electorate(image, config, default_min_isr(image, without))
    return everywhere(image, partial(under, electorate), *confirmed, BrokerRemoved(broker_id))


def _not_registered(broker_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered."
    )


def _before(state: PartitionState) -> tuple[int, ...]:
    """The replicas that the partition had before it was moved."""
    return tuple(each for each in state.replicas if each not in state.adding)


def _check_target(
    image: ImageView, state: PartitionState, target: Sequence[int], allow_factor_change: bool
) -> None:
    # One that is a replica already may be away.
    check_replicas(target, {*state.replicas, *image.brokers})
    if not allow_factor_change and len(target) != state.replication_factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {state.replication_factor} to {len(target)}",
        )


def _moved(
    state: PartitionState,
    target: Sequence[int],
    circumstances_of: Callable[[PartitionState], Circumstances],
) -> PartitionState | None:
    """The state in which the partition moves to this target; None where it does so already.

    Replicas that an earlier move was adding and this one does not want are dropped at once.
    """
    before = _before(state)
    removing = tuple(each for each in before if each not in target)
    replicas = (*target, *removing)
    new = state._replace(
        replicas=replicas,
        adding=tuple(each for each in target if each not in before),
        removing=removing,
        isr=tuple(each for each in state.isr if each in replicas),
        elr=tuple(each for each in state.elr if each in replicas),
        last_known_elr=tuple(each for each in state.last_known_elr if each in replicas),
    )
    decision = decide(new, replace(circumstances_of(new), unclean=False))
    loses_eligible = bool(state.elr) and not (new.isr or new.elr)
    if (
        (state.isr and not new.isr)
        or loses_eligible
        or (decision is not None and decision.may_have_lost)
    ):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to move partition {state.partition} there: only replicas that would be dropped"
            " are in sync, and any other leader would lack records.",
        )
    after = new if decision is None else decision.state
    done = completed(after._replace(partition_epoch=state.partition_epoch), circumstances_of)
    dropped = set(state.replicas) - set(done.replicas)
    new_epoch = bool(dropped) or done.leader != state.leader
    done = done._replace(leader_epoch=state.leader_epoch + new_epoch)
    return None if done == state else done._replace(partition_epoch=state.partition_epoch + 1)


def _homes(image: ImageView, leaving: int | None = None) -> dict[int, str]:
    """The brokers that can be given replicas, and their racks."""
    return {
        each.id: each.rack or ""
        for each in image.brokers.values()
        if not each.shutting_down and each.id != leaving
    }


def _is_below(state: PartitionState, factor: int) -> bool:
    return len(state.target) < factor


def _spread(
    image: ImageView,
    topics: Sequence[TopicImage],
    factor_of: Callable[[PartitionState], int | None],
    config: BrokerConfig,
    leaving: int | None = None,
) -> Plan:
    """Bring partitions to their factor, on brokers that stay."""
    homes = _homes(image, leaving)
    racks = {each.id: each.rack or "" for each in (*image.absent.values(), *image.brokers.values())}
    loads = Loads(homes)
    for topic in image.topics.values():
        for state in topic.partitions:
            for replica in state.target:
                loads.add(replica)
    electorate = Electorate(image, config)
    changes: list[Change] = []
    count = 0
    for topic in topics:
        states = []
        for state in topic.partitions:
            factor = factor_of(state)
            if factor is None:
                continue
            target = _target(state, factor, leaving, loads, racks)
            moved = _moved(state, target, partial(electorate.circumstances, topic))
            if moved is not None:
                states.append(moved)
        count += len(states)
        changes += in_portions(topic.name, states)
    return Plan(tuple(changes), Moving(count))


def _target(
    state: PartitionState, factor: int, leaving: int | None, loads: Loads, racks: dict[int, str]
) -> list[int]:
    """The replicas that stay, those in sync before others, and further ones where some lack."""
    stay = [each for each in state.target if each != leaving]
    if len(stay) > factor:
        kept = sorted(stay, key=lambda each: each not in state.isr)[:factor]
        stay = [each for each in stay if each in kept]
    while len(stay) < factor:
        further = loads.choose(stay, racks)
        if further is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Partition {state.partition} needs {factor} replica(s), and there are not enough"
                " other brokers for them. Add a broker, or lower the replication factor first.",
            )
        stay.append(further)
    return stay
