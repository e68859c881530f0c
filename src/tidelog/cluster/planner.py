"""The controller's decisions as pure functions: an image and a command give changes and an answer.

Promises: no I/O, no clock, chance only through the given Random. A command that cannot be done
raises KafkaError with the code and, as far as they are known, the words that Apache Kafka's own
controller uses, because tools and tests of its users look at them.

What comes of brokers and replicas is decided in `failover`, `leadership` and `reassignment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.cluster import placement
from tidelog.cluster.changes import (
    BrokerConfigsChanged,
    Change,
    DeletionConfirmed,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterPartition,
    AlterScramCredentials,
    BalanceLeaders,
    BeginShutdown,
    Command,
    ConfirmDeletion,
    CreateAcls,
    CreatedTopic,
    CreateTopic,
    Decommission,
    DeleteAcls,
    DeletedTopic,
    DeleteTopic,
    ElectLeader,
    GiveUpReplicas,
    PlacementCommand,
    ProducerIdBlock,
    RaiseInternalTopics,
    Reassign,
    RegisterBroker,
    RemoveBroker,
    SetReplicationFactor,
    UnregisterBroker,
)
from tidelog.cluster.configs import (
    check_given,
    check_min_isr,
    check_together,
    plan_configs,
    unknown_topic,
    validated,
)
from tidelog.cluster.failover import (
    UNCLEAN,
    Plan,
    alter_partition,
    check_broker_epoch,
    give_up_replicas,
    register_broker,
    under_minimum,
    unregister_broker,
)
from tidelog.cluster.image import ImageView, TopicImage, unify_name
from tidelog.cluster.leadership import (
    balance_leaders,
    begin_shutdown,
    elect_leader,
    newly_allowed,
)
from tidelog.cluster.min_isr import MIN_ISR, default_min_isr, file_min_isr
from tidelog.cluster.names import check_topic_name
from tidelog.cluster.new_partitions import check_assignment, new_partition, place_on
from tidelog.cluster.reassignment import (
    decommission,
    raise_internal_topics,
    reassign,
    remove_broker,
    set_replication_factor,
)
from tidelog.cluster.security_plans import plan_security
from tidelog.config import BrokerConfig
from tidelog.config.overrides import parse_topic_overrides
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.random import Random
from tidelog.model import NO_TOPIC_ID

PRODUCER_IDS_PER_BLOCK: Final = 1000
PRODUCER_ID_MAX: Final = (1 << 63) - 1
# Apache Kafka's bound for one request.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000


@dataclass(slots=True)
class PlannerRules:
    """What the decisions depend on beside the image."""

    random: Random
    # The settings of the controller's own broker.
    config: BrokerConfig = field(default_factory=BrokerConfig)

    @property
    def topics_max(self) -> int:
        return self.config.get_int("cluster.topics.max")

    @property
    def partitions_max(self) -> int:
        return self.config.get_int("cluster.partitions.max")

    @property
    def default_partitions(self) -> int:
        return self.config.get_int("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        return self.config.get_int("default.replication.factor")


def plan(image: ImageView, command: Command, rules: PlannerRules) -> Plan:
    """Decide on one command; KafkaError where it cannot be done."""
    match command:
        case CreateTopic():
            return _create_topic(image, command, rules)
        case DeleteTopic():
            return _delete_topic(image, command)
        case ConfirmDeletion():
            return _confirm_deletion(image, command)
        case AddPartitions():
            return _add_partitions(image, command, rules)
        case AlterConfigs():
            return _alter_configs(image, command, rules)
        case AllocateProducerIds():
            return _allocate_producer_ids(image, command)
        case RegisterBroker():
            return register_broker(image, command, rules.config)
        case UnregisterBroker():
            return unregister_broker(image, command, rules.config)
        case AlterPartition():
            return alter_partition(image, command, rules.config)
        case GiveUpReplicas():
            return give_up_replicas(image, command, rules.config)
        case AlterScramCredentials() | CreateAcls() | DeleteAcls() | AlterClientQuotas():
            return plan_security(image, command, rules.config.store_keeps_secrets)
        case _:
            return _plan_placed(image, command, rules.config)


def _plan_placed(image: ImageView, command: PlacementCommand, config: BrokerConfig) -> Plan:
    """Decide on who leads and where replicas are, as somebody asked for it."""
    match command:
        case ElectLeader():
            return elect_leader(image, command, config)
        case BalanceLeaders():
            return balance_leaders(image, config)
        case BeginShutdown():
            return begin_shutdown(image, command, config)
        case Reassign():
            return reassign(image, command, config)
        case SetReplicationFactor():
            return set_replication_factor(image, command, config)
        case RaiseInternalTopics():
            return raise_internal_topics(image, config)
        case Decommission():
            return decommission(image, command, config)
        case RemoveBroker():
            return remove_broker(image, command, config)


def _alter_configs(image: ImageView, command: AlterConfigs, rules: PlannerRules) -> Plan:
    changes = plan_configs(image, command, rules.config)
    eligible = _eligible_then(image, changes, rules)
    if eligible or not any(each.name == UNCLEAN for each in command.changes):
        return Plan((*eligible, *changes))
    elected = newly_allowed(image, changes, rules.config)
    return elected._replace(changes=(*changes, *elected.changes))


def _eligible_then(
    image: ImageView, changes: Sequence[Change], rules: PlannerRules
) -> list[Change]:
    """Who is an eligible leader no more because these settings change a minimum."""
    found: list[Change] = []
    for change in changes:
        match change:
            case TopicConfigsChanged(name, configs):
                topic = image.topics[name]._replace(configs=configs)
                if configs.get(MIN_ISR) != image.topics[name].configs.get(MIN_ISR):
                    found += under_minimum(image, topic, rules.config, default_min_isr(image))
            case BrokerConfigsChanged("", configs):
                if configs.get(MIN_ISR) != image.broker_configs.get("", {}).get(MIN_ISR):
                    default = int(configs.get(MIN_ISR, file_min_isr(image)))
                    for topic in image.topics.values():
                        found += under_minimum(image, topic, rules.config, default)
            case _:
                pass
    return found


def refused_together(commands: Sequence[Command], rules: PlannerRules) -> KafkaError | None:
    """Why a request that makes these commands is refused as a whole; None where it is not."""
    created = sum(
        len(each.assignments) or _asked_partitions(each, rules)
        for each in commands
        if isinstance(each, CreateTopic)
    )
    return _excessive() if created > PARTITIONS_PER_REQUEST_MAX else None


def _asked_partitions(command: CreateTopic, rules: PlannerRules) -> int:
    return rules.default_partitions if command.partitions == -1 else max(0, command.partitions)


def _excessive() -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
    )


def _create_topic(image: ImageView, command: CreateTopic, rules: PlannerRules) -> Plan:
    _check_new_name(image, command.name)
    if len(image.topics) >= rules.topics_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster has {len(image.topics)} topics, which is its limit (cluster.topics.max).",
        )
    if command.assignments:
        replicas = _assigned_replicas(image, command)
    else:
        replicas = _placed_replicas(image, command, rules)
    _check_partition_count(image, len(replicas), rules)
    configs = _given_configs(command.configs)
    validated(lambda: parse_topic_overrides(configs))
    check_min_isr(configs, len(replicas[0]))
    topic = TopicImage(
        command.name,
        NO_TOPIC_ID if command.validate_only else rules.random.uuid(),
        tuple(new_partition(image, n, each) for n, each in enumerate(replicas)),
        configs,
    )
    answer = CreatedTopic(
        topic.name, topic.topic_id, len(replicas), topic.replication_factor, topic.configs
    )
    return Plan(() if command.validate_only else (TopicCreated(topic),), answer)


def _given_configs(given: Mapping[str, str | None]) -> dict[str, str]:
    check_given(given)
    configs = {name: value for name, value in given.items() if value is not None}
    check_together(configs, {})
    for name in sorted(given.keys() - configs.keys()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}"
        )
    return configs


def _check_new_name(image: ImageView, name: str) -> None:
    check_topic_name(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    unified = unify_name(name)
    if unified is not None and unified in image.unified_names:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {image.unified_names[unified]}",
        )


def _assigned_replicas(image: ImageView, command: CreateTopic) -> list[tuple[int, ...]]:
    """The replicas that the caller chose, for partitions 0, 1, 2 and so on."""
    for given, name in (
        (command.replication_factor, "replication factor"),
        (command.partitions, "numPartitions"),
    ):
        if given != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    replicas = [tuple(each) for _, each in sorted(command.assignments.items())]
    if sorted(command.assignments) != list(range(len(replicas))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    for partition, each in enumerate(replicas):
        check_assignment(image, partition, each, len(replicas[0]))
    return replicas


def _placed_replicas(
    image: ImageView, command: CreateTopic, rules: PlannerRules
) -> list[tuple[int, ...]]:
    """The replicas that round robin gives."""
    if command.replication_factor < -1 or command.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if command.partitions < -1 or command.partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    partitions = _asked_partitions(command, rules)
    factor = command.replication_factor
    if factor == -1:
        factor = rules.default_replication_factor
    # Looked at before the work is done, since the number is the caller's.
    _check_partition_count(image, partitions, rules)
    return place_on(
        image,
        range(partitions),
        factor,
        lambda brokers: placement.random_start(brokers, rules.random),
    )


def _check_partition_count(image: ImageView, added: int, rules: PlannerRules) -> None:
    if added > PARTITIONS_PER_REQUEST_MAX:
        raise _excessive()
    if image.partition_count + added > rules.partitions_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster has {image.partition_count} partition(s); {added} more would exceed its"
            f" limit of {rules.partitions_max} (cluster.partitions.max).",
        )


def _delete_topic(image: ImageView, command: DeleteTopic) -> Plan:
    name = command.name
    if command.topic_id is not None:
        name = image.topic_names.get(command.topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    topic = _existing_topic(image, name or "")
    change = TopicDeleted(topic.name, topic.topic_id, len(topic.partitions))
    return Plan((change,), DeletedTopic(topic.name, topic.topic_id))


def _confirm_deletion(image: ImageView, command: ConfirmDeletion) -> Plan:
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    changes = []
    for topic_id in command.topic_ids:
        holders = image.deleted.get(topic_id, ())
        if command.broker_id in holders:
            left = tuple(each for each in holders if each != command.broker_id)
            changes.append(DeletionConfirmed(topic_id, left))
    return Plan(tuple(changes))


def _existing_topic(image: ImageView, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise unknown_topic(name)
    return topic


def _add_partitions(image: ImageView, command: AddPartitions, rules: PlannerRules) -> Plan:
    topic = _existing_topic(image, command.topic)
    have = len(topic.partitions)
    if command.count == have:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if command.count < have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {have} partition(s); {command.count} would not"
            " be an increase.",
        )
    added = command.count - have
    _check_partition_count(image, added, rules)
    factor = topic.replication_factor
    if command.assignments is not None:
        if len(command.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only"
                f" {len(command.assignments)} assignment(s) were specified.",
            )
        replicas = [tuple(each) for each in command.assignments]
        for partition, each in enumerate(replicas, have):
            check_assignment(image, partition, each, factor)
    else:
        first = topic.partitions[0].replicas[0]
        replicas = place_on(
            image,
            range(have, command.count),
            factor,
            lambda brokers: placement.start_after(brokers, first),
        )
    states = tuple(new_partition(image, have + n, each) for n, each in enumerate(replicas))
    change = PartitionsAdded(topic.name, states)
    return Plan(() if command.validate_only else (change,))


def _allocate_producer_ids(image: ImageView, command: AllocateProducerIds) -> Plan:
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    first = image.next_producer_id
    after = first + PRODUCER_IDS_PER_BLOCK
    if after > PRODUCER_ID_MAX:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "There are no more producer ids.")
    change = ProducerIdsAllocated(command.broker_id, after)
    return Plan((change,), ProducerIdBlock(first, PRODUCER_IDS_PER_BLOCK))
