"""The controller's decisions on brokers that come and go, and on proposed ISRs: pure functions.

A broker that is gone leaves every ISR; one that comes back in a new life was gone and is back, in
one step. What it may have lost is judged first (`lives`), who leads afterwards (`elections`).

The changes come in an order in which they can be written in steps: each state of a partition by
itself, and what is known of the broker last. A controller that finds the broker as it was known
before does the whole again, and finds nothing to do where it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from tidelog.cluster.changes import (
    BrokerGone,
    BrokerRegistered,
    Change,
    PartitionsChanged,
)
from tidelog.cluster.commands import (
    DONE,
    AlterPartition,
    Answer,
    GiveUpReplicas,
    PartitionDecided,
    RegisterBroker,
    UnregisterBroker,
)
from tidelog.cluster.elections import Circumstances, Decision, decide, leaves, returns
from tidelog.cluster.image import BrokerRegistration, ImageView, PartitionState, TopicImage
from tidelog.cluster.lives import may_have_lost_records
from tidelog.cluster.min_isr import default_min_isr, min_isr_of
from tidelog.config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError

# So that one change is far below what a transaction takes.
STATES_PER_CHANGE: Final = 250
UNCLEAN: Final = "unclean.leader.election.enable"


class Loss(NamedTuple):
    """A partition leads on although committed records may be missing; somebody must hear of it."""

    topic: str
    state: PartitionState
    # The replicas that had them.
    lost_by: tuple[int, ...]


class Plan(NamedTuple):
    """What a command changes, in the order in which it is written, and what is answered then."""

    changes: tuple[Change, ...]
    answer: Answer = DONE
    # What an operator must hear of.
    losses: tuple[Loss, ...] = ()


class Electorate:
    """Who can be elected in one image, and by which rules."""

    def __init__(
        self, image: ImageView, config: BrokerConfig, default_isr_min: int | None = None
    ) -> None:
        self._default_min_isr = (
            default_min_isr(image) if default_isr_min is None else default_isr_min
        )
        self._default_unclean = config.get_bool(UNCLEAN)
        self.altered(image.broker_configs.get("", {}))
        self.can_lead = {each.id for each in image.brokers.values() if not each.shutting_down}
        self.may_stay = {each.id for each in image.brokers.values() if each.shutting_down}
        # The partitions of a topic mostly share theirs.
        self._found: dict[tuple[str, int], Circumstances] = {}
        self.lossy: frozenset[int] = frozenset()
        self.emptied: frozenset[int] = frozenset()

    def altered(self, configs: Mapping[str, str]) -> None:
        """These are the settings of all brokers."""
        self._unclean = _is_true(configs.get(UNCLEAN), self._default_unclean)

    def without(self, broker_id: int) -> None:
        """The broker is gone."""
        self.can_lead.discard(broker_id)
        self.may_stay.discard(broker_id)

    def with_new_life(self, known: BrokerRegistration | None, now: BrokerRegistration) -> None:
        """The broker is here again, after the life in which it was known."""
        self.may_stay.discard(now.id)
        self.can_lead.add(now.id)
        if known is not None and may_have_lost_records(known, now):
            self.lossy = frozenset({now.id})
            if known.directory_id != now.directory_id:
                self.emptied = self.lossy

    def circumstances(self, topic: TopicImage, state: PartitionState) -> Circumstances:
        key = (topic.name, state.replication_factor)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._circumstances(topic, state.replication_factor)
        return found

    def _circumstances(self, topic: TopicImage, replication_factor: int) -> Circumstances:
        return Circumstances(
            can_lead=self.can_lead,
            min_isr=min_isr_of(topic.configs, self._default_min_isr, replication_factor),
            lossy=self.lossy,
            emptied=self.emptied,
            unclean=_is_true(topic.configs.get(UNCLEAN), self._unclean),
            may_stay=self.may_stay,
        )


def _is_true(value: str | None, default: bool) -> bool:
    return default if value is None else value.strip().lower() == "true"


def register_broker(image: ImageView, command: RegisterBroker, config: BrokerConfig) -> Plan:
    """The broker is alive; it leads what only it can lead, and joins ISRs by fetching."""
    now = command.registration
    known = image.brokers.get(now.id)
    if known is not None and known.epoch >= now.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {now.id} is registered with epoch {known.epoch}, got {now.epoch}.",
        )
    electorate = Electorate(image, config, default_min_isr(image, now))
    electorate.with_new_life(known or image.absent.get(now.id), now)

    def judge(topic: TopicImage, state: PartitionState) -> Decision | None:
        if now.id in state.replicas:
            return returns(state, now.id, electorate.circumstances(topic, state))
        # Its file may lower the minimum.
        return under(electorate, topic, state)

    return everywhere(image, judge, BrokerRegistered(now))


def unregister_broker(image: ImageView, command: UnregisterBroker, config: BrokerConfig) -> Plan:
    """The broker is gone; what it led goes to the next in-sync replica that is alive, or waits."""
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    electorate = Electorate(image, config)
    electorate.without(command.broker_id)

    def judge(topic: TopicImage, state: PartitionState) -> Decision | None:
        if command.broker_id not in state.isr:
            return None
        return leaves(state, {command.broker_id}, electorate.circumstances(topic, state))

    return everywhere(image, judge, BrokerGone(command.broker_id))


def give_up_replicas(image: ImageView, command: GiveUpReplicas, config: BrokerConfig) -> Plan:
    """The broker lives, some of its replicas do not: they leave the ISR and the ELR.

    A sole replica stays as it is: there is nobody else to lead.
    """
    broker_id = command.broker_id
    check_broker_epoch(image, broker_id, command.broker_epoch)
    electorate = Electorate(image, config)
    electorate.without(broker_id)
    electorate.lossy = frozenset({broker_id})
    given_up = set(command.replicas)

    def judge(topic: TopicImage, state: PartitionState) -> Decision | None:
        if (topic.topic_id, state.partition) not in given_up or len(state.replicas) == 1:
            return None
        if command.damaged:
            return _without_damaged(state, broker_id, electorate.circumstances(topic, state))
        if broker_id not in (*state.isr, *state.elr):
            return None
        return leaves(state, {broker_id}, electorate.circumstances(topic, state))

    return everywhere(image, judge)


def _without_damaged(
    state: PartitionState, broker_id: int, circumstances: Circumstances
) -> Decision | None:
    """What follows where another one leads; else the replica serves what it has."""
    left = leaves(state, {broker_id}, replace(circumstances, unclean=False))
    after = state if left is None else left.state
    if broker_id not in state.replicas or not after.has_leader or (left and left.may_have_lost):
        return None
    assert after.leader != broker_id, "it is not among those who can lead"
    return Decision(
        after._replace(
            leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1
        )
    )


def alter_partition(image: ImageView, command: AlterPartition, config: BrokerConfig) -> Plan:
    """Decide on a leader's proposal; the answer has the state that holds then."""
    topic, state = _proposed_for(image, command)
    proposal = command.proposal
    if proposal.broker_ids == frozenset(state.isr):
        # Perhaps an earlier try of the same, whose answer was lost.
        return Plan((), PartitionDecided(state))
    if proposal.partition_epoch < state.partition_epoch:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The state has partition epoch {state.partition_epoch}, not"
            f" {proposal.partition_epoch}.",
        )
    _check_members(image, command, state)
    electorate = Electorate(image, config)
    circumstances = replace(electorate.circumstances(topic, state), unclean=False)
    decision = decide(state, circumstances, proposal.broker_ids)
    if decision is None:
        return Plan((), PartitionDecided(state))
    decided = completed(decision.state, partial(electorate.circumstances, topic))
    if decided.leader_epoch != state.leader_epoch:
        # One step, also where a leader that shuts down is replaced and the move is complete.
        decided = decided._replace(leader_epoch=state.leader_epoch + 1)
    return Plan((PartitionsChanged(topic.name, (decided,)),), PartitionDecided(decided))


def completed(
    state: PartitionState, circumstances_of: Callable[[PartitionState], Circumstances]
) -> PartitionState:
    """The state with its move at an end, if all replicas that it shall have are in sync.

    Who is removed leads and fetches no more: the epoch that it knows is over.
    """
    target = state.target
    if not (state.adding or state.removing) or not set(target) <= set(state.isr):
        return state
    done = state._replace(replicas=target, adding=(), removing=())
    decision = decide(done, replace(circumstances_of(done), unclean=False), target)
    after = done if decision is None else decision.state
    new_epoch = bool(state.removing) or after.leader != state.leader
    return after._replace(
        leader_epoch=state.leader_epoch + new_epoch, partition_epoch=state.partition_epoch
    )


def under_minimum(
    image: ImageView, topic: TopicImage, config: BrokerConfig, default: int
) -> list[Change]:
    """What changes with another minimum: where it is reached now, others are not eligible any more.

    Written before the minimum itself: from then on the leader commits without them.
    """
    electorate = Electorate(image, config, default)
    decided = [under(electorate, topic, state) for state in topic.partitions]
    return [*in_portions(topic.name, [each.state for each in decided if each is not None])]


def under(electorate: Electorate, topic: TopicImage, state: PartitionState) -> Decision | None:
    """What a smaller minimum changes: where it is reached, nobody is eligible beside the ISR."""
    if not state.elr:
        return None
    return decide(state, replace(electorate.circumstances(topic, state), unclean=False))


def check_broker_epoch(image: ImageView, broker_id: int, broker_epoch: int) -> None:
    """KafkaError unless the broker lives in this epoch."""
    registration = image.brokers.get(broker_id)
    if registration is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {broker_id} is registered."
        )
    if registration.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} has broker epoch {registration.epoch}, not {broker_epoch}.",
        )


def _proposed_for(image: ImageView, command: AlterPartition) -> tuple[TopicImage, PartitionState]:
    """The partition that a proposal is for; KafkaError where the proposer does not lead it."""
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    proposal = command.proposal
    name = image.topic_names.get(command.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    topic = image.topics[name]
    if not 0 <= command.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = topic.partitions[command.partition]
    if (
        proposal.leader_epoch > state.leader_epoch
        or proposal.partition_epoch > state.partition_epoch
    ):
        # The leader has seen what this controller has not: it is not the controller any more.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < state.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"The leader epoch is {state.leader_epoch}, not {proposal.leader_epoch}.",
        )
    if state.leader != command.broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker {command.broker_id} does not lead the partition."
        )
    return topic, state


def _check_members(image: ImageView, command: AlterPartition, state: PartitionState) -> None:
    proposal = command.proposal
    if len(proposal.broker_ids) != len(proposal.isr):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The ISR names a replica more than once.")
    if not proposal.broker_ids <= set(state.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The ISR has members that are not replicas.")
    if state.leader not in proposal.broker_ids:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The leader is missing in the ISR.")
    for member in proposal.isr:
        fault = _ineligible(image, member.broker_id, member.broker_epoch)
        # A leader that shuts down goes on leading until another one can.
        if fault is not None and not (fault == _SHUTS_DOWN and member.broker_id == state.leader):
            raise KafkaError(
                ErrorCode.INELIGIBLE_REPLICA, f"Broker {member.broker_id} may not join: {fault}."
            )


_SHUTS_DOWN: Final = "it is shutting down"


def _ineligible(image: ImageView, broker_id: int, broker_epoch: int) -> str | None:
    """Why a replica may not be in an ISR; None where it may."""
    registration = image.brokers.get(broker_id)
    if registration is None:
        return "it is not registered"
    if registration.epoch != broker_epoch:
        return f"it has broker epoch {registration.epoch}, not {broker_epoch}"
    return _SHUTS_DOWN if registration.shutting_down else None


def everywhere(
    image: ImageView,
    judge: Callable[[TopicImage, PartitionState], Decision | None],
    *last: Change,
) -> Plan:
    """What is decided on every partition, and at the end what is known then."""
    changes: list[Change] = []
    losses: list[Loss] = []
    for topic in image.topics.values():
        decided = [judge(topic, state) for state in topic.partitions]
        made = [each for each in decided if each is not None]
        losses += (
            Loss(topic.name, each.state, each.lost_by) for each in made if each.may_have_lost
        )
        changes += in_portions(topic.name, [each.state for each in made])
    return Plan((*changes, *last), losses=tuple(losses))


def in_portions(topic: str, states: list[PartitionState]) -> Iterator[PartitionsChanged]:
    for start in range(0, len(states), STATES_PER_CHANGE):
        yield PartitionsChanged(topic, tuple(states[start : start + STATES_PER_CHANGE]))
