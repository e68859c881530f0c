"""The controller's decisions on who leads where nobody came or went: pure functions.

Elections that somebody asked for, the return to preferred leaders, and a broker that is about to
stop. The words and codes are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidelog.cluster.changes import (
    BrokerConfigsChanged,
    BrokerRegistered,
    Change,
    PartitionsChanged,
    TopicConfigsChanged,
)
from tidelog.cluster.commands import BeginShutdown, ElectLeader
from tidelog.cluster.elections import Decision, decide, leaves
from tidelog.cluster.failover import (
    Electorate,
    Loss,
    Plan,
    check_broker_epoch,
    everywhere,
)
from tidelog.cluster.image import ImageView, PartitionState, TopicImage
from tidelog.config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError

# Kafka's bound: a rebalance of leaders must not hold up everything else.
BALANCED_AT_ONCE: Final = 1000


def partition_of(image: ImageView, name: str, partition: int) -> tuple[TopicImage, PartitionState]:
    """A topic and one of its partitions; KafkaError where there is none."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition}"
        )
    return topic, topic.partitions[partition]


def elect_leader(image: ImageView, command: ElectLeader, config: BrokerConfig) -> Plan:
    """The preferred replica leads, or with `unclean` one that may lack records."""
    topic, state = partition_of(image, command.topic, command.partition)
    not_needed = state.has_leader if command.unclean else state.leader == state.replicas[0]
    if not_needed:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    circumstances = replace(
        Electorate(image, config).circumstances(topic, state),
        unclean=command.unclean,
        prefer_first=not command.unclean,
    )
    decision = decide(state, circumstances)
    if command.unclean and (decision is None or not decision.state.has_leader):
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    if not command.unclean and (decision is None or decision.state.leader != state.replicas[0]):
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    assert decision is not None
    loss = Loss(topic.name, decision.state, decision.lost_by)
    return Plan(
        (PartitionsChanged(topic.name, (decision.state,)),),
        losses=(loss,) if decision.may_have_lost else (),
    )


def balance_leaders(image: ImageView, config: BrokerConfig) -> Plan:
    """Preferred replicas that are in sync lead again, a bounded number of them at once."""
    electorate = Electorate(image, config)
    left = BALANCED_AT_ONCE

    def judge(topic: TopicImage, state: PartitionState) -> Decision | None:
        nonlocal left
        preferred = state.replicas[0]
        if (
            left == 0
            or not state.has_leader
            or state.leader == preferred
            or preferred not in state.isr
            or preferred not in electorate.can_lead
        ):
            return None
        left -= 1
        circumstances = electorate.circumstances(topic, state)
        return decide(state, replace(circumstances, prefer_first=True, unclean=False))

    return everywhere(image, judge)


def newly_allowed(image: ImageView, changes: Iterable[Change], config: BrokerConfig) -> Plan:
    """Who leads because settings that are about to change allow unclean elections.

    Only where nobody leads: that is what somebody allows them for.
    """
    electorate = Electorate(image, config)
    configs: dict[str, Mapping[str, str]] = {}
    for change in changes:
        if isinstance(change, TopicConfigsChanged):
            configs[change.topic] = change.configs
        elif isinstance(change, BrokerConfigsChanged) and change.broker == "":
            electorate.altered(change.configs)
            configs = {name: topic.configs for name, topic in image.topics.items()}

    def judge(topic: TopicImage, state: PartitionState) -> Decision | None:
        if topic.name not in configs or state.has_leader:
            return None
        topic = topic._replace(configs=configs[topic.name])
        decision = decide(state, electorate.circumstances(topic, state))
        return decision if decision is not None and decision.state.has_leader else None

    return everywhere(image, judge)


def begin_shutdown(image: ImageView, command: BeginShutdown, config: BrokerConfig) -> Plan:
    """Others lead what the broker led, where one can.

    It is known to be shutting down before anything else, so that nothing is given back to it. Where
    nobody else can lead it goes on until it is gone: that is shorter for its clients.
    """
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    registration = image.brokers[command.broker_id]._replace(shutting_down=True)
    electorate = Electorate(image, config)
    electorate.without(command.broker_id)

    def judge(topic: TopicImage, state: PartitionState) -> Decision | None:
        if command.broker_id not in state.isr:
            return None
        circumstances = replace(electorate.circumstances(topic, state), unclean=False)
        decision = leaves(state, {command.broker_id}, circumstances)
        return decision if decision is not None and decision.state.has_leader else None

    handed_over = everywhere(image, judge)
    return handed_over._replace(changes=(BrokerRegistered(registration), *handed_over.changes))
