"""Three brokers and a topic on some of them, as the planner sees them."""

from __future__ import annotations

from tests.unit.cluster.helpers import ENDPOINTS, make_rules
from tidelog.cluster.commands import (
    AlterPartition,
    Command,
    CreateTopic,
    Member,
    Proposal,
    RegisterBroker,
    UnregisterBroker,
)
from tidelog.cluster.image import BrokerRegistration, MetadataImage, PartitionState
from tidelog.cluster.planner import plan

TOPIC = "orders"


def life(broker_id: int, epoch: int, **changes: object) -> BrokerRegistration:
    """One on a machine that was not restarted, with the directory that it always had."""
    usual = BrokerRegistration(
        broker_id, epoch, None, ENDPOINTS, f"directory-{broker_id}", "boot", "mount"
    )
    return usual._replace(**changes)


def cluster(*replicas: int, **configs: str) -> MetadataImage:
    """Three brokers, and a topic with one partition on some of them."""
    image = MetadataImage(1, "cluster", brokers={n: life(n, 100 + n) for n in (1, 2, 3)})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    return after(image, CreateTopic(TOPIC, assignments={0: replicas}, configs=settings))


def after(image: MetadataImage, *commands: Command) -> MetadataImage:
    for command in commands:
        image = image.apply_all(
            plan(image, command, make_rules(image.version)).changes, image.version + 1
        )
    return image


def state_of(image: MetadataImage) -> PartitionState:
    return image.topics[TOPIC].partitions[0]


def gone(image: MetadataImage, *broker_ids: int) -> MetadataImage:
    for each in broker_ids:
        image = after(image, UnregisterBroker(each, image.brokers[each].epoch))
    return image


def back(image: MetadataImage, broker_id: int, **changes: object) -> MetadataImage:
    return after(image, RegisterBroker(life(broker_id, 1000 + image.version, **changes)))


def propose(
    image: MetadataImage, *isr: int, leader: int | None = None, **changes: int
) -> AlterPartition:
    """What the leader proposes if it knows all that is in the image."""
    state = state_of(image)
    proposer = state.leader if leader is None else leader
    epochs = {each: image.brokers[each].epoch for each in image.brokers}
    members = tuple(Member(each, changes.get(f"epoch_{each}", epochs.get(each, 5))) for each in isr)
    return AlterPartition(
        proposer,
        changes.get("broker_epoch", epochs.get(proposer, 5)),
        image.topics[TOPIC].topic_id,
        0,
        Proposal(
            changes.get("leader_epoch", state.leader_epoch),
            changes.get("partition_epoch", state.partition_epoch),
            members,
        ),
    )
