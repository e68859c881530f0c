"""What can be asked of the controller, and what it answers. One command is done wholly or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.cluster.image import BrokerRegistration, PartitionState
from tidelog.model import ConfigOperation
from tidelog.security.acl import AclBinding, AclFilter
from tidelog.security.credentials import ScramCredential
from tidelog.security.quota_entities import QuotaEntity

_NONE: Final[Mapping[Any, Any]] = {}


class ConfigChange(NamedTuple):
    """One setting to change, as it was asked for; `value` is None for DELETE."""

    name: str
    value: str | None
    operation: int = ConfigOperation.SET


class RegisterBroker(NamedTuple):
    """A broker whose ephemeral node is in the store: it is alive from here on."""

    registration: BrokerRegistration


class UnregisterBroker(NamedTuple):
    """A broker whose ephemeral node is gone."""

    broker_id: int
    broker_epoch: int


class CreateTopic(NamedTuple):
    """`partitions` and `replication_factor` are -1 for the default, and with `assignments`
    (partition -> brokers, the preferred leader first)."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = _NONE
    configs: Mapping[str, str | None] = _NONE
    validate_only: bool = False


class DeleteTopic(NamedTuple):
    """By name or by id, whichever is given."""

    name: str | None = None
    topic_id: UUID | None = None


class ConfirmDeletion(NamedTuple):
    """A broker has removed the files of deleted topics."""

    broker_id: int
    broker_epoch: int
    topic_ids: Sequence[UUID]


@dataclass(slots=True)
class AddPartitions:
    """`count` is the total wanted; `assignments` are those of the new partitions, in order."""

    topic: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


class AlterConfigs(NamedTuple):
    """`name` is that of a topic or group, a broker id in decimal, or "" for every broker.

    With `replace` nothing stays set but this (AlterConfigs), else each change is applied to what is
    set (IncrementalAlterConfigs).
    """

    resource: int
    name: str
    changes: Sequence[ConfigChange]
    replace: bool = False
    validate_only: bool = False


class AllocateProducerIds(NamedTuple):
    """A block of producer ids for a broker to hand out."""

    broker_id: int
    broker_epoch: int


class Member(NamedTuple):
    """A replica in a proposed ISR, in the life in which its leader has seen it."""

    broker_id: int
    broker_epoch: int


class Proposal(NamedTuple):
    """A new ISR that the leader asks the controller for."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[Member, ...]

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(member.broker_id for member in self.isr)


class ElectLeader(NamedTuple):
    """Let the preferred replica lead, or, with `unclean`, any replica where nobody leads."""

    topic: str
    partition: int
    unclean: bool = False


@dataclass(slots=True)
class BalanceLeaders:
    """Give the office back to preferred replicas that are in sync, everywhere."""


class BeginShutdown(NamedTuple):
    """A broker is about to stop: others lead what they can, and it leaves the ISRs. Until its next
    life it neither leads nor joins."""

    broker_id: int
    broker_epoch: int


class Reassign(NamedTuple):
    """Move a partition to these replicas, the preferred leader first; None stops what is moved."""

    topic: str
    partition: int
    replicas: Sequence[int] | None
    allow_factor_change: bool = True


class SetReplicationFactor(NamedTuple):
    """Move the partitions of a topic so that each has this many replicas."""

    topic: str
    factor: int


@dataclass(slots=True)
class RaiseInternalTopics:
    """Give internal topics more replicas where there are brokers for them."""


class Decommission(NamedTuple):
    """Move all replicas of a broker to others, so that it can be removed."""

    broker_id: int


class RemoveBroker(NamedTuple):
    """Forget a broker that is gone for good and has no replica any more."""

    broker_id: int


class AlterPartition(NamedTuple):
    """A leader proposes another ISR; the answer is `PartitionDecided`, also to a proposal that was
    done before.

    Refused as Kafka refuses it: STALE_BROKER_EPOCH, UNKNOWN_TOPIC_ID, NOT_CONTROLLER (the leader
    knows more than the controller), FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION (the state has
    changed: wait for the image), INELIGIBLE_REPLICA (a member is gone, is shutting down or lives
    another life), INVALID_REQUEST.
    """

    broker_id: int
    broker_epoch: int
    topic_id: UUID
    partition: int
    proposal: Proposal


PlacementCommand = (
    ElectLeader
    | BalanceLeaders
    | BeginShutdown
    | Reassign
    | SetReplicationFactor
    | RaiseInternalTopics
    | Decommission
    | RemoveBroker
)


class ReplicaKey(NamedTuple):
    """A partition by what is never used twice."""

    topic_id: UUID
    partition: int


class GiveUpReplicas(NamedTuple):
    """A broker cannot serve these replicas: their disk failed, or they could not be opened.

    What they had does not count any more until they have caught up; of the others one leads. Where
    they are `damaged` in a part, they are given up only if another one leads then, in a new epoch:
    nothing that they have shown before the part is dropped gets them into the ISR again.
    """

    broker_id: int
    broker_epoch: int
    replicas: Sequence[ReplicaKey]
    damaged: bool = False


class AlterScramCredentials(NamedTuple):
    """Set credentials of one user by mechanism, or remove them (None)."""

    user: str
    credentials: Mapping[str, ScramCredential | None]


class CreateAcls(NamedTuple):
    """Add rules, all of them at once; those that are there already stay."""

    acls: Sequence[AclBinding]


class DeleteAcls(NamedTuple):
    """Remove all rules that any of the filters matches, at once; the answer is `DeletedAcls`."""

    filters: Sequence[AclFilter]


class AlterClientQuotas(NamedTuple):
    """Set quotas of one entity, or remove them (None)."""

    entity: QuotaEntity
    quotas: Mapping[str, float | None]
    validate_only: bool = False


SecurityCommand = AlterScramCredentials | CreateAcls | DeleteAcls | AlterClientQuotas

Command = (
    RegisterBroker
    | UnregisterBroker
    | CreateTopic
    | DeleteTopic
    | ConfirmDeletion
    | AddPartitions
    | AlterConfigs
    | AllocateProducerIds
    | AlterPartition
    | GiveUpReplicas
    | PlacementCommand
    | SecurityCommand
)


@dataclass(slots=True)
class Done:
    """The answer where there is nothing to tell."""


DONE: Final = Done()


class CreatedTopic(NamedTuple):
    """The topic as it is now, or as it would be with `validate_only`."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class DeletedTopic(NamedTuple):
    """Which topic is gone."""

    name: str
    topic_id: UUID


class ProducerIdBlock(NamedTuple):
    """The producer ids from `first` on, `size` of them, given to nobody else ever."""

    first: int
    size: int


class PartitionDecided(NamedTuple):
    """What holds for a partition now. Another leader epoch than the proposal's means that moving
    replicas was completed with it and the partition has a new leader or a new epoch."""

    state: PartitionState


class Moving(NamedTuple):
    """How many partitions have begun to move."""

    partitions: int


class DeletedAcls(NamedTuple):
    """The rules that each filter has matched; they are gone."""

    matches: Sequence[Sequence[AclBinding]]


Answer = (
    Done | CreatedTopic | DeletedTopic | ProducerIdBlock | PartitionDecided | Moving | DeletedAcls
)
